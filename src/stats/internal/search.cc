// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/search.h"

#include <fmt/format.h>
#include <nlopt.h>
#include <boost/math/special_functions/digamma.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "stats/internal/families.h"
#include "stats/internal/policy.h"

namespace kansoku::stats::internal {
namespace {

constexpr std::size_t kScreenMax = 500;  // values that every start is searched on
constexpr int kScreenEvaluations = 200;
constexpr int kEvaluations = 1000;
constexpr double kTolerance = 1e-11;  // of the mean log-likelihood

/// The root of a function that rises with log x, by bisection: `low` and `high` are logarithms and
/// move outwards until they enclose it, at most to e^+-60.
template <class F>
double rising_root(F f, double low, double high) {
  while (low > -60 && f(std::exp(low)) > 0)
    low -= 2;
  while (high < 60 && f(std::exp(high)) < 0)
    high += 2;
  for (int step = 0; step < 80 && high - low > 1e-15; ++step) {
    const double middle = 0.5 * (low + high);
    (f(std::exp(middle)) < 0 ? low : high) = middle;
  }
  return std::exp(0.5 * (low + high));
}

double mean_of_logs(std::span<const double> values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values, double mean) {
  double sum = 0;
  for (const double value : values)
    sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// Logarithms brought to mean 0 and deviation 1, so that one set of starts and bounds fits every
/// sample. A point of the search is (log outer, log inner, location) in these units.
struct Standard {
  double mean{0}, deviation{1};
  std::vector<double> logs;

  explicit Standard(std::span<const double> raw)
      : mean(mean_of_logs(raw)), deviation(deviation_of(raw, mean)), logs(raw.begin(), raw.end()) {
    for (double& log : logs)
      log = (log - mean) / deviation;
  }
};
using Point = std::array<double, 3>;
constexpr Point kLow{-8, -5, -60};
constexpr Point kHigh{12, 5, 60};

struct FamilyObjective {
  Family family;
  std::span<const double> logs;
};

/// The mean log-likelihood of standardised logarithms, turned over: NLopt's callback.
double negative_mean_likelihood(unsigned /*count*/, const double* x, double* /*gradient*/,
                                void* data) {
  const auto& objective = *static_cast<const FamilyObjective*>(data);
  const double outer = std::exp(x[0]), inner = std::exp(x[1]), location = x[2];
  const bool burr = objective.family == Family::kBurrXII;
  double sum = 0;
  for (const double log : objective.logs) {
    const double log_t = inner * (log - location);
    sum += burr ? log_t - (outer + 1) * log1p_exp(log_t)
                : log_t - std::exp(log_t) + (outer - 1) * log_weibull_cdf(log_t);
  }
  const double mean = sum / static_cast<double>(objective.logs.size()) + x[0] + x[1];
  return std::isfinite(mean) ? -mean : 1e300;  // an infinite value would spoil the simplex
}

struct Found {
  Point point{};
  double value{1e300};
};

Result<Found> descend(FamilyObjective objective, Point start, int evaluations) {
  const std::unique_ptr<nlopt_opt_s, decltype(&nlopt_destroy)> search(
      nlopt_create(NLOPT_LN_NELDERMEAD, 3), &nlopt_destroy);
  if (!search)
    return Error{Code::kInternal,
                 fmt::format("fit {}: no memory for the search", family_name(objective.family))};
  nlopt_set_min_objective(search.get(), negative_mean_likelihood, &objective);
  nlopt_set_lower_bounds(search.get(), kLow.data());
  nlopt_set_upper_bounds(search.get(), kHigh.data());
  nlopt_set_initial_step1(search.get(), 0.5);
  nlopt_set_ftol_abs(search.get(), kTolerance);
  nlopt_set_maxeval(search.get(), evaluations);
  for (std::size_t i = 0; i < start.size(); ++i)
    start[i] = std::clamp(start[i], kLow[i], kHigh[i]);
  Found found{start, 1e300};
  const nlopt_result code = nlopt_optimize(search.get(), found.point.data(), &found.value);
  // Rounding that stops progress leaves the best point so far.
  if (code < 0 && code != NLOPT_ROUNDOFF_LIMITED)
    return Error{Code::kInternal, fmt::format("fit {}: the search failed with code {}",
                                              family_name(objective.family), int{code})};
  return found;
}

/// Starts with the model's median on the sample's (of standardised logarithms).
std::vector<Point> starts_of(Family family, const Standard& standard) {
  const double median = standard.logs[standard.logs.size() / 2];
  std::vector<Point> starts;
  for (const double outer : {0.2, 1.0, 4.0, 30.0, 1000.0}) {
    for (const double inner : {0.6, 1.3, 2.6}) {
      const Shape shape =
          make_shape(family, family == Family::kBurrXII ? std::vector{inner, outer, 1.0}
                                                        : std::vector{outer, inner, 1.0});
      const double own = std::log(shape_quantile(family, shape, 0.5));
      starts.push_back({std::log(outer), std::log(inner), median - own});
    }
  }
  return starts;
}

}  // namespace

std::vector<double> weibull_parameters(std::span<const double> logs) {
  const double mean = mean_of_logs(logs), largest = logs.back();
  // Sum of x^c log x over sum of x^c, less the mean of log x and 1 / c; x over its largest value.
  const auto slope = [&](double c) {
    double weighted = 0, weights = 0;
    for (const double log : logs) {
      const double weight = std::exp(c * (log - largest));
      weighted += weight * (log - largest);
      weights += weight;
    }
    return weighted / weights + (largest - mean) - 1 / c;
  };
  const double guess = -std::log(deviation_of(logs, mean));
  const double c = rising_root(slope, guess - 1, guess + 1);
  double sum = 0;
  for (const double log : logs)
    sum += std::exp(c * (log - largest));
  return {c, std::exp(largest + std::log(sum / static_cast<double>(logs.size())) / c)};
}

std::vector<double> gamma_parameters(double log_mean, double mean_log) {
  const double gap = log_mean - mean_log;
  const double a = rising_root(
      [&](double x) { return gap - (std::log(x) - boost::math::digamma(x, Quiet())); }, -2, 2);
  return {a, std::exp(log_mean) / a};
}

Result<std::vector<double>> searched_parameters(Family family, std::span<const double> logs) {
  const Standard standard(logs);
  const std::size_t step = (logs.size() + kScreenMax - 1) / kScreenMax;
  std::vector<double> screen;
  for (std::size_t i = step / 2; i < logs.size(); i += step)
    screen.push_back(standard.logs[i]);
  Found best;
  for (const Point& start : starts_of(family, standard)) {
    TRY(const Found found, descend({family, screen}, start, kScreenEvaluations));
    if (found.value < best.value) best = found;
  }
  // Twice: a simplex that has collapsed starts anew.
  for (int round = 0; round < 2; ++round) {
    TRY(best, descend({family, standard.logs}, best.point, kEvaluations));
  }
  const double outer = std::exp(best.point[0]);
  const double inner = std::exp(best.point[1]) / standard.deviation;
  const double scale = std::exp(standard.mean + standard.deviation * best.point[2]);
  if (family == Family::kBurrXII) return std::vector{inner, outer, scale};
  return std::vector{outer, inner, scale};
}

}  // namespace kansoku::stats::internal
