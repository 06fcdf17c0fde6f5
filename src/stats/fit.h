// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "stats/distribution.h"

namespace kansoku::stats {

/// Values that Nelder-Mead is run on at most: the parameters' standard errors are then below a
/// percent, and a search takes a fraction of a second.
inline constexpr std::size_t kSearchValuesMax = 20'000;

struct FitOptions {
  int components{20};  // of kLogMixture
  int mixture_iterations{150};
  std::size_t mixture_subsample_max{12'000};  // points that the mixture is fitted to
  std::uint64_t seed{1};                      // of subsamples and splits
};

/// A family fitted by maximum likelihood. kConstant and kEmpirical have no density: their
/// log-likelihood and AIC are NaN.
struct Fit {
  Distribution distribution;
  double log_likelihood{0};  // of the values > 0 that it was fitted to
  double aic{0};             // 2 k - 2 log L, k = free parameters without the share of zeros
  double ks{0};              // largest distance between the two distribution functions
  std::size_t values{0};     // values > 0
  bool mean_infinite{false};
};

/// Fits one family. `values`: finite, >= 0, any order; zeros become the point mass. Exponential,
/// lognormal, Pareto and empirical in closed form, Weibull and gamma by one-dimensional root
/// finding, exponentiated Weibull and Burr XII by NLopt's Nelder-Mead from several starts, the
/// mixture by stats/mixture.h on logarithms; kConstant is the mean, kUniform the range.
/// With more than kSearchValuesMax values > 0, the two searched families see a random subsample of
/// that many (seeded), but log-likelihood, AIC and KS are of all values. Their outer shape (a, d)
/// ends at e^12: a Burr XII of a Weibull's sample, say, goes there.
/// kLimit with fewer than 5 values > 0, fewer than two different ones (except for kConstant and
/// kEmpirical), or an optimum beyond a double's range; kCorrupt for a value that is negative or not
/// finite. The order of the values does not matter. Deterministic; any thread.
[[nodiscard]] Result<Fit> fit(Family family, std::span<const double> values,
                              const FitOptions& options = {});

/// A family judged on values that the fit has not seen.
struct Judged {
  Fit fit;                // on all values
  double ks_held_out{0};  // fitted on the first part, judged on the second
};
struct Choice {
  std::vector<Judged> candidates;  // by falling merit; the chosen one first
};

/// Fits every family on all values and judges each on a split: `held_out` = indices' share drawn at
/// random with the seed (0.3 = 70/30). Order: by AIC (families of finite AIC), ties by name; an
/// empirical distribution comes last. A family whose fit fails (on all values or on the first part)
/// is left out; kLimit if none is left. kCorrupt for a value as in fit() and if `held_out` is not
/// in (0, 1).
[[nodiscard]] Result<Choice> choose(std::span<const Family> families,
                                    std::span<const double> values, double held_out,
                                    const FitOptions& options = {});

/// Kolmogorov-Smirnov distance between the sample and the distribution (0..1); `values` in any
/// order, at least one. Point masses and ties are counted from both sides.
[[nodiscard]] double ks_distance(std::span<const double> values, const Distribution& distribution);
/// Between two samples, each at least one value.
[[nodiscard]] double ks_distance(std::span<const double> a, std::span<const double> b);

/// `points` pairs (quantile of the distribution, quantile of the sample) at (i + 1/2) / points; the
/// sample's is the smallest value whose share of values up to it reaches that. Empty without
/// values.
struct QqPoint {
  double model{0}, data{0};
};
[[nodiscard]] std::vector<QqPoint> qq_points(std::span<const double> values,
                                             const Distribution& distribution, std::size_t points);

/// Shares of the normal-theory confidence interval: Student's t quantile at `p` with `degrees`
/// >= 1.
[[nodiscard]] double student_quantile(double p, double degrees);

/// Variance (divided by n) over mean of counts; 0 if undefined.
[[nodiscard]] double index_of_dispersion(std::span<const double> counts);
/// Autocovariance at `lag` over the variance, both divided by n; 0 if undefined.
[[nodiscard]] double autocorrelation(std::span<const double> values, std::size_t lag);

}  // namespace kansoku::stats
