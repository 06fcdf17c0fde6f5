// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stats/internal/mixture/mixture_kernels.h"
#include "stats/mixture.h"

namespace kansoku::stats::internal {

inline constexpr int kComponentsMax = 1024;
inline constexpr int kDimensionsMax = 256;

/// CHECKs that the vectors of a mixture have the lengths that its dimensions and weights ask for.
void check_shape(const Mixture& mixture);

/// Cholesky factors, their inverses and the log constants of a mixture. A value type.
struct PreparedMixture {
  std::vector<double> factors;          // k x d x d, lower
  std::vector<double> inverse_factors;  // k packed lower triangles
  std::vector<double> log_constants;    // k: log weight - d/2 log 2 pi - log det of the factor
};

/// The first component whose covariance is not positive definite is returned instead.
struct NotPositiveDefinite {
  std::size_t component;
};
[[nodiscard]] std::optional<NotPositiveDefinite> prepare(const Mixture& mixture,
                                                         PreparedMixture& out);

/// Adds up to 1e-8 of its diagonal to a covariance (d x d) until it is positive definite; false if
/// that was not enough.
[[nodiscard]] bool make_definite(std::span<double> covariance, std::size_t dimensions);

/// Doubles at an address that is a multiple of 64, not initialised: clearing a whole block would
/// cost more than the density of a single row.
class AlignedDoubles {
 public:
  explicit AlignedDoubles(std::size_t count);
  AlignedDoubles(const AlignedDoubles&) = delete;  // the copy would point into the original
  AlignedDoubles& operator=(const AlignedDoubles&) = delete;
  [[nodiscard]] double* data() { return begin_; }
  [[nodiscard]] std::span<double> span() { return {begin_, count_}; }
  [[nodiscard]] std::span<const double> span() const { return {begin_, count_}; }

 private:
  std::unique_ptr<double[]> storage_;
  double* begin_;
  std::size_t count_;
};

/// Walks over rows in blocks: transposes each and evaluates the components. One per thread.
class BlockWalker {
 public:
  BlockWalker(std::size_t components, std::size_t dimensions);

  /// Loads up to kBlockRows rows; the padding up to the next group is copies of the first row.
  void load(std::span<const double> rows);
  /// log(weight x density) of each component: `terms()`.
  void log_terms(const KernelModel& model);
  /// Log densities of the loaded rows from the terms.
  [[nodiscard]] std::span<const double> log_sums();
  /// The same; the terms become responsibilities, 0 in the padding.
  [[nodiscard]] std::span<const double> normalise();
  /// Adds the moments of component `component` about `shift` to `sums`.
  void add_moments(std::size_t component, std::span<const double> shift, double* sums);

  [[nodiscard]] const double* terms() { return terms_.data(); }

 private:
  const MixtureKernels& kernels_;
  std::size_t components_;
  std::size_t dimensions_;
  std::size_t rows_{0};
  std::size_t padded_{0};
  AlignedDoubles x_;
  AlignedDoubles terms_;
  AlignedDoubles scratch_;
  AlignedDoubles log_density_;
};

}  // namespace kansoku::stats::internal
