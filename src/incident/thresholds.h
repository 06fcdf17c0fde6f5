// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/time.h"

namespace kansoku::incident {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr Nanos name = value;
#include "incident/thresholds.inc"
#undef KANSOKU_THRESHOLD

}  // namespace kansoku::incident
