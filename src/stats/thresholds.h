// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kansoku::stats {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "stats/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::stats
