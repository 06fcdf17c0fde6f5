// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/check.h"
#include "stats/internal/mixture/mixture_em.h"
#include "stats/internal/mixture/mixture_start.h"
#include "stats/mixture.h"

namespace kansoku::stats {
namespace {

/// Beyond it the sums of squares of any number of rows could overflow.
constexpr double kMagnitudeMax = 1e140;
constexpr int kThreadsMax = 256;

Result<void> check_rows(std::span<const double> rows, int dimensions, int components) {
  if (dimensions < 1 || dimensions > internal::kDimensionsMax) {
    return Error{Code::kLimit, fmt::format("fit mixture: {} dimensions, not 1 to {}", dimensions,
                                           internal::kDimensionsMax)};
  }
  if (components < 1 || components > internal::kComponentsMax) {
    return Error{Code::kLimit, fmt::format("fit mixture: {} components, not 1 to {}", components,
                                           internal::kComponentsMax)};
  }
  const auto d = static_cast<std::size_t>(dimensions);
  CHECK(rows.size() % d == 0);
  if (rows.size() / d < static_cast<std::size_t>(components)) {
    return Error{Code::kLimit, fmt::format("fit mixture: {} rows are too few for {} components",
                                           rows.size() / d, components)};
  }
  const auto bad = std::find_if_not(rows.begin(), rows.end(), [](double value) {
    return std::abs(value) <= kMagnitudeMax;  // NaN is not
  });
  if (bad != rows.end()) {
    const auto index = static_cast<std::size_t>(bad - rows.begin());
    return Error{Code::kCorrupt,
                 fmt::format("fit mixture: row {}, feature {} is {}", index / d, index % d,
                             std::isfinite(*bad) ? "over 1e140" : "not finite")};
  }
  return {};
}

Result<void> check_options(const MixtureOptions& options, int dimensions) {
  if (!(options.ridge >= 0) || !std::isfinite(options.ridge))
    return Error{Code::kCorrupt, "fit mixture: the ridge has to be finite and not negative"};
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return Error{Code::kLimit,
                 fmt::format("fit mixture: {} threads, not 1 to {}", options.threads, kThreadsMax)};
  }
  if (options.start == MixtureOptions::Start::kQuantiles && dimensions != 1) {
    return Error{Code::kUnsupported,
                 fmt::format("fit mixture: quantiles of {} dimensions", dimensions),
                 "start with k-means++"};
  }
  return {};
}

}  // namespace

Result<MixtureFit> refine_mixture(std::span<const double> rows, Mixture start,
                                  const MixtureOptions& options) {
  TRY_VOID(check_rows(rows, start.dimensions, start.components()));
  MixtureOptions used = options;
  used.start = MixtureOptions::Start::kKMeansPlusPlus;  // not used: quantiles would be refused
  TRY_VOID(check_options(used, start.dimensions));
  return internal::MixtureEm(rows, std::move(start), used).run();
}

Result<MixtureFit> fit_mixture(std::span<const double> rows, int dimensions,
                               const MixtureOptions& options) {
  TRY_VOID(check_rows(rows, dimensions, options.components));
  TRY_VOID(check_options(options, dimensions));
  const auto components = static_cast<std::size_t>(options.components);
  if (options.start == MixtureOptions::Start::kQuantiles) {
    return internal::MixtureEm(rows, internal::quantile_start(rows, components, options.ridge),
                               options)
        .run();
  }
  const internal::KMeansStart starts(rows, static_cast<std::size_t>(dimensions));
  std::optional<MixtureFit> best;
  for (int i = 0; i < std::max(1, options.starts); ++i) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
    TRY(MixtureFit fit,
        internal::MixtureEm(rows, starts.make(components, options.ridge, seed), options).run());
    if (!best || fit.log_likelihood > best->log_likelihood) best = std::move(fit);
  }
  return *std::move(best);
}

}  // namespace kansoku::stats
