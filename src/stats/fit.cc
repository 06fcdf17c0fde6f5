// SPDX-License-Identifier: Apache-2.0
#include "stats/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "common/rng.h"
#include "stats/internal/search.h"
#include "stats/mixture.h"

namespace kansoku::stats {
namespace {

constexpr std::size_t kValuesMin = 5;
constexpr double kVarianceFloor = 1e-4;  // of a component, on the logarithm

/// Sample that the families are fitted to: values > 0, ascending, and their logarithms.
struct Sample {
  std::vector<double> values, logs;
  double zero_share{0};
};

Error fit_error(Code code, Family family, std::string_view what) {
  return Error{code, fmt::format("fit {}: {}", family_name(family), what)};
}

Result<void> check_values(std::span<const double> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) || values[i] < 0)
      return Error{Code::kCorrupt, fmt::format("fit a distribution: value {} is {}, not a finite "
                                               "number >= 0",
                                               i, values[i])};
  return {};
}

Result<Sample> make_sample(Family family, std::span<const double> values) {
  TRY_VOID(check_values(values));
  Sample sample;
  std::copy_if(values.begin(), values.end(), std::back_inserter(sample.values),
               [](double value) { return value > 0; });
  const std::size_t count = sample.values.size();
  if (count < kValuesMin)
    return fit_error(Code::kLimit, family,
                     fmt::format("{} values > 0, at least {}", count, kValuesMin));
  // Sums over sorted values do not depend on the order of the input.
  std::sort(sample.values.begin(), sample.values.end());
  for (const double value : sample.values)
    sample.logs.push_back(std::log(value));
  const bool spread = family != Family::kConstant && family != Family::kEmpirical;
  if (spread && !(sample.logs.front() < sample.logs.back()))
    return fit_error(Code::kLimit, family, "all values > 0 are the same");
  sample.zero_share =
      static_cast<double>(values.size() - count) / static_cast<double>(values.size());
  return sample;
}

double overflow_safe_mean(std::span<const double> values) {
  // Divided before they are added: the sum may overflow where the mean does not.
  const double n = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values)
    mean += value / n;
  return mean;
}

/// The first `count` entries of a random order of 0 .. size - 1.
std::vector<std::size_t> random_indices(std::size_t size, std::size_t count, std::uint64_t seed,
                                        std::string_view purpose) {
  std::vector<std::size_t> indices(size);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  RandomStream random(seed, purpose);
  for (std::size_t i = 0; i < count; ++i)
    std::swap(indices[i], indices[i + random.below(size - i)]);
  indices.resize(count);
  return indices;
}

/// `values` (ascending), or a random `count` of them, ascending.
std::vector<double> subsample(std::span<const double> values, std::size_t count,
                              std::uint64_t seed) {
  if (values.size() <= count) return {values.begin(), values.end()};
  std::vector<std::size_t> indices = random_indices(values.size(), count, seed, "fit.subsample");
  std::sort(indices.begin(), indices.end());
  std::vector<double> picked;
  picked.reserve(indices.size());
  for (const std::size_t index : indices)
    picked.push_back(values[index]);
  return picked;
}

std::vector<double> lognormal_parameters(const Sample& sample) {
  const double mean = overflow_safe_mean(sample.logs);
  double sum = 0;
  for (const double log : sample.logs)
    sum += (log - mean) * (log - mean);
  return {std::sqrt(sum / static_cast<double>(sample.logs.size())), std::exp(mean)};
}

std::vector<double> pareto_parameters(const Sample& sample) {
  double sum = 0;  // of differences: > 0 however close the values are
  for (const double log : sample.logs)
    sum += log - sample.logs.front();
  return {static_cast<double>(sample.logs.size()) / sum, sample.values.front()};
}

Result<std::vector<double>> searched(Family family, const Sample& sample,
                                     const FitOptions& options) {
  const std::vector<double> logs = subsample(sample.logs, kSearchValuesMax, options.seed);
  if (!(logs.front() < logs.back()))
    return fit_error(Code::kLimit, family, "all values of the subsample are the same");
  return internal::searched_parameters(family, logs);
}

