// SPDX-License-Identifier: Apache-2.0
#include "stats/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>

#include "common/check.h"
#include "stats/internal/cholesky.h"
#include "stats/internal/mixture/mixture_blocks.h"

namespace kansoku::stats {
namespace {

constexpr double kWeightSumTolerance = 1e-9;
constexpr double kSymmetryTolerance = 1e-9;

Error bad_mixture(std::string what) {
  return Error{Code::kCorrupt, "read mixture: " + std::move(what)};
}

Result<std::vector<double>> read_numbers(const Json& untrusted, std::string_view key,
                                         std::size_t count) {
  const Json array = untrusted.at(key);
  if (!array.is_array() || array.size() != count) {
    return bad_mixture(fmt::format("\"{}\" has to be an array of {} numbers", key, count));
  }
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Json value = array.at(i);
    values[i] = value.as_double();
    if (!value.is_number() || !std::isfinite(values[i]))
      return bad_mixture(fmt::format("\"{}\"[{}] is not a finite number", key, i));
  }
  return values;
}

Result<void> check_weights(const std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (weights[k] < 0) return bad_mixture(fmt::format("\"weights\"[{}] is negative", k));
    sum += weights[k];
  }
  if (std::abs(sum - 1) > kWeightSumTolerance)
    return bad_mixture(fmt::format("\"weights\" sum to {} instead of 1", sum));
  return {};
}

Result<void> check_symmetry(const Mixture& mixture) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  for (std::size_t k = 0; k < mixture.weights.size(); ++k) {
    const double* matrix = mixture.covariances.data() + k * d * d;
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const double scale =
            std::sqrt(std::abs(matrix[i * d + i])) * std::sqrt(std::abs(matrix[j * d + j]));
        if (std::abs(matrix[i * d + j] - matrix[j * d + i]) > kSymmetryTolerance * scale)
          return bad_mixture(fmt::format("covariance of component {} is not symmetric", k));
      }
    }
  }
  return {};
}

}  // namespace

Json Mixture::to_json() const {
  return Json::object()
      .set("dimensions", dimensions)
      .set("weights", Json::array_of(weights))
      .set("means", Json::array_of(means))
      .set("covariances", Json::array_of(covariances));
}

Result<Mixture> Mixture::from_json(const Json& untrusted) {
  const std::int64_t dimensions = untrusted.at("dimensions").as_int();
  if (dimensions < 1 || dimensions > internal::kDimensionsMax) {
    return bad_mixture(
        fmt::format("\"dimensions\" has to be a number from 1 to {}", internal::kDimensionsMax));
  }
  const std::size_t components = untrusted.at("weights").size();
  if (components < 1 || components > internal::kComponentsMax) {
    return bad_mixture(
        fmt::format("\"weights\" has to be an array of 1 to {} numbers", internal::kComponentsMax));
  }
  const auto d = static_cast<std::size_t>(dimensions);
  Mixture mixture;
  mixture.dimensions = static_cast<int>(dimensions);
  TRY(mixture.weights, read_numbers(untrusted, "weights", components));
  TRY(mixture.means, read_numbers(untrusted, "means", components * d));
  TRY(mixture.covariances, read_numbers(untrusted, "covariances", components * d * d));
  TRY_VOID(check_weights(mixture.weights));
  TRY_VOID(check_symmetry(mixture));
  internal::PreparedMixture prepared;
  if (const auto failed = internal::prepare(mixture, prepared)) {
    return bad_mixture(
        fmt::format("covariance of component {} is not positive definite", failed->component));
  }
  return mixture;
}

Result<MixtureDensity> MixtureDensity::make(Mixture mixture) {
  internal::check_shape(mixture);
  MixtureDensity density(std::move(mixture));
  internal::PreparedMixture prepared;
  if (const auto failed = internal::prepare(density.mixture_, prepared)) {
    return Error{Code::kCorrupt,
                 fmt::format("prepare mixture: covariance of component {} is not positive definite",
                             failed->component)};
  }
  density.factors_ = std::move(prepared.factors);
  density.inverse_factors_ = std::move(prepared.inverse_factors);
  density.log_constants_ = std::move(prepared.log_constants);
  double sum = 0;
  for (const double weight : density.mixture_.weights)
    density.cumulative_.push_back(sum += weight);
  return density;
}

void MixtureDensity::log_density(std::span<const double> rows, std::span<double> out) const {
  const auto d = static_cast<std::size_t>(mixture_.dimensions);
  CHECK(rows.size() == out.size() * d);
  const internal::KernelModel model{mixture_.weights.size(), d, mixture_.means.data(),
                                    inverse_factors_.data(), log_constants_.data()};
  internal::BlockWalker walker(model.components, d);
  for (std::size_t begin = 0; begin < out.size(); begin += internal::kBlockRows) {
    const std::size_t count = std::min(internal::kBlockRows, out.size() - begin);
    walker.load(rows.subspan(begin * d, count * d));
    walker.log_terms(model);
    const std::span<const double> values = walker.log_sums();
    std::copy(values.begin(), values.end(), out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

void MixtureDensity::component_log_densities(std::span<const double> row,
                                             std::span<double> out) const {
  const auto d = static_cast<std::size_t>(mixture_.dimensions);
  CHECK(row.size() == d && out.size() == mixture_.weights.size());
  const internal::KernelModel model{out.size(), d, mixture_.means.data(), inverse_factors_.data(),
                                    log_constants_.data()};
  internal::BlockWalker walker(model.components, d);
  walker.load(row);
  walker.log_terms(model);
  for (std::size_t k = 0; k < out.size(); ++k)
    out[k] = walker.terms()[k * internal::kStride];
}

void MixtureDensity::draw(RandomStream& random, std::span<double> out) const {
  const auto d = static_cast<std::size_t>(mixture_.dimensions);
  CHECK(out.size() == d);
  const double pick = random.uniform() * cumulative_.back();
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), pick);
  const std::size_t k =
      std::min(static_cast<std::size_t>(found - cumulative_.begin()), cumulative_.size() - 1);
  // Box and Muller; both numbers of a pair are used, so d values take 2 * ceil(d / 2) uniforms.
  for (std::size_t i = 0; i < d; i += 2) {
    const double radius = std::sqrt(-2 * std::log(random.uniform()));
    const double angle = 2 * std::numbers::pi * random.uniform();
    out[i] = radius * std::cos(angle);
    if (i + 1 < d) out[i + 1] = radius * std::sin(angle);
  }
  const double* factor = factors_.data() + k * d * d;
  const double* mean = mixture_.means.data() + k * d;
  for (std::size_t i = d; i-- > 0;) {  // downwards: row i needs the values up to i only
    double value = mean[i];
    for (std::size_t j = 0; j <= i; ++j)
      value += factor[i * d + j] * out[j];
    out[i] = value;
  }
}

}  // namespace kansoku::stats
