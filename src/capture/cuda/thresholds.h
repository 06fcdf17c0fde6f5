// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::capture::cuda {

// thresholds.inc says what each decides, in which unit, and what it was set on.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "capture/cuda/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::capture::cuda
