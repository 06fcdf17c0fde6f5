// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/rng.h"

namespace kansoku::stats {

/// A Gaussian mixture with full covariances in `dimensions` >= 1. The one implementation of the
/// project. A value type; any thread may read it.
struct Mixture {
  int dimensions{1};
  std::vector<double> weights;      // k, sum 1
  std::vector<double> means;        // k x d, row by row
  std::vector<double> covariances;  // k x d x d, symmetric, row by row

  [[nodiscard]] int components() const { return static_cast<int>(weights.size()); }
  /// {"dimensions": d, "weights": [...], "means": [...], "covariances": [...]}
  [[nodiscard]] Json to_json() const;
  /// kCorrupt: a wrong length, a value that is not finite, weights that do not sum to 1 within
  /// 1e-9, a covariance that is not positive definite (named by component).
  [[nodiscard]] static Result<Mixture> from_json(const Json& untrusted);
};

struct MixtureOptions {
  enum class Start : std::uint8_t {
    kQuantiles,  // one dimension: means at quantiles (i + 1/2) / k, sigma = sd / k, equal weights
    kKMeansPlusPlus,
  };
  int components{1};
  Start start{Start::kKMeansPlusPlus};
  int starts{1};  // the best of so many starts by log-likelihood
  int iterations_max{150};
  double tolerance{0};  // stop when the mean log-likelihood gains less; 0: all iterations
  double ridge{1e-6};   // added to each covariance's diagonal
  std::uint64_t seed{1};
  int threads{1};  // that pass over the rows, 1 to 256; any number gives the same bits
};

struct MixtureFit {
  Mixture mixture;
  double log_likelihood{0};  // total, natural logarithm, of the returned mixture
  double bic{0};
  int iterations{0};
};

/// Expectation-maximisation in the log domain (log-sum-exp). `rows`: n x dimensions, row by row,
/// finite and within 1e140; their order does not matter but for rounding. A component that loses
/// all weight is moved to the row with the least density; a covariance that is not positive
/// definite in spite of the ridge gets up to 1e-8 of its diagonal more, or stays as it was.
/// kLimit if n < components or over 1,024 components or 256 dimensions; kCorrupt for a value that
/// is not finite, and for a start without positive definite covariances (constant features and no
/// ridge); kUnsupported for quantiles in more than one dimension. Deterministic for a seed, with
/// the same bits for every instruction set and every `options.threads`; any thread. If the system
/// has no thread to give, fewer threads do the work.
/// Source: textbook EM (Dempster, Laird and Rubin 1977); k-means++ by Arthur and Vassilvitskii
/// 2007.
[[nodiscard]] Result<MixtureFit> fit_mixture(std::span<const double> rows, int dimensions,
                                             const MixtureOptions& options);

/// EM from a given mixture instead of a start of its own (`options.start`, `starts` and `seed`
/// unused).
[[nodiscard]] Result<MixtureFit> refine_mixture(std::span<const double> rows, Mixture start,
                                                const MixtureOptions& options);

/// A mixture prepared for many evaluations: Cholesky factors and log constants. Immutable; any
/// thread.
class MixtureDensity {
 public:
  /// kCorrupt if a covariance is not positive definite.
  [[nodiscard]] static Result<MixtureDensity> make(Mixture mixture);

  /// Log density of each row; `rows` n x d, `out` n. Never NaN: a row with one, or so far away that
  /// the exponent overflows, gets about -5e299.
  void log_density(std::span<const double> rows, std::span<double> out) const;
  /// Log of weight times density, for each component (`out`: k), of one row (d values).
  void component_log_densities(std::span<const double> row, std::span<double> out) const;
  /// One draw into `out` (d values).
  void draw(RandomStream& random, std::span<double> out) const;

  [[nodiscard]] const Mixture& mixture() const { return mixture_; }

 private:
  explicit MixtureDensity(Mixture mixture) : mixture_(std::move(mixture)) {}
  Mixture mixture_;
  std::vector<double> inverse_factors_;  // k packed lower triangles of the inverse Cholesky factors
  std::vector<double> factors_;          // k x d x d, lower Cholesky factors
  std::vector<double> log_constants_;    // k: log weight - d/2 log 2 pi - log det of the factor
  std::vector<double> cumulative_;       // k: running sums of the weights
};

}  // namespace kansoku::stats
