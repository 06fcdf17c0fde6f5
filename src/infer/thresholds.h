// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kansoku::infer {

// thresholds.inc says what each decides, in which unit, and what it was set on.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "infer/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::infer
