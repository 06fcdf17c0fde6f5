// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

namespace kansoku::diagnose {

/// Three decimals: below the clock's use, and the same text for the same numbers everywhere.
[[nodiscard]] inline double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

}  // namespace kansoku::diagnose
