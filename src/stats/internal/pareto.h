// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace kansoku::stats::internal {

/// Generalised Pareto distribution of an excess: 1 - (1 + shape y / scale)^(-1 / shape).
struct Pareto {
  double shape{0};
  double scale{1};
};

inline constexpr double kParetoShapeMin = -1;
inline constexpr double kParetoShapeMax = 10;

/// P(excess > y), y >= 0; exactly the exponential's for shape 0, and continuous there.
[[nodiscard]] double pareto_survival(const Pareto& pareto, double y);
/// The excess with P(excess > y) = `survival` in (0, 1].
[[nodiscard]] double pareto_excess(const Pareto& pareto, double survival);
/// Log-likelihood of `excesses` > 0; minus infinity if one lies beyond the upper end.
[[nodiscard]] double pareto_log_likelihood(const Pareto& pareto, std::span<const double> excesses);

struct ParetoFit {
  Pareto pareto;
  double log_likelihood{0};
  bool regular{true};  // false: the best shape is the lowest allowed, -1
};
/// Maximum likelihood over shapes from -1 up. `excesses`: ascending, > 0, not all equal.
[[nodiscard]] ParetoFit pareto_likelihood_fit(std::span<const double> excesses);
/// Probability-weighted moments, with a shape that reaches the largest excess.
[[nodiscard]] Pareto pareto_moments_fit(std::span<const double> excesses);

/// The largest log-likelihood among distributions with P(excess > y) = exp(`log_survival`), y > 0,
/// log_survival < 0.
[[nodiscard]] double pareto_profile(std::span<const double> excesses, double y,
                                    double log_survival);

}  // namespace kansoku::stats::internal
