// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stats/thresholds.h"

namespace kansoku::diagnose {

// thresholds.inc has the effect, the unit and the basis of each.
#define KANSOKU_THRESHOLD(name, value, unit, decides, set_on) inline constexpr auto name = value;
#include "diagnose/thresholds.inc"
#undef KANSOKU_THRESHOLD
using stats::kBlameChanceMax;
using stats::kBlocksMin;
using stats::kClipShare;
using stats::kConcentrationMin;
using stats::kConfidenceMin;
using stats::kHotStepsMin;
using stats::kLongStepMin;
using stats::kTopStepShare;

}  // namespace kansoku::diagnose
