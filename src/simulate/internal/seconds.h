// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "common/time.h"

namespace kansoku::simulate {

[[nodiscard]] inline double seconds(Nanos time) {
  return static_cast<double>(time.count()) / 1e9;
}
/// `seconds`: less than 292 years.
[[nodiscard]] inline Nanos nanos(double seconds) {
  return Nanos{std::llround(seconds * 1e9)};
}

}  // namespace kansoku::simulate
