// SPDX-License-Identifier: Apache-2.0
#include "stats/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/numbers.h"
#include "stats/internal/families.h"

namespace kansoku::stats {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
// The open interval (0, 1) of draws in doubles.
constexpr double kLeastU = std::numeric_limits<double>::min();
constexpr double kMostU = 1 - 0x1.0p-53;

struct FamilyRow {
  Family family;
  std::string_view name;
  std::array<std::string_view, 3> parameters;
  std::size_t parameter_count;
};
constexpr std::array kFamilies{
    FamilyRow{Family::kConstant, "constant", {"value"}, 1},
    FamilyRow{Family::kUniform, "uniform", {"low", "high"}, 2},
    FamilyRow{Family::kExponential, "exponential", {"scale"}, 1},
    FamilyRow{Family::kLogNormal, "lognormal", {"sigma", "scale"}, 2},
    FamilyRow{Family::kWeibull, "weibull", {"c", "scale"}, 2},
    FamilyRow{Family::kExponentiatedWeibull, "exponentiated_weibull", {"a", "c", "scale"}, 3},
    FamilyRow{Family::kPareto, "pareto", {"b", "scale"}, 2},
    FamilyRow{Family::kBurrXII, "burr_xii", {"c", "d", "scale"}, 3},
    FamilyRow{Family::kGamma, "gamma", {"a", "scale"}, 2},
    FamilyRow{Family::kEmpirical, "empirical", {}, 0},
    FamilyRow{Family::kLogMixture, "log_mixture", {}, 0},
};
constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    if (static_cast<std::size_t>(kFamilies[i].family) != i) return false;
  return true;
}
static_assert(rows_in_order());

const FamilyRow& row_of(Family family) {
  return kFamilies[static_cast<std::size_t>(family)];
}

bool is_shape(Family family) {
  return family >= Family::kExponential && family <= Family::kGamma;
}

Error out_of_range(Family family, std::string_view name, double value, std::string_view rule) {
  return Error{Code::kCorrupt, fmt::format("distribution {}: {} is {}, not {}", family_name(family),
                                           name, value, rule)};
}

Result<void> check_named(Family family, std::span<const double> parameters) {
  const auto names = parameter_names(family);
  if (parameters.size() != names.size())
    return Error{Code::kCorrupt, fmt::format("distribution {}: {} parameters, not {}",
                                             family_name(family), parameters.size(), names.size())};
  const bool zero_allowed = family == Family::kConstant || family == Family::kUniform;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double value = parameters[i];
    if (std::isfinite(value) && (value > 0 || (zero_allowed && value == 0))) continue;
    return out_of_range(family, names[i], value,
                        zero_allowed ? "a finite number >= 0" : "a finite number > 0");
  }
  if (family == Family::kUniform && !(parameters[0] < parameters[1]))
    return out_of_range(family, "high", parameters[1], "above low");
  return {};
}

Result<void> check_sample(std::span<const double> values) {
  if (values.empty()) return Error{Code::kCorrupt, "distribution empirical: values are empty"};
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) || values[i] < 0)
      return out_of_range(Family::kEmpirical, fmt::format("values[{}]", i), values[i],
                          "a finite number >= 0");
  return {};
}

Result<void> check_mixture(std::span<const double> parameters) {
  const std::size_t k = parameters.size() / 3;
  if (k == 0 || parameters.size() != 3 * k)
    return Error{Code::kCorrupt,
                 fmt::format("distribution log_mixture: {} parameters, not weights, means and "
                             "sigmas of at least one component",
                             parameters.size())};
  constexpr auto kFamily = Family::kLogMixture;
  double sum = 0;
  for (std::size_t i = 0; i < k; ++i) {
    const double weight = parameters[i], mean = parameters[k + i], sigma = parameters[2 * k + i];
    if (!std::isfinite(weight) || weight < 0)
      return out_of_range(kFamily, fmt::format("weights[{}]", i), weight, "a finite number >= 0");
    if (!std::isfinite(mean))
      return out_of_range(kFamily, fmt::format("means[{}]", i), mean, "a finite number");
    if (!std::isfinite(sigma) || sigma <= 0)
      return out_of_range(kFamily, fmt::format("sigmas[{}]", i), sigma, "a finite number > 0");
    sum += weight;
  }
  if (!(std::abs(sum - 1) <= 1e-9))
    return out_of_range(kFamily, "the sum of weights", sum, "1 within 1e-9");
  return {};
}

