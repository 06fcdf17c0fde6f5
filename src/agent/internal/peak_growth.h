// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "common/time.h"

namespace kansoku::agent {

/// Growth of a level that also falls, such as memory in use: only a rise above all of the last half
/// minute counts, since memory that was given back and is taken again is no growth. Keeps one value
/// a reading of that time at most. Single-threaded.
class PeakGrowth {
 public:
  /// Units of the level a second since the last reading, 0 if it is not above the peak. Times never
  /// fall; a reading at the time of the last one says nothing new, and the first has nothing to be
  /// compared with.
  [[nodiscard]] std::optional<double> add(BootTime now, double level);

 private:
  struct Reading {
    BootTime at;
    double level{0};
  };
  std::deque<Reading> peaks_;  // levels fall from front to back; the back is the last reading
};

}  // namespace kansoku::agent
