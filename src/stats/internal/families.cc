// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/families.h"

#include <boost/math/special_functions/gamma.hpp>

#include <cmath>
#include <limits>
#include <numbers>

#include "common/check.h"
#include "common/numbers.h"
#include "stats/internal/policy.h"

namespace kansoku::stats::internal {
namespace {

// Beyond this exp(-x) is below half an ulp of 1, and e^x - 1, e^x + 1 are e^x.
constexpr double kExpNegligible = 37;

/// log(1 - exp(-t)), t > 0.
double log_one_minus_exp(double t) {
  return t <= std::numbers::ln2 ? std::log(-std::expm1(-t)) : std::log1p(-std::exp(-t));
}

double exponentiated_weibull_quantile(const Shape& shape, double u) {
  const double log_inner = std::log(u) * shape.outer_inverse;  // of the Weibull's own cdf
  const double log_t =
      log_inner < -kExpNegligible ? log_inner : std::log(-log_one_minus_exp(-log_inner));
  return shape.scale * std::exp(log_t * shape.inner_inverse);
}

double burr_quantile(const Shape& shape, double u) {
  const double w = -std::log1p(-u) * shape.outer_inverse;
  const double log_t = w > kExpNegligible ? w : std::log(std::expm1(w));
  return shape.scale * std::exp(log_t * shape.inner_inverse);
}

// Beyond this shape the incomplete gamma function loses more digits than the cube root of a gamma
// variate, which is normal up to a share of 1e-10 there. Source: Wilson and Hilferty 1931.
constexpr double kGammaIsCubed = 1e10;

double gamma_cdf(double a, double x) {
  if (x == kInfinity) return 1;
  if (a <= kGammaIsCubed) return boost::math::gamma_p(a, x, Quiet());
  return normal_cdf((std::cbrt(x / a) - 1 + 1 / (9 * a)) * 3 * std::sqrt(a));
}

double gamma_quantile(double a, double u) {
  if (a > kGammaIsCubed) {
    const double root = 1 - 1 / (9 * a) + normal_quantile(u) / (3 * std::sqrt(a));
    return a * root * root * root;
  }
  return boost::math::gamma_p_inv(a, u, Quiet());
}

double log_norm(Family family, const Shape& shape) {
  const double log_scale = std::log(shape.scale);
  switch (family) {
    case Family::kLogNormal:
      return -std::log(shape.outer) - 0.5 * std::log(2 * std::numbers::pi);
    case Family::kWeibull:
      return std::log(shape.inner) - log_scale;
    case Family::kExponentiatedWeibull:
    case Family::kBurrXII:
      return std::log(shape.outer) + std::log(shape.inner) - log_scale;
    case Family::kPareto:
      return std::log(shape.outer) - log_scale;
    case Family::kGamma:
      return -boost::math::lgamma(shape.outer, Quiet()) - log_scale;
    default:
      return -log_scale;
  }
}

}  // namespace

double log_weibull_cdf(double log_t) {
  return log_t < -kExpNegligible ? log_t : log_one_minus_exp(std::exp(log_t));
}

double log1p_exp(double log_t) {
  return log_t > kExpNegligible ? log_t : std::log1p(std::exp(log_t));
}

Shape make_shape(Family family, std::span<const double> parameters) {
  Shape shape;
  shape.scale = parameters.back();
  if (family == Family::kWeibull) {
    shape.inner = parameters[0];
  } else if (family == Family::kBurrXII) {
    shape.inner = parameters[0];
    shape.outer = parameters[1];
  } else if (family == Family::kExponentiatedWeibull) {
    shape.outer = parameters[0];
    shape.inner = parameters[1];
  } else if (family != Family::kExponential) {
    shape.outer = parameters[0];
  }
  shape.outer_inverse = 1 / shape.outer;
  shape.inner_inverse = 1 / shape.inner;
  shape.log_norm = log_norm(family, shape);
  return shape;
}

double shape_cdf(Family family, const Shape& shape, double x) {
  const double ratio = x / shape.scale;
  switch (family) {
    case Family::kExponential:
      return -std::expm1(-ratio);
    case Family::kLogNormal:
      return normal_cdf(std::log(ratio) * shape.outer_inverse);
    case Family::kWeibull:
      return -std::expm1(-std::pow(ratio, shape.inner));
    case Family::kExponentiatedWeibull:
      return std::exp(shape.outer * log_weibull_cdf(shape.inner * std::log(ratio)));
    case Family::kPareto:
      return ratio < 1 ? 0 : -std::expm1(-shape.outer * std::log(ratio));
    case Family::kBurrXII:
      return -std::expm1(-shape.outer * log1p_exp(shape.inner * std::log(ratio)));
    case Family::kGamma:
      return gamma_cdf(shape.outer, ratio);
    default:
      CHECK(false);
      return 0;
  }
}

double shape_log_density(Family family, const Shape& shape, double x) {
  const double ratio = x / shape.scale;
  const double log_ratio = std::log(ratio);
  const double log_t = shape.inner * log_ratio;
  switch (family) {
    case Family::kExponential:
      return shape.log_norm - ratio;
    case Family::kLogNormal: {
      const double z = log_ratio * shape.outer_inverse;
      return shape.log_norm - 0.5 * z * z - std::log(x);
    }
    case Family::kWeibull:
      return shape.log_norm + log_t - log_ratio - std::exp(log_t);
    case Family::kExponentiatedWeibull:
      return shape.log_norm + log_t - log_ratio - std::exp(log_t) +
             (shape.outer - 1) * log_weibull_cdf(log_t);
    case Family::kPareto:
      return ratio < 1 ? -kInfinity : shape.log_norm - (shape.outer + 1) * log_ratio;
    case Family::kBurrXII:
      return shape.log_norm + log_t - log_ratio - (shape.outer + 1) * log1p_exp(log_t);
    case Family::kGamma:
      return shape.log_norm + (shape.outer - 1) * log_ratio - ratio;
    default:
      CHECK(false);
      return 0;
  }
}

double shape_quantile(Family family, const Shape& shape, double u) {
  switch (family) {
    case Family::kExponential:
      return -shape.scale * std::log1p(-u);
    case Family::kLogNormal:
      return shape.scale * std::exp(shape.outer * normal_quantile(u));
    case Family::kWeibull:
      return shape.scale * std::exp(std::log(-std::log1p(-u)) * shape.inner_inverse);
    case Family::kExponentiatedWeibull:
      return exponentiated_weibull_quantile(shape, u);
    case Family::kPareto:
      return shape.scale * std::exp(-std::log1p(-u) * shape.outer_inverse);
    case Family::kBurrXII:
      return burr_quantile(shape, u);
    case Family::kGamma:
      return shape.scale * gamma_quantile(shape.outer, u);
    default:
      CHECK(false);
      return 0;
  }
}

}  // namespace kansoku::stats::internal
