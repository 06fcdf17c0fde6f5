// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::capture::cuda {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "capture/cuda/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::capture::cuda
