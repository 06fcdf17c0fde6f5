// SPDX-License-Identifier: Apache-2.0
// Built with -O3: with neighbours.cc, where a summary's time goes.
#include "stats/internal/marginal_likelihood.h"

#include <boost/math/special_functions/gamma.hpp>

#include <cmath>

#include "stats/internal/cholesky.h"
#include "stats/internal/policy.h"

namespace kansoku::stats::internal {
namespace {

// The prior: covariances around 1/7 of a feature's whole variance, worth some rows; means anywhere.
// Chosen on made data (docs/measurements/edge-summaries.md): three times the scale does little
// harm, a third doubles what summaries blur.
constexpr double kScale = 1;
constexpr double kFreedomBeyond = 8;  // over the number of dimensions
constexpr double kMeanRows = 0.01;
constexpr std::size_t kTable = 512;

}  // namespace

MarginalLikelihood::MarginalLikelihood(std::size_t dimensions) : dimensions_(dimensions) {
  table_.reserve(kTable);
  for (std::size_t rows = 0; rows < kTable; ++rows)
    table_.push_back(log_gammas(static_cast<double>(rows)));
}

double MarginalLikelihood::log_gammas(double rows) const {
  const auto d = static_cast<double>(dimensions_);
  double sum = 0;
  for (double i = 0; i < d; i += 1)
    sum += boost::math::lgamma(0.5 * (rows + d + kFreedomBeyond - i), Quiet());
  return sum;
}

double MarginalLikelihood::of(std::uint64_t rows, std::span<const double> scatter,
                              std::span<double> work) const {
  const std::size_t d = dimensions_;
  const auto n = static_cast<double>(rows);
  double* const factor = work.data();
  double determinant = 1, log_determinant = 0;
  for (std::size_t i = 0, at = 0; i < d; ++i) {
    double* const row = factor + at;
    for (std::size_t j = 0; j <= i; ++j, ++at) {
      const double* const other = factor + triangle(j);
      double value = scatter[at] + (i == j ? kScale : 0);
      for (std::size_t c = 0; c < j; ++c)
        value -= row[c] * other[c];
      // The diagonal is held as its inverse root. It is at least the prior's but for rounding.
      if (i != j) {
        row[j] = value * other[j];
        continue;
      }
      value = value < kScale ? kScale : value;
      determinant *= value;
      row[j] = 1 / std::sqrt(value);
    }
    if (determinant < 1e200 && i + 1 < d) continue;  // few logarithms
    log_determinant += std::log(determinant);
    determinant = 1;
  }
  const double dimensions = static_cast<double>(d);
  const double gammas = rows < kTable ? table_[rows] : log_gammas(n);
  return gammas - 0.5 * (n + dimensions + kFreedomBeyond) * log_determinant -
         0.5 * dimensions * std::log1p(n / kMeanRows);
}

}  // namespace kansoku::stats::internal
