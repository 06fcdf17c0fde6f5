// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kansoku::detect {

/// The upper tail of a sample: a generalised Pareto distribution above a threshold, by
/// probability-weighted moments.
/// Source: Hosking and Wallis 1987; the shape is held within -0.2 and 0.5 (ours: beyond them a few
/// dozen points say too little). Values more than 20 median excesses beyond its begin are left out.
struct Tail {
  double from{0};   // where the tail begins
  double share{1};  // of the sample above it
  double scale{0}, shape{0};

  /// The value that a share `p` of the population exceeds.
  [[nodiscard]] double quantile(double p) const;
};
/// `values` in any order, finite, not empty. The tail is the upper tenth, at least ten values.
[[nodiscard]] Tail fit_tail(std::span<const double> values);

/// Where the largest value of a healthy window stays below with probability 1 - `alpha`, from the
/// largest values of some healthy windows: the median plus an exponential tail, at least half
/// above the largest one seen. `floor` if there are none.
[[nodiscard]] double window_cut(std::span<const double> maxima, double alpha, double floor);

/// P(X >= k) of n trials that succeed with probability p and whose outcomes are correlated by rho
/// (beta-binomial; rho = 0: binomial).
[[nodiscard]] double upper_share(std::uint32_t k, std::uint32_t n, double p, double rho);
/// The smallest k with upper_share(k) <= alpha; n + 1 if there is none.
[[nodiscard]] std::uint32_t smallest_k(std::uint32_t n, double p, double rho, double alpha);

/// Share and correlation of flags, from counts in windows of `n` trials each.
struct FlagRate {
  double share{0}, correlation{0};
};
[[nodiscard]] FlagRate fit_flags(std::span<const double> counts, double n);

/// The 95 % interval of a share of which `k` of `n` were seen (Wilson 1927).
struct ShareInterval {
  double low{0}, high{1};
};
[[nodiscard]] ShareInterval share_interval(double k, double n);

}  // namespace kansoku::detect
