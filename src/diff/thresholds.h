// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stats/thresholds.h"

namespace kansoku::diff {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "diff/thresholds.inc"
#undef KANSOKU_THRESHOLD
using stats::kClipShare;

}  // namespace kansoku::diff
