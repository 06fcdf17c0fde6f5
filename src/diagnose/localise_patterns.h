// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "diagnose/pattern.h"

namespace kansoku::diagnose {

/// Limits on the cost of the comparison of ranks; docs/patterns.md gives the guarantees of its
/// thresholds.
struct LocaliseOptions {
  std::uint64_t seed{1};
  std::uint32_t peers_max{100};  // compared with each rank; ours, after PerfTracker as remembered
  unsigned thread_count{2};
};

/// Behaviour of many ranks, function by function. Rows are ranks of equal role.
struct PatternMatrix {
  std::size_t rank_count{0}, function_count{0};
  std::vector<Activity> activities;    // by function
  std::vector<float> beta, mu, sigma;  // [function][rank]
  PatternMatrix(std::size_t ranks, std::size_t functions)
      : rank_count(ranks),
        function_count(functions),
        activities(functions, Activity::kPython),
        beta(ranks * functions),
        mu(ranks * functions),
        sigma(ranks * functions) {}
};

/// A rank whose behaviour in a function is unlike that of its peers.
struct PatternOutlier {
  std::uint32_t rank{0};  // row of the matrix
  std::uint32_t function{0};
  float differs{0};              // share of compared peers that differ from it
  float distance{0};             // L1 between its scaled pattern and the median one
  float beta{0}, peers_beta{0};  // own, median of all
  float mu{0}, peers_mu{0};
  float sigma{0}, peers_sigma{0};
  bool is_culprit{false};  // more time on the critical path than peers (for collectives: less)
};

/// Differential distance: each rank against up to `peers_max` others drawn anew for each function.
/// Patterns are scaled by the greatest value over the ranks in each dimension; a rank is an outlier
/// of a function if it differs from more of its peers than the robust threshold over all ranks
/// allows, and from their majority. Sorted by |beta - peers_beta|, greatest first. Deterministic
/// for `seed`, whatever the number of threads; O(functions x ranks x peers_max) time, linear
/// memory. Source: PerfTracker (recalled: unverified), with floors for few ranks and a MAD of 0
/// (ours).
[[nodiscard]] std::vector<PatternOutlier> localise(const PatternMatrix& matrix,
                                                   const LocaliseOptions& options);

}  // namespace kansoku::diagnose
