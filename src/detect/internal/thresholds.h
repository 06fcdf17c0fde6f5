// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stats/counts.h"

namespace kansoku::detect {

/// The level that a share `p` of the population exceeds, by the tail (stats::Tail) of the upper
/// tenth of a sample, at least twenty values; the largest value where there are too few for a tail.
/// Values more than 20 median excesses beyond the tail's begin are left out. `values` in any order,
/// finite, not empty.
[[nodiscard]] double tail_level(std::span<const double> values, double p);

/// Limit that the largest value of a healthy window stays below with probability 1 - `alpha`, from
/// the largest values of some healthy windows: the median plus an exponential tail, at least half
/// above the largest one seen. `floor` if there are none.
[[nodiscard]] double window_cut(std::span<const double> maxima, double alpha, double floor);

/// P(at least k of n), 0 for k > n.
[[nodiscard]] double upper_share(const stats::BetaBinomial& flags, std::uint32_t k,
                                 std::uint32_t n);
/// The smallest k with upper_share(k) <= alpha; n + 1 if there is none.
[[nodiscard]] std::uint32_t smallest_k(const stats::BetaBinomial& flags, std::uint32_t n,
                                       double alpha);
/// Correlation between the flags of a window; 0 where too few windows tell. At most 0.9.
[[nodiscard]] double correlation_of(std::span<const stats::CountWindow> windows);

/// The 95 % interval of a share of which `k` of `n` were seen (Wilson 1927).
struct ShareInterval {
  double low{0}, high{1};
};
[[nodiscard]] ShareInterval share_interval(double k, double n);

}  // namespace kansoku::detect
