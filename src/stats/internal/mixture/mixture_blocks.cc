// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/check.h"
#include "stats/internal/cholesky.h"

namespace kansoku::stats::internal {
namespace {

constexpr std::size_t kAlignBytes = 64;
/// Shares of the diagonal that are added, one after the other, where the ridge is too small for
/// the scale of the features.
constexpr std::array<double, 4> kDiagonalShares{0, 1e-12, 1e-10, 1e-8};

}  // namespace

void check_shape(const Mixture& mixture) {
  CHECK(mixture.dimensions >= 1 && mixture.dimensions <= kDimensionsMax);
  CHECK(mixture.components() >= 1 && mixture.components() <= kComponentsMax);
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  CHECK(mixture.means.size() == mixture.weights.size() * d);
  CHECK(mixture.covariances.size() == mixture.weights.size() * d * d);
}

std::optional<NotPositiveDefinite> prepare(const Mixture& mixture, PreparedMixture& out) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  const std::size_t components = mixture.weights.size();
  out.factors.resize(components * d * d);
  out.inverse_factors.resize(components * triangle(d));
  out.log_constants.resize(components);
  const double log_two_pi = std::log(2 * std::numbers::pi);
  for (std::size_t k = 0; k < components; ++k) {
    const std::span<double> factor(out.factors.data() + k * d * d, d * d);
    const std::span<const double> covariance(mixture.covariances.data() + k * d * d, d * d);
    if (!cholesky(covariance, d, factor)) return NotPositiveDefinite{k};
    invert_lower(factor, d, {out.inverse_factors.data() + k * triangle(d), triangle(d)});
    double log_determinant = 0;
    for (std::size_t i = 0; i < d; ++i)
      log_determinant += std::log(factor[i * d + i]);
    const double constant =
        std::log(mixture.weights[k]) - 0.5 * static_cast<double>(d) * log_two_pi - log_determinant;
    out.log_constants[k] = std::max(constant, kLogFloor);  // a weight of 0
  }
  return std::nullopt;
}

bool make_definite(std::span<double> covariance, std::size_t dimensions) {
  std::vector<double> factor(dimensions * dimensions);
  for (const double share : kDiagonalShares) {
    for (std::size_t i = 0; i < dimensions; ++i)
      covariance[i * dimensions + i] *= 1 + share;
    if (cholesky(covariance, dimensions, factor)) return true;
  }
  return false;
}

AlignedDoubles::AlignedDoubles(std::size_t count)
    : storage_(std::make_unique_for_overwrite<double[]>(count + kAlignBytes / sizeof(double))),
      count_(count) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
  const std::size_t skipped = (kAlignBytes - address % kAlignBytes) % kAlignBytes;
  begin_ = storage_.get() + skipped / sizeof(double);
}

BlockWalker::BlockWalker(std::size_t components, std::size_t dimensions)
    : kernels_(mixture_kernels()),
      components_(components),
      dimensions_(dimensions),
      x_(dimensions * kStride),
      terms_(components * kStride),
      scratch_(scratch_values(dimensions)),
      log_density_(kStride) {}

void BlockWalker::load(std::span<const double> rows) {
  rows_ = rows.size() / dimensions_;
  CHECK(rows_ >= 1 && rows_ <= kBlockRows);
  padded_ = (rows_ + kGroupRows - 1) / kGroupRows * kGroupRows;
  // Plain on purpose: rows of a large table come from memory no faster than this.
  double* x = x_.data();
  const double* row = rows.data();
  for (std::size_t i = 0; i < rows_; ++i, row += dimensions_) {
    for (std::size_t j = 0; j < dimensions_; ++j)
      x[j * kStride + i] = row[j];
  }
  for (std::size_t j = 0; j < dimensions_; ++j) {
    double* feature = x_.data() + j * kStride;
    std::fill(feature + rows_, feature + padded_, rows[j]);
  }
}

void BlockWalker::log_terms(const KernelModel& model) {
  CHECK(model.components == components_ && model.dimensions == dimensions_);
  kernels_.log_terms(model, x_.data(), padded_, scratch_.data(), terms_.data());
}

std::span<const double> BlockWalker::log_sums() {
  kernels_.log_sums(terms_.data(), components_, padded_, log_density_.data());
  return log_density_.span().first(rows_);
}

std::span<const double> BlockWalker::normalise() {
  kernels_.normalise(terms_.data(), components_, padded_, log_density_.data());
  for (std::size_t k = 0; k < components_; ++k) {
    double* terms = terms_.data() + k * kStride;
    std::fill(terms + rows_, terms + padded_, 0.0);
  }
  return log_density_.span().first(rows_);
}

void BlockWalker::add_moments(std::size_t component, std::span<const double> shift, double* sums) {
  kernels_.add_moments(x_.data(), dimensions_, padded_, shift.data(),
                       terms_.data() + component * kStride, scratch_.data(), sums);
}

}  // namespace kansoku::stats::internal
