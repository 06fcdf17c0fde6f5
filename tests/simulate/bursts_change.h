// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bursts_models.h"

namespace kansoku::simulate {

/// Fitting weeks with one ingredient taken from the judged weeks: refitting a model to them shows
/// what of its error that ingredient makes.
struct Swap {
  std::string name;
  Workload joined;
  int weeks{0};
};
[[nodiscard]] std::vector<Swap> swaps(const Workload& fitting, int fitting_weeks,
                                      const Workload& judged, int judged_weeks);

/// One week ahead: the candidate fitted anew before each week that comes after the `known` ones of
/// `past`, to the last `trailing` weeks before it (0: to all). Empty with `error` set if a fit
/// fails.
[[nodiscard]] Stream weekly_stream(const Candidate& candidate, const Workload& past, int known,
                                   int trailing, std::string& error);

/// One day ahead: the stream of each day is drawn from the sessions of the days before it that are
/// of its kind (working day, weekend), a session's weight falling by half every `half_life_days`;
/// `known` weeks come before the first drawn one. `past` joins the known and the drawn weeks, of
/// which each day sees only those before it.
struct AdaptiveOptions {
  double gap_s{300};
  double half_life_days{7};
};
[[nodiscard]] Stream adaptive_stream(const Workload& past, int known, AdaptiveOptions options);

}  // namespace kansoku::simulate
