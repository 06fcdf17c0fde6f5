// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "stats/distribution.h"

namespace kansoku::stats::internal {

// The families from kExponential to kGamma on (0, infinity): no zero share, no cap. Pure; any
// thread. Sources: textbook closed forms, written so that neither tail loses its digits.

/// `parameters` valid and in the order of parameter_names().
[[nodiscard]] Shape make_shape(Family family, std::span<const double> parameters);
/// P(X <= x), x > 0.
[[nodiscard]] double shape_cdf(Family family, const Shape& shape, double x);
/// Logarithm of the density at x > 0.
[[nodiscard]] double shape_log_density(Family family, const Shape& shape, double x);
/// u in (0, 1). May overflow to infinity where the distribution's tail does.
[[nodiscard]] double shape_quantile(Family family, const Shape& shape, double u);
/// Mean below `cap` (> 0, may be infinity), `below_cap` = shape_cdf(cap) > 0; infinity if there is
/// none.
[[nodiscard]] double shape_mean(Family family, const Shape& shape, double cap, double below_cap);

/// log(1 - exp(-e^log_t)), the logarithm of a Weibull's cdf: where e^log_t underflows, log_t
/// itself.
[[nodiscard]] double log_weibull_cdf(double log_t);
/// log(1 + e^log_t), without overflow.
[[nodiscard]] double log1p_exp(double log_t);

/// Mean of exp(mean + sigma Z) below exp(log_cap), which may be infinity.
[[nodiscard]] double lognormal_mean(double mean, double sigma, double log_cap);

}  // namespace kansoku::stats::internal
