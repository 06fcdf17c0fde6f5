// SPDX-License-Identifier: Apache-2.0
#include "stats/counts.h"

#include <fmt/format.h>
#include <nlopt.h>
#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/gamma.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "stats/internal/policy.h"

namespace kansoku::stats {
namespace {

using internal::Quiet;

constexpr std::int64_t kTrialsMax = 100'000'000;
constexpr std::size_t kWindowsMin = 10;
/// Below it the logarithms of gamma functions cancel, and no data tell it from 0.
constexpr double kCorrelationMin = 1e-6;

double log_gamma(double x) {
  return boost::math::lgamma(x, Quiet());
}

double log_beta(double a, double b) {
  return log_gamma(a) + log_gamma(b) - log_gamma(a + b);
}

/// The sum of the masses from `hits` up. Each is the one before times a ratio, so only the first
/// needs gamma functions; it may be far below what a double can hold while those after it are not.
double sum_from(std::int64_t hits, std::int64_t trials, double alpha, double beta) {
  const auto n = static_cast<double>(trials);
  auto k = static_cast<double>(hits);
  double log_scale = log_beta(alpha + k, beta + n - k) - log_beta(alpha, beta) + log_gamma(n + 1) -
                     log_gamma(k + 1) - log_gamma(n - k + 1);
  constexpr double kLarge = 1e200, kNegligible = 1e-18;
  // With a parameter below 1 the masses may rise again towards the end.
  const bool one_hill = alpha >= 1 && beta >= 1;
  double term = 1, sum = 0;
  for (; k <= n; k += 1) {
    sum += term;
    const double ratio = (n - k) / (k + 1) * (alpha + k) / (beta + n - k - 1);
    if (one_hill && ratio < 1 && term * ratio < kNegligible * (1 - ratio) * sum) break;
    term *= ratio;
    if (sum < kLarge && term < kLarge) continue;
    sum /= kLarge;
    term /= kLarge;
    log_scale += std::log(kLarge);
  }
  return std::min(1.0, std::exp(log_scale + std::log(sum)));
}

/// Equal windows once, with how many there are.
using Grouped = std::map<std::pair<std::int64_t, std::int64_t>, double>;

double log_likelihood(const Grouped& windows, double mean, double correlation) {
  const double total = (1 - correlation) / correlation;
  const double alpha = mean * total, beta = (1 - mean) * total;
  const double constant = log_beta(alpha, beta);
  double sum = 0;
  for (const auto& [window, count] : windows) {
    const auto k = static_cast<double>(window.first), n = static_cast<double>(window.second);
    sum += count * (log_beta(alpha + k, beta + n - k) - constant);
  }
  return sum;
}

struct Totals {
  double hits{0}, trials{0};
  std::size_t windows{0};
};

/// Kleinman's estimate with weights in proportion to the trials, inside the searched range.
double moment_correlation(const Grouped& windows, const Totals& totals) {
  const double mean = totals.hits / totals.trials;
  double squares = 0, trials_squared = 0;
  for (const auto& [window, count] : windows) {
    const auto k = static_cast<double>(window.first), n = static_cast<double>(window.second);
    squares += count * n * (k / n - mean) * (k / n - mean);
    trials_squared += count * n * n;
  }
  const auto m = static_cast<double>(totals.windows);
  const double variance = mean * (1 - mean);
  const double spread = totals.trials - trials_squared / totals.trials - (m - 1);
  const double estimate = spread > 0 ? (squares / variance - (m - 1)) / spread : 0;
  return std::clamp(estimate, 1e-4, 0.9);
}

double logit(double p) {
  return std::log(p) - std::log1p(-p);
}

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

struct CountObjective {
  const Grouped& windows;
  double trials;
};

extern "C" double negative_likelihood(unsigned, const double* at, double*, void* data) {
  const auto& objective = *static_cast<const CountObjective*>(data);
  const double value =
      log_likelihood(objective.windows, logistic(at[0]), logistic(at[1])) / objective.trials;
  return std::isfinite(value) ? -value : 1e300;
}

/// Over the logits of mean and correlation.
Result<BetaBinomial> search_from(const BetaBinomial& start, const CountObjective& objective) {
  const std::unique_ptr<nlopt_opt_s, void (*)(nlopt_opt)> search(
      nlopt_create(NLOPT_LN_NELDERMEAD, 2), &nlopt_destroy);
  if (!search) return Error{Code::kInternal, "fit counts: no memory for the search"};
  constexpr double kReach = 30;
  constexpr int kEvaluations = 400;
  const std::array<double, 2> low{-kReach, logit(kCorrelationMin)}, high{kReach, logit(0.999)};
  CountObjective data = objective;
  nlopt_set_min_objective(search.get(), negative_likelihood, &data);
  nlopt_set_lower_bounds(search.get(), low.data());
  nlopt_set_upper_bounds(search.get(), high.data());
  nlopt_set_initial_step1(search.get(), 0.5);
  nlopt_set_xtol_abs1(search.get(), 1e-7);
  nlopt_set_maxeval(search.get(), kEvaluations);
  std::array<double, 2> at{logit(start.mean), logit(start.correlation)};
  for (std::size_t i = 0; i < at.size(); ++i)
    at[i] = std::clamp(at[i], low[i], high[i]);
  double value = 0;
  const nlopt_result code = nlopt_optimize(search.get(), at.data(), &value);
  if (code < 0 && code != NLOPT_ROUNDOFF_LIMITED)
    return Error{Code::kInternal,
                 fmt::format("fit counts: the search failed with code {}", int{code})};
  return BetaBinomial{logistic(at[0]), logistic(at[1])};
}

Result<Totals> group(std::span<const CountWindow> windows, Grouped& grouped) {
  Totals totals;
  for (const CountWindow& window : windows) {
    if (window.trials < 0 || window.hits < 0 || window.hits > window.trials) {
      return Error{Code::kCorrupt, fmt::format("fit counts: a window has {} hits of {} trials",
                                               window.hits, window.trials)};
    }
    if (window.trials == 0) continue;
    grouped[{window.hits, window.trials}] += 1;
    totals.hits += static_cast<double>(window.hits);
    totals.trials += static_cast<double>(window.trials);
    ++totals.windows;
  }
  if (totals.windows < kWindowsMin) {
    return Error{Code::kLimit,
                 fmt::format("fit counts: {} windows have trials, {} are needed", totals.windows,
                             kWindowsMin),
                 "gather more windows"};
  }
  return totals;
}

}  // namespace

Result<double> BetaBinomial::at_least(std::int64_t hits, std::int64_t trials) const {
  if (!(mean >= 0 && mean <= 1) || !(correlation >= 0 && correlation < 1) || trials < 0) {
    return Error{Code::kUnsupported,
                 fmt::format("tail of counts: mean {}, correlation {}, {} trials", mean,
                             correlation, trials)};
  }
  if (trials > kTrialsMax) {
    return Error{Code::kLimit,
                 fmt::format("tail of counts: {} trials, not up to {}", trials, kTrialsMax)};
  }
  if (hits <= 0) return 1.0;
  if (hits > trials || mean == 0) return 0.0;
  if (mean == 1) return 1.0;
  if (correlation < kCorrelationMin) {
    return boost::math::ibeta(static_cast<double>(hits), static_cast<double>(trials - hits + 1),
                              mean, Quiet());
  }
  const double total = (1 - correlation) / correlation;
  return sum_from(hits, trials, mean * total, (1 - mean) * total);
}

Result<CountFit> fit_counts(std::span<const CountWindow> windows) {
  Grouped grouped;
  TRY(const Totals totals, group(windows, grouped));
  const double misses = totals.trials - totals.hits;
  if (totals.hits == 0 || misses == 0) {
    const double mean = (totals.hits + 0.5) / (totals.trials + 1);
    return CountFit{{mean, 0}, totals.hits * std::log(mean) + misses * std::log1p(-mean)};
  }
  const double mean = totals.hits / totals.trials;
  CountFit binomial{{mean, 0}, totals.hits * std::log(mean) + misses * std::log1p(-mean)};
  TRY(const BetaBinomial spread,
      search_from({mean, moment_correlation(grouped, totals)}, {grouped, totals.trials}));
  const double found = log_likelihood(grouped, spread.mean, spread.correlation);
  // A gain within the rounding error of the gamma functions counts as none.
  constexpr double kGain = 1e-6;
  if (spread.correlation <= 2 * kCorrelationMin || !(found > binomial.log_likelihood + kGain))
    return binomial;
  return CountFit{spread, found};
}

}  // namespace kansoku::stats