double logarithm_of_normal_density(double z) {
  return -0.5 * z * z - 0.5 * std::log(2 * std::numbers::pi);
}

}  // namespace

std::string_view family_name(Family family) {
  return row_of(family).name;
}

std::optional<Family> family_from_name(std::string_view name) {
  for (const FamilyRow& row : kFamilies)
    if (row.name == name) return row.family;
  return std::nullopt;
}

std::span<const std::string_view> parameter_names(Family family) {
  const FamilyRow& row = row_of(family);
  return std::span(row.parameters).first(row.parameter_count);
}

Result<Distribution> Distribution::make(Family family, std::vector<double> parameters) {
  if (parameters.size() > kParametersMax)
    return Error{Code::kCorrupt,
                 fmt::format("distribution {}: {} parameters, at most {}", family_name(family),
                             parameters.size(), kParametersMax)};
  if (family == Family::kEmpirical) {
    TRY_VOID(check_sample(parameters));
    std::sort(parameters.begin(), parameters.end());
  } else if (family == Family::kLogMixture) {
    TRY_VOID(check_mixture(parameters));
  } else {
    TRY_VOID(check_named(family, parameters));
  }
  Distribution made;
  made.family_ = family;
  made.parameters_ = std::move(parameters);
  made.prepare();
  return made;
}

Distribution Distribution::constant(double value) {
  auto made = make(Family::kConstant, {value});
  CHECK(made.has_value());
  return std::move(made).value();
}

Distribution Distribution::exponential(double mean) {
  auto made = make(Family::kExponential, {mean});
  CHECK(made.has_value());
  return std::move(made).value();
}

Result<Distribution> Distribution::with_zero_share(double share) const {
  if (!(share >= 0 && share <= 1)) return out_of_range(family_, "zero_share", share, "in 0..1");
  Distribution made = *this;
  made.zero_share_ = share;
  return made;
}

Result<Distribution> Distribution::capped(double cap) const {
  if (!(cap >= 0)) return out_of_range(family_, "cap", cap, "a number >= 0");
  if (cap >= cap_) return *this;
  Distribution made = *this;
  made.cap_ = cap;
  made.prepare();
  if (!(made.below_cap_ > 0))
    return out_of_range(family_, "cap", cap, "above the least value that can be drawn");
  const double rest = (1 - zero_share_) * (made.below_cap_ / below_cap_);
  made.zero_share_ = zero_share_ / (zero_share_ + rest);
  return made;
}

/// Everything that draws need and that parameters_ and cap_ imply.
void Distribution::prepare() {
  if (is_shape(family_)) shape_ = internal::make_shape(family_, parameters_);
  below_cap_ = cap_ == kInfinity ? 1 : family_cdf(cap_);
  if (family_ != Family::kLogMixture || !(below_cap_ > 0)) return;
  slices_.clear();
  const std::size_t k = parameters_.size() / 3;
  const std::span<const double> weights(parameters_.data(), k);
  const double log_cap = std::log(cap_);
  double total = 0;
  for (std::size_t i = 0; i < k; ++i) {
    internal::Slice slice{.mean = parameters_[k + i], .sigma = parameters_[2 * k + i]};
    slice.below_cap = normal_cdf((log_cap - slice.mean) / slice.sigma);
    slice.begin = total;
    total += weights[i] * slice.below_cap;
    slice.end = total;
    if (slice.end > slice.begin) slices_.push_back(slice);
  }
  for (internal::Slice& slice : slices_) {
    slice.begin /= total;
    slice.end /= total;
    slice.weight_inverse = 1 / (slice.end - slice.begin);
  }
  // Four entries a slice: the scan from a guide's entry then takes one step or none, mostly.
  guide_.resize(std::bit_ceil(std::clamp<std::size_t>(4 * slices_.size(), 4, 65536)));
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < guide_.size(); ++i) {
    const double u = static_cast<double>(i) / static_cast<double>(guide_.size());
    while (first + 1 < slices_.size() && slices_[first].end <= u)
      ++first;
    guide_[i] = first;
  }
}

