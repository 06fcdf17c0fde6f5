// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stats/distribution.h"

namespace kansoku::stats {

/// scipy.stats 1.10.1: cdf(x), logpdf(x) and ppf(u); the mixture from norm.cdf and brentq. Four
/// rows of each set of parameters.
struct ScipyRow {
  Family family;
  std::vector<double> parameters;
  double x, cdf, log_density, u, quantile;
};
[[nodiscard]] const std::vector<ScipyRow>& scipy_rows();

/// Means without a cap (infinity): scipy's mean(), but for the exponentiated Weibull, where that
/// has 6 to 11 digits only, numpy's sum over x = exp(i / 128) of x^2 pdf(x) (the trapezoid rule
/// over log x). With a cap: scipy.integrate.quad over x pdf(x), divided by cdf(cap).
struct ScipyMean {
  Family family;
  std::vector<double> parameters;
  double cap, mean;
};
[[nodiscard]] const std::vector<ScipyMean>& scipy_means();

/// make() of parameters known to be valid.
[[nodiscard]] Distribution made(Family family, std::vector<double> parameters);

}  // namespace kansoku::stats
