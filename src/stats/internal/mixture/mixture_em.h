// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/result.h"
#include "stats/internal/mixture/mixture_blocks.h"
#include "stats/mixture.h"

namespace kansoku::stats::internal {

/// Rows; a component with less has nothing to take a mean of.
inline constexpr double kWeightLost = 1e-6;

/// Expectation-maximisation of one mixture over rows that are finite and at least as many as
/// components. One use: `run`.
class MixtureEm {
 public:
  MixtureEm(std::span<const double> rows, Mixture start, const MixtureOptions& options);

  /// kCorrupt if a covariance of the start is not positive definite, even with some more added to
  /// its diagonal.
  [[nodiscard]] Result<MixtureFit> run();

 private:
  /// Working memory of one thread: a walker, and the sums of its present chunk.
  struct Worker {
    Worker(std::size_t components, std::size_t dimensions);
    BlockWalker walker;
    AlignedDoubles sums;                         // components x moment_values x kLanes
    std::array<double, kLanes> log_densities{};  // sums, lane by lane
    double lowest{0};                            // log density, and the row that has it
    std::size_t lowest_row{0};
  };
  /// One block of rows, loaded and with its log terms made. `first`: index of its first row.
  using Block = std::function<void(Worker& worker, std::size_t first, std::size_t count)>;

  /// Clears the workers, walks over all rows with as many threads as the options ask for, and calls
  /// `merge` chunk by chunk in the order of the rows.
  void walk(const Block& block, const std::function<void(Worker&)>& merge);
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
  std::vector<double> old_means_;  // of the step before: centres of the moments
  std::vector<double> old_covariances_;
  PreparedMixture prepared_;                      // of the mixture before the step
  std::vector<std::unique_ptr<Worker>> workers_;  // one a thread
  AlignedDoubles sums_;                           // components x moment_values x kLanes
};

}  // namespace kansoku::stats::internal