/// The family's own, without zero share and cap.
double Distribution::family_cdf(double x) const {
  const auto& p = parameters_;
  if (family_ == Family::kConstant) return x >= p[0] ? 1 : 0;
  if (family_ == Family::kUniform) return std::clamp((x - p[0]) / (p[1] - p[0]), 0.0, 1.0);
  if (family_ == Family::kEmpirical) {
    const auto above = std::upper_bound(p.begin(), p.end(), x);
    return static_cast<double>(above - p.begin()) / static_cast<double>(p.size());
  }
  if (!(x > 0)) return 0;
  if (family_ != Family::kLogMixture) return internal::shape_cdf(family_, shape_, x);
  const std::size_t k = p.size() / 3;
  const double log_x = std::log(x);
  double below = 0, total = 0;
  for (std::size_t i = 0; i < k; ++i) {
    below += p[i] * normal_cdf((log_x - p[k + i]) / p[2 * k + i]);
    total += p[i];
  }
  return below / total;
}

double Distribution::cdf(double x) const {
  if (x < 0) return 0;
  if (x >= cap_) return 1;
  const double share = std::min(1.0, family_cdf(x) / below_cap_);
  return zero_share_ + (1 - zero_share_) * share;
}

double Distribution::log_density(double x) const {
  if (family_ == Family::kConstant || family_ == Family::kEmpirical)
    return std::numeric_limits<double>::quiet_NaN();
  if (!(x > 0) || x > cap_ || x == kInfinity) return -kInfinity;
  const double cut = std::log(below_cap_);
  if (is_shape(family_)) return internal::shape_log_density(family_, shape_, x) - cut;
  if (family_ == Family::kUniform) {
    const double low = parameters_[0], high = parameters_[1];
    return x < low || x > high ? -kInfinity : -std::log(high - low) - cut;
  }
  const std::size_t k = parameters_.size() / 3;
  const double log_x = std::log(x);
  const auto term = [&](std::size_t i) {
    const double sigma = parameters_[2 * k + i];
    return std::log(parameters_[i] / sigma) +
           logarithm_of_normal_density((log_x - parameters_[k + i]) / sigma);
  };
  double largest = -kInfinity;
  for (std::size_t i = 0; i < k; ++i)
    largest = std::max(largest, term(i));
  if (largest == -kInfinity) return -kInfinity;
  double sum = 0;
  for (std::size_t i = 0; i < k; ++i)
    sum += std::exp(term(i) - largest);
  return largest + std::log(sum) - log_x - cut;
}

/// `u` in (0, 1) and of the family itself: a cap has scaled it already.
double Distribution::family_quantile(double u) const {
  const auto& p = parameters_;
  if (is_shape(family_)) return internal::shape_quantile(family_, shape_, u);
  if (family_ == Family::kConstant) return p[0];
  if (family_ == Family::kUniform) return p[0] + u * (p[1] - p[0]);
  if (family_ == Family::kLogMixture) return mixture_quantile(u);
  const double n = static_cast<double>(p.size());
  const auto rank = static_cast<std::size_t>(std::ceil(u * n));
  // u * n is rounded: the value is that whose share, as cdf() rounds it, is the first >= u.
  std::size_t index = std::clamp<std::size_t>(rank, 1, p.size()) - 1;
  while (index > 0 && static_cast<double>(index) / n >= u)
    --index;
  while (index + 1 < p.size() && static_cast<double>(index + 1) / n < u)
    ++index;
  return p[index];
}

