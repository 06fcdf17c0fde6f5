// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace kansoku::stats {

// All functions: `values` in any order, finite; 0 for an empty span; pure, any thread; the result
// does not depend on the order of `values` (sums run over sorted values).

/// The `share` quantile (clamped to 0..1) by linear interpolation between order statistics.
/// Source: Hyndman and Fan 1996, definition 7.
[[nodiscard]] double quantile(std::span<const double> values, double share);
[[nodiscard]] double median(std::span<const double> values);
/// Median absolute deviation from the median, not scaled to a standard deviation.
[[nodiscard]] double mad(std::span<const double> values);
/// Standard deviation over median absolute deviation of a normal distribution: 1 / its quartile.
inline constexpr double kMadToSigma = 1.4826;
[[nodiscard]] double mean(std::span<const double> values);
/// Mean without the floor(n * trim_share) smallest and as many largest values; `trim_share` is
/// clamped to 0..0.5, and at 0.5 the median is returned.
[[nodiscard]] double trimmed_mean(std::span<const double> values, double trim_share);

}  // namespace kansoku::stats
