// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kansoku::infer {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "infer/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::infer
