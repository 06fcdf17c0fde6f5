// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/pareto.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/numbers.h"

namespace kansoku::stats::internal {
namespace {

constexpr double kExponential = 1e-9;  // shapes nearer to 0 are taken for it
constexpr double kGolden = 0.6180339887498949;

/// The place of the maximum of a function with one maximum between `low` and `high`.
template <class Function>
double golden_maximum(const Function& function, double low, double high, int steps) {
  double left = high - kGolden * (high - low), right = low + kGolden * (high - low);
  double at_left = function(left), at_right = function(right);
  for (int i = 0; i < steps; ++i) {
    if (at_left >= at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - kGolden * (high - low);
      at_left = function(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + kGolden * (high - low);
      at_right = function(right);
    }
  }
  return 0.5 * (low + high);
}

/// The best of `steps` + 1 places from `low` to `high`, then refined between its neighbours.
template <class Function>
double searched_maximum(const Function& function, double low, double high, int steps,
                        int refinements) {
  const double step = (high - low) / steps;
  double best = low, best_value = -kInfinity;
  for (int i = 0; i <= steps; ++i) {
    const double at = low + step * i;
    const double value = function(at);
    if (value <= best_value) continue;
    best = at;
    best_value = value;
  }
  const double refined = golden_maximum(function, std::max(low, best - step),
                                        std::min(high, best + step), refinements);
  return function(refined) >= best_value ? refined : best;
}

/// expm1(-shape * log_survival) / shape: the excess over the scale.
double standard_excess(double shape, double log_survival) {
  if (std::abs(shape) < kExponential) return -log_survival;
  return std::expm1(-shape * log_survival) / shape;
}

}  // namespace

double pareto_survival(const Pareto& pareto, double y) {
  const double z = y / pareto.scale;
  if (std::abs(pareto.shape) < kExponential) return std::exp(-z);
  const double inner = pareto.shape * z;
  return inner <= -1 ? 0 : std::exp(-std::log1p(inner) / pareto.shape);
}

double pareto_excess(const Pareto& pareto, double survival) {
  return pareto.scale * standard_excess(pareto.shape, std::log(survival));
}

double pareto_log_likelihood(const Pareto& pareto, std::span<const double> excesses) {
  const auto n = static_cast<double>(excesses.size());
  if (!(pareto.scale > 0)) return -kInfinity;
  double sum = 0;
  if (std::abs(pareto.shape) < kExponential) {
    for (const double y : excesses)
      sum += y;
    return -n * std::log(pareto.scale) - sum / pareto.scale;
  }
  // At -1 the density is flat up to its end, which belongs to it.
  if (pareto.shape <= kParetoShapeMin)
    return excesses.back() <= pareto.scale ? -n * std::log(pareto.scale) : -kInfinity;
  const double ratio = pareto.shape / pareto.scale;
  if (ratio * excesses.back() <= -1) return -kInfinity;
  for (const double y : excesses)
    sum += std::log1p(ratio * y);
  return -n * std::log(pareto.scale) - (1 + 1 / pareto.shape) * sum;
}

ParetoFit pareto_likelihood_fit(std::span<const double> excesses) {
  const auto n = static_cast<double>(excesses.size());
  const double largest = excesses.back();
  // For a given ratio of shape and scale the best shape is a mean, so the search is over
  // log(1 + ratio * largest) alone.
  const auto at = [&](double t) {
    const double ratio = std::expm1(t) / largest;
    double sum = 0;
    for (const double y : excesses)
      sum += std::log1p(ratio * y);
    const double shape = sum / n;
    return std::abs(shape) < kExponential
               ? Pareto{0, std::accumulate(excesses.begin(), excesses.end(), 0.0) / n}
               : Pareto{shape, shape / ratio};
  };
  const auto likelihood = [&](double t) {
    const Pareto pareto = at(t);
    if (pareto.shape <= kParetoShapeMin || pareto.shape > kParetoShapeMax) return -kInfinity;
    return -n * (std::log(pareto.scale) + pareto.shape + 1);
  };
  // Below -12 the end is nearer to the largest excess than any shape over -1 would have it; above
  // 36 the largest is 1e15 times what is usual.
  constexpr double kLowest = -12, kHighest = 36;
  constexpr int kSteps = 96, kRefinements = 32;
  const Pareto best = at(searched_maximum(likelihood, kLowest, kHighest, kSteps, kRefinements));
  const Pareto border{kParetoShapeMin, largest};
  ParetoFit fit{best, pareto_log_likelihood(best, excesses), true};
  const double at_border = pareto_log_likelihood(border, excesses);
  if (best.shape <= kParetoShapeMin || !(fit.log_likelihood > at_border))
    fit = {border, at_border, false};
  return fit;
}

Pareto pareto_moments_fit(std::span<const double> excesses) {
  const auto n = static_cast<double>(excesses.size());
  double first = 0, weighted = 0;
  for (std::size_t i = 0; i < excesses.size(); ++i) {
    // Plotting positions of Hosking and Wallis.
    const double below = (static_cast<double>(i + 1) - 0.35) / n;
    first += excesses[i] / n;
    weighted += (1 - below) * excesses[i] / n;
  }
  const double gap = first - 2 * weighted;
  // A gap of nothing or less: steeper than any of the family, so the flattest one with an end.
  if (!(gap > 0)) return {kParetoShapeMin, excesses.back()};
  Pareto pareto{2 - first / gap, 2 * first * weighted / gap};
  if (pareto.shape < 0 && -pareto.scale / pareto.shape < excesses.back()) {
    constexpr double kBeyond = 1 + 1e-9;  // the largest excess lies inside
    pareto.shape = -pareto.scale / (excesses.back() * kBeyond);
  }
  return pareto;
}

double pareto_profile(std::span<const double> excesses, double y, double log_survival) {
  // Denser in small shapes, where real ones are. A place that is off by 1e-4 costs a likelihood
  // that is lower by its square only.
  const auto shape_at = [](double t) {
    return kParetoShapeMin + (kParetoShapeMax - kParetoShapeMin) * t * t;
  };
  const auto likelihood = [&](double t) {
    const double shape = shape_at(t);
    return pareto_log_likelihood({shape, y / standard_excess(shape, log_survival)}, excesses);
  };
  constexpr int kSteps = 24, kRefinements = 14;
  return likelihood(searched_maximum(likelihood, 0, 1, kSteps, kRefinements));
}

}  // namespace kansoku::stats::internal
