// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/result.h"
#include "stats/mixture.h"

namespace kansoku::stats::internal {

/// One dimension: means at the quantiles (i + 1/2) / k, standard deviation sd / k, equal weights;
/// the ridge is added to the variances. `rows`: at least one, finite.
[[nodiscard]] Mixture quantile_start(std::span<const double> rows, std::size_t components,
                                     double ridge);

/// Starts by k-means++ with a few rounds of Lloyd on features scaled to unit deviation. The rows
/// are sorted first, so their order does not matter, and of more than kStartRowsMax every nth is
/// used. Built once, then one start per seed.
class KMeansStart {
 public:
  /// `rows`: n x dimensions, at least one, finite.
  KMeansStart(std::span<const double> rows, std::size_t dimensions);

  /// Means and weights of the clusters; all components get the pooled covariance within clusters
  /// plus the ridge, because that of a cluster of one row would trap it there.
  [[nodiscard]] Mixture make(std::size_t components, double ridge, std::uint64_t seed) const;

  static constexpr std::size_t kStartRowsMax = 32'768;

 private:
  [[nodiscard]] std::vector<double> pick_centres(std::size_t components, std::uint64_t seed) const;
  /// Nearest centre of each row.
  [[nodiscard]] std::vector<std::size_t> assign(const std::vector<double>& centres) const;
  void move_centres(const std::vector<std::size_t>& cluster, std::vector<double>& centres) const;
  [[nodiscard]] double distance(std::size_t row, const double* centre) const;

  std::size_t dimensions_;
  std::size_t count_{0};
  std::vector<double> middle_;  // d: subtracted from each feature
  std::vector<double> scale_;   // d: divisor of each feature then
  std::vector<double> rows_;    // count x d, scaled
};

}  // namespace kansoku::stats::internal
