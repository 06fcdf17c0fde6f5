// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kansoku::stats::internal {

/// How well rows are explained by one Gaussian whose mean and covariance are unknown: the logarithm
/// of their marginal likelihood under a normal-inverse-Wishart prior for features of variance about
/// 1, without terms that are the same for all divisions of the rows into as many clusters. Rows of
/// one mode gain when their clusters become one, rows of two lose, however near these are.
/// Immutable.
/// Source: textbook conjugate prior; as a merging criterion Heller and Ghahramani 2005.
class MarginalLikelihood {
 public:
  explicit MarginalLikelihood(std::size_t dimensions);

  /// `scatter`: lower triangle, packed. `work`: room for as much.
  [[nodiscard]] double of(std::uint64_t rows, std::span<const double> scatter,
                          std::span<double> work) const;

 private:
  [[nodiscard]] double log_gammas(double rows) const;

  std::size_t dimensions_;
  std::vector<double> table_;  // of log_gammas, for few rows
};

}  // namespace kansoku::stats::internal
