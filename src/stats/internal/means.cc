// SPDX-License-Identifier: Apache-2.0
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/gamma.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/numbers.h"
#include "stats/internal/families.h"
#include "stats/internal/policy.h"

namespace kansoku::stats::internal {
namespace {

double exponential_mean(const Shape& shape, double cap) {
  const double r = cap / shape.scale;
  if (r > 745) return shape.scale;  // e^-745 is the least number > 0
  // 1 - r / (e^r - 1) cancels for a small r; the series is exact to r^6 there.
  if (r < 1e-2) return shape.scale * (r / 2 - r * r / 12 + r * r * r * r / 720);
  return shape.scale * (1 - r / std::expm1(r));
}

double pareto_mean(const Shape& shape, double cap, double below_cap) {
  const double b = shape.outer;
  if (cap == kInfinity) return b <= 1 ? kInfinity : shape.scale * b / (b - 1);
  // The integral of b s^b x^-b from s to the cap, with L = log(cap / s), from the end where more of
  // it lies: b s (1 - e^(-(b-1) L)) / (b - 1) = b cap e^(-b L) (1 - e^(-(1-b) L)) / (1 - b).
  const double ratio = std::min(cap / shape.scale, std::numeric_limits<double>::max());
  const double log_ratio = std::log(ratio);
  const double k = std::abs(b - 1) * log_ratio;
  const double part = k < 1e-12 ? log_ratio : log_ratio * (-std::expm1(-k) / k);
  const double end = b < 1 ? cap * std::exp(-b * log_ratio) : shape.scale;
  return end * (b / below_cap * part);
}

double gamma_mean(const Shape& shape, double cap, double below_cap) {
  const double mean = shape.outer * shape.scale;
  const double t = cap / shape.scale;
  // A huge shape is as good as one value.
  if (cap == kInfinity || t == kInfinity || shape.outer > 1e10) return std::min(mean, cap);
  const double part = mean * boost::math::gamma_p(shape.outer + 1, t, Quiet());
  // Out of a double's range: the density below such a cap is nearly x^(a - 1).
  if (!(part > 0 && part < kInfinity)) return cap * shape.outer / (shape.outer + 1);
  return part / below_cap;
}

/// 1 - F(x) at log x = y, without cancellation.
double survival(Family family, const Shape& shape, double y) {
  const double t = std::exp(shape.inner * (y - std::log(shape.scale)));
  return family == Family::kBurrXII ? std::exp(-shape.outer * std::log1p(t))
                                    : -std::expm1(shape.outer * std::log1p(-std::exp(-t)));
}

/// The mean below `cap` as the integral over log x of x (F(cap) - F(x)), divided by F(cap). From
/// 1e-17 of the median on: what lies below adds no more than half an ulp.
double integrated_mean(Family family, const Shape& shape, double cap, double below_cap) {
  // Either end of a double's range may be near; a median beyond it has a mean beyond it.
  const double median = shape_quantile(family, shape, below_cap / 2);
  if (median == kInfinity) return kInfinity;
  const double low = std::log(std::max(median, std::numeric_limits<double>::min())) - 39;
  const double high = std::log(cap);
  const double tail = survival(family, shape, high);
  // The difference of two numbers near 1 has no digits, so it is taken on the side that is small.
  const auto integrand = [&](double y) {
    const double x = std::exp(y);
    return x * std::max(0.0, below_cap < 0.5 ? below_cap - shape_cdf(family, shape, x)
                                             : survival(family, shape, y) - tail);
  };
  using Rule = boost::math::quadrature::gauss_kronrod<double, 31, Quiet>;
  constexpr int kPanels = 16;  // the mass may sit in a narrow part of a long range
  constexpr unsigned kDepth = 8;
  double sum = 0;
  for (int i = 0; i < kPanels; ++i) {
    const double begin = low + (high - low) * i / kPanels;
    const double end = low + (high - low) * (i + 1) / kPanels;
    sum += Rule::integrate(integrand, begin, end, kDepth, 1e-13);
  }
  return sum / below_cap;
}

double burr_mean(const Shape& shape, double cap, double below_cap) {
  if (cap < kInfinity) return integrated_mean(Family::kBurrXII, shape, cap, below_cap);
  if (shape.inner * shape.outer <= 1) return kInfinity;
  const double k = shape.inner_inverse;
  const double mean =
      shape.scale * shape.outer * boost::math::beta(shape.outer - k, 1 + k, Quiet());
  if (mean > 0) return mean;
  // The beta function has left the double's range, or has no value for such numbers.
  return integrated_mean(Family::kBurrXII, shape, std::numeric_limits<double>::max(), 1);
}

double weibull_mean(const Shape& shape, double cap, double below_cap) {
  const double k = 1 + shape.inner_inverse;
  const double mean = shape.scale * std::exp(boost::math::lgamma(k, Quiet()));
  if (cap == kInfinity) return mean;
  const double t = std::pow(cap / shape.scale, shape.inner);
  const double part = mean * boost::math::gamma_p(k, t, Quiet());
  // Infinity times 0, or 0: shapes near 0 leave the double's range on the way.
  if (!(part > 0 && part < kInfinity))
    return integrated_mean(Family::kWeibull, shape, cap, below_cap);
  return part / below_cap;
}

/// log of normal_cdf(z) over the density without its factor, exp(-z^2 / 2), for z < -30. Source:
/// the textbook asymptotic series, good to 2e-12 from there on.
double log_normal_ratio(double z) {
  const double r = 1 / (z * z);
  return -std::log(-z) - 0.5 * std::log(2 * std::numbers::pi) +
         std::log1p(-r * (1 - r * (3 - r * (15 - r * 105))));
}

/// log of normal_cdf(z), also where that underflows.
double log_normal_cdf(double z) {
  return z > -30 ? std::log(normal_cdf(z)) : -0.5 * z * z + log_normal_ratio(z);
}

}  // namespace

double lognormal_mean(double mean, double sigma, double log_cap) {
  const double z = (log_cap - mean) / sigma, w = z - sigma;
  if (w > -30) return std::exp(mean + sigma * sigma / 2) * (normal_cdf(w) / normal_cdf(z));
  // The exponential may overflow and the share of w underflow, but what is large cancels: mean +
  // sigma^2 / 2 - w^2 / 2 = log_cap - z^2 / 2.
  return std::exp(log_cap - 0.5 * z * z - log_normal_cdf(z) + log_normal_ratio(w));
}

double shape_mean(Family family, const Shape& shape, double cap, double below_cap) {
  switch (family) {
    case Family::kExponential:
      return exponential_mean(shape, cap);
    case Family::kLogNormal:
      return lognormal_mean(std::log(shape.scale), shape.outer, std::log(cap));
    case Family::kWeibull:
      return weibull_mean(shape, cap, below_cap);
    case Family::kPareto:
      return pareto_mean(shape, cap, below_cap);
    case Family::kBurrXII:
      return burr_mean(shape, cap, below_cap);
    case Family::kGamma:
      return gamma_mean(shape, cap, below_cap);
    default: {
      // Beyond (x/s)^c = 745 + log a nothing is left that a double can hold.
      const double t_last = 745 + std::max(0.0, std::log(shape.outer));
      const double last = std::min(shape.scale * std::pow(t_last, shape.inner_inverse),
                                   std::numeric_limits<double>::max());
      return integrated_mean(family, shape, std::min(cap, last), below_cap);
    }
  }
}

}  // namespace kansoku::stats::internal