Result<std::vector<double>> mixture_parameters(const Sample& sample, const FitOptions& options) {
  const std::vector<double> logs =
      subsample(sample.logs, options.mixture_subsample_max, options.seed);
  MixtureOptions how;
  how.components = options.components;
  how.start = MixtureOptions::Start::kQuantiles;
  how.iterations_max = options.mixture_iterations;
  how.ridge = kVarianceFloor;
  how.seed = options.seed;
  TRY(const MixtureFit fitted, fit_mixture(logs, 1, how));
  std::vector<double> parameters = fitted.mixture.weights;
  const double sum = std::accumulate(parameters.begin(), parameters.end(), 0.0);
  for (double& weight : parameters)
    weight /= sum;
  parameters.insert(parameters.end(), fitted.mixture.means.begin(), fitted.mixture.means.end());
  for (const double variance : fitted.mixture.covariances)
    parameters.push_back(std::sqrt(variance));
  return parameters;
}

Result<std::vector<double>> parameters_of(Family family, const Sample& sample,
                                          const FitOptions& options) {
  switch (family) {
    case Family::kConstant:
    case Family::kExponential:
      return std::vector{overflow_safe_mean(sample.values)};
    case Family::kUniform:
      return std::vector{sample.values.front(), sample.values.back()};
    case Family::kLogNormal:
      return lognormal_parameters(sample);
    case Family::kWeibull:
      return internal::weibull_parameters(sample.logs);
    case Family::kPareto:
      return pareto_parameters(sample);
    case Family::kGamma:
      return internal::gamma_parameters(std::log(overflow_safe_mean(sample.values)),
                                        overflow_safe_mean(sample.logs));
    case Family::kExponentiatedWeibull:
    case Family::kBurrXII:
      return searched(family, sample, options);
    case Family::kEmpirical:
      return sample.values;
    case Family::kLogMixture:
      return mixture_parameters(sample, options);
  }
  return fit_error(Code::kInternal, family, "unknown family");
}

double free_parameters(const Distribution& distribution) {
  const double count = static_cast<double>(distribution.parameters().size());
  return distribution.family() == Family::kLogMixture ? count - 1 : count;  // the weights' sum is 1
}

/// kConstant and kEmpirical jump; the others do so at most at 0.
double cdf_before(const Distribution& distribution, double x) {
  const Family family = distribution.family();
  const bool jumps = x == 0 || family == Family::kConstant || family == Family::kEmpirical;
  const double before = std::nextafter(x, -std::numeric_limits<double>::infinity());
  return distribution.cdf(jumps ? before : x);
}

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// Fitted on the first part of `order`, judged on the rest; nothing if the first part cannot be
/// fitted.
std::optional<double> judge(Family family, std::span<const double> order, std::size_t first,
                            const FitOptions& options) {
  const auto fitted = fit(family, order.first(first), options);
  if (!fitted) return std::nullopt;
  return ks_distance(order.subspan(first), fitted->distribution);
}

bool before(const Judged& a, const Judged& b) {
  const auto rank = [](const Judged& judged) {
    if (judged.fit.distribution.family() == Family::kEmpirical) return 2;
    return std::isfinite(judged.fit.aic) ? 0 : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 0 && a.fit.aic != b.fit.aic) return a.fit.aic < b.fit.aic;
  return family_name(a.fit.distribution.family()) < family_name(b.fit.distribution.family());
}

}  // namespace

Result<Fit> fit(Family family, std::span<const double> values, const FitOptions& options) {
  TRY(const Sample sample, make_sample(family, values));
  TRY(std::vector<double> parameters, parameters_of(family, sample, options));
  const auto made = Distribution::make(family, std::move(parameters));
  // Values hundreds of decades apart have an optimum that no double can hold.
  if (!made) return fit_error(Code::kLimit, family, made.error().what);
  const Distribution& positive = *made;
  TRY(Distribution whole, positive.with_zero_share(sample.zero_share));
  Fit fitted{.distribution = std::move(whole), .values = sample.values.size()};
  for (const double value : sample.values)
    fitted.log_likelihood += positive.log_density(value);
  fitted.aic = 2 * free_parameters(positive) - 2 * fitted.log_likelihood;
  fitted.ks = ks_distance(values, fitted.distribution);
  fitted.mean_infinite = std::isinf(positive.mean());
  return fitted;
}

