// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "common/result.h"

namespace kansoku::stats {

/// `hits` of `trials` in one window.
struct CountWindow {
  std::int64_t hits{0};
  std::int64_t trials{0};
};

/// Hits of n trials whose probability is itself a draw from a beta distribution, once a window:
/// counts that vary more than a binomial's. A value type; any thread may read it.
struct BetaBinomial {
  double mean{0.5};       // of the probability of a hit, 0 to 1
  double correlation{0};  // between trials of a window, 0 <= it < 1; 0 is the binomial

  /// From the parameters of the beta distribution, both > 0: correlation 1 / (alpha + beta + 1).
  [[nodiscard]] static BetaBinomial of(double alpha, double beta) {
    return {alpha / (alpha + beta), 1 / (alpha + beta + 1)};
  }

  /// P(at least `hits` of `trials`): 1 for hits <= 0, 0 above `trials`. Relative error about 1e-12
  /// times log(trials), far out too. At most `trials` steps where alpha or beta is below 1, else
  /// about the standard deviation; kLimit from over 100 million trials, kUnsupported for trials
  /// below 0 or parameters outside their ranges.
  [[nodiscard]] Result<double> at_least(std::int64_t hits, std::int64_t trials) const;
};

struct CountFit {
  BetaBinomial model;
  double log_likelihood{0};  // without the binomial coefficients, natural logarithm
};

/// Maximum likelihood from windows, started at the moments. No more spread than a binomial's gives
/// correlation 0. If all or none of the trials are hits, the mean is (hits + 1/2) / (trials + 1),
/// so that no count becomes impossible. kCorrupt: hits outside 0..trials; kLimit: fewer than 10
/// windows with a trial. Deterministic; O(windows) times some hundred.
/// Source: Kleinman 1973 for the moments; Griffiths 1973 for the likelihood.
[[nodiscard]] Result<CountFit> fit_counts(std::span<const CountWindow> windows);

}  // namespace kansoku::stats
