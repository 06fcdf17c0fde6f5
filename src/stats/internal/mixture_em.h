// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/result.h"
#include "stats/internal/mixture_blocks.h"
#include "stats/mixture.h"

namespace kansoku::stats::internal {

/// Expectation-maximisation of one mixture over rows that are finite and at least as many as
/// components. One use: `run`.
class MixtureEm {
 public:
  MixtureEm(std::span<const double> rows, Mixture start, const MixtureOptions& options);

  /// kCorrupt if a covariance of the start is not positive definite, even with some more added to
  /// its diagonal.
  [[nodiscard]] Result<MixtureFit> run();

 private:
  /// Expectation over all rows; the total log-likelihood of the mixture before the step. With
  /// `maximise` the moments of all components about their means are summed too.
  double pass(bool maximise);
  void maximise();
  /// Mean and covariance of a component from its sums about `shift`; false if the mean moved so far
  /// from `shift` that the difference of the moments lost too many digits for the covariance.
  bool update_component(std::size_t component, std::span<const double> shift);
  /// The moments of one component again, about its new mean, with the responsibilities of the
  /// mixture before the step.
  void sum_again(std::size_t component);
  /// Makes the new covariance positive definite, or takes the old one back.
  void mend_covariance(std::size_t component);
  void move_to_least_dense(std::size_t component);
  [[nodiscard]] double lane_sum(std::size_t component, std::size_t value) const;
  [[nodiscard]] KernelModel model() const;

  std::span<const double> rows_;
  const MixtureOptions& options_;
  std::size_t dimensions_;
  std::size_t components_;
  std::size_t row_count_;
  Mixture mixture_;
  std::vector<double> old_means_;  // of the step before: what the moments are about
  std::vector<double> old_covariances_;
  PreparedMixture prepared_;  // of the mixture before the step
  BlockWalker walker_;
  AlignedDoubles sums_;  // components x moment_values x kLanes
};

}  // namespace kansoku::stats::internal