Result<Choice> choose(std::span<const Family> families, std::span<const double> values,
                      double held_out, const FitOptions& options) {
  if (!(held_out > 0 && held_out < 1))
    return Error{Code::kCorrupt,
                 fmt::format("choose a family: held_out is {}, not in (0, 1)", held_out)};
  TRY_VOID(check_values(values));
  const std::vector<double> sorted = sorted_copy(values);
  const std::size_t count = sorted.size();
  std::vector<double> order;
  for (const std::size_t index : random_indices(count, count, options.seed, "fit.held_out"))
    order.push_back(sorted[index]);
  const auto unseen = static_cast<std::size_t>(std::round(held_out * static_cast<double>(count)));
  Choice choice;
  for (const Family family : families) {
    if (unseen == 0 || unseen == count) break;
    auto whole = fit(family, sorted, options);
    if (!whole) continue;
    const auto ks = judge(family, order, count - unseen, options);
    if (ks) choice.candidates.push_back({std::move(whole).value(), *ks});
  }
  if (choice.candidates.empty())
    return Error{Code::kLimit, fmt::format("choose a family: none of {} can be fitted to {} values",
                                           families.size(), count)};
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(), before);
  return choice;
}

double ks_distance(std::span<const double> values, const Distribution& distribution) {
  const std::vector<double> sorted = sorted_copy(values);
  const double n = static_cast<double>(sorted.size());
  double largest = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[i])
      ++end;
    const double below = cdf_before(distribution, sorted[i]), at = distribution.cdf(sorted[i]);
    largest = std::max({largest, std::abs(below - static_cast<double>(i) / n),
                        std::abs(at - static_cast<double>(end) / n)});
    i = end;
  }
  return largest;
}

double ks_distance(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> first = sorted_copy(a), second = sorted_copy(b);
  const double n = static_cast<double>(first.size()), m = static_cast<double>(second.size());
  double largest = 0;
  for (std::size_t i = 0, j = 0; i < first.size() && j < second.size();) {
    const double x = std::min(first[i], second[j]);
    while (i < first.size() && first[i] == x)
      ++i;
    while (j < second.size() && second[j] == x)
      ++j;
    largest = std::max(largest, std::abs(static_cast<double>(i) / n - static_cast<double>(j) / m));
  }
  return largest;
}

std::vector<QqPoint> qq_points(std::span<const double> values, const Distribution& distribution,
                               std::size_t points) {
  std::vector<QqPoint> pairs;
  if (values.empty()) return pairs;
  const std::vector<double> sorted = sorted_copy(values);
  for (std::size_t i = 0; i < points; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(points);
    // The rank is share * n rounded up; in integers, where the product is exact.
    const std::size_t rank = ((2 * i + 1) * sorted.size() + 2 * points - 1) / (2 * points);
    pairs.push_back({distribution.quantile(share), sorted[rank - 1]});
  }
  return pairs;
}

double index_of_dispersion(std::span<const double> counts) {
  if (counts.empty()) return 0;
  const double mean = overflow_safe_mean(counts);
  double sum = 0;
  for (const double count : counts)
    sum += (count - mean) * (count - mean);
  return mean == 0 ? 0 : sum / static_cast<double>(counts.size()) / mean;
}

double autocorrelation(std::span<const double> values, std::size_t lag) {
  if (lag >= values.size()) return 0;
  const double mean = overflow_safe_mean(values);
  double lagged = 0, own = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    own += (values[i] - mean) * (values[i] - mean);
    if (i + lag < values.size()) lagged += (values[i] - mean) * (values[i + lag] - mean);
  }
  return own == 0 ? 0 : lagged / own;
}

}  // namespace kansoku::stats