/// Newton's method inside a bracket, on the logarithm. The quantile of a mixture lies between the
/// least and the largest of its components' quantiles.
double Distribution::mixture_quantile(double u) const {
  const std::size_t k = parameters_.size() / 3;
  const double z = normal_quantile(u);
  double low = kInfinity, high = -kInfinity;
  for (std::size_t i = 0; i < k; ++i) {
    if (parameters_[i] <= 0) continue;
    const double own = parameters_[k + i] + parameters_[2 * k + i] * z;
    low = std::min(low, own);
    high = std::max(high, own);
  }
  double y = 0.5 * (low + high), change = high - low;
  for (int step = 0; step < 400; ++step) {
    // From the nearer tail, so that neither loses its digits.
    double tail = 0, density = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const double at = (y - parameters_[k + i]) / parameters_[2 * k + i];
      tail += parameters_[i] * normal_cdf(u < 0.5 ? at : -at);
      density +=
          parameters_[i] / parameters_[2 * k + i] * std::exp(logarithm_of_normal_density(at));
    }
    // On the logarithm of the tail, which is nearly a parabola however far out.
    const double excess = std::log(tail / (u < 0.5 ? u : 1 - u)) * (u < 0.5 ? 1 : -1);
    (excess < 0 ? low : high) = y;
    const double newton = y - excess * tail / density;
    // Newton's steps may bounce between two sides of the root: each has to be half the one before.
    const bool good = newton > low && newton < high && std::abs(newton - y) <= 0.5 * change;
    const double next = good ? newton : 0.5 * (low + high);
    change = std::abs(next - y);
    y = next;
    if (change <= 1e-15 * std::max(1.0, std::abs(y))) break;
  }
  return std::exp(y);
}

double Distribution::mixture_draw(double u) const {
  const auto last = static_cast<std::uint32_t>(slices_.size() - 1);
  std::uint32_t i = guide_[static_cast<std::size_t>(u * static_cast<double>(guide_.size()))];
  while (i < last && slices_[i].end <= u)
    ++i;
  const internal::Slice& slice = slices_[i];
  const double inside = std::clamp((u - slice.begin) * slice.weight_inverse, 0x1.0p-54, kMostU);
  return std::exp(slice.mean +
                  slice.sigma * normal_quantile(std::max(kLeastU, inside * slice.below_cap)));
}

double Distribution::quantile(double u) const {
  if (u <= zero_share_) return 0;
  if (zero_share_ > 0) u = (u - zero_share_) / (1 - zero_share_);
  return std::min({family_quantile(std::clamp(u * below_cap_, kLeastU, kMostU)), cap_, kLargest});
}

double Distribution::draw(double u) const {
  if (family_ != Family::kLogMixture) return quantile(u);
  if (u <= zero_share_) return 0;
  if (zero_share_ > 0) u = (u - zero_share_) / (1 - zero_share_);
  return std::min({mixture_draw(std::clamp(u, kLeastU, kMostU)), cap_, kLargest});
}

double Distribution::mean() const {
  const auto& p = parameters_;
  double mean = 0;
  if (is_shape(family_)) {
    mean = internal::shape_mean(family_, shape_, cap_, below_cap_);
  } else if (family_ == Family::kConstant) {
    mean = p[0];
  } else if (family_ == Family::kUniform) {
    mean = p[0] + 0.5 * (std::min(p[1], cap_) - p[0]);
  } else if (family_ == Family::kEmpirical) {
    const auto end = std::upper_bound(p.begin(), p.end(), cap_);
    for (auto value = p.begin(); value != end; ++value)
      mean += *value / static_cast<double>(end - p.begin());
  } else {
    for (const internal::Slice& slice : slices_)
      mean += (slice.end - slice.begin) *
              internal::lognormal_mean(slice.mean, slice.sigma, std::log(cap_));
  }
  return zero_share_ == 1 ? 0 : (1 - zero_share_) * mean;
}

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * (1 / std::numbers::sqrt2));
}

}  // namespace kansoku::stats
