// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"

namespace kansoku::stats {

/// 95 % interval around an estimate.
struct TailInterval {
  double low{0}, estimate{0}, high{0};
};

/// Tail of a distribution above a high threshold: peaks over threshold. The excesses over it follow
/// a generalised Pareto distribution: shape 0 is the exponential, below 0 there is an upper end at
/// threshold - scale / shape, from 1 up there is no mean. Immutable; any thread.
/// Source: Pickands 1975; Davison and Smith 1990.
class Tail {
 public:
  enum class Method : std::uint8_t {
    kLikelihood,
    kMoments,  // probability-weighted; where the likelihood has no regular maximum
  };
  /// Fewer exceedances than this are refused.
  static constexpr std::size_t kExceedancesMin = 20;

  /// Fits the values above `threshold` (strictly; in any order). Maximum likelihood by Grimshaw's
  /// search in one dimension over shapes from -1 up, with probability-weighted moments if the best
  /// of them is at that border. kCorrupt: a value or the threshold is not finite; kLimit: fewer
  /// than kExceedancesMin exceedances, or all of them equal. Deterministic, whatever the order. O(n
  /// log n) and about 150 n logarithms.
  /// Source: Grimshaw 1993; Hosking and Wallis 1987; Dupuis and Tsao 1998 for the feasible shape.
  [[nodiscard]] static Result<Tail> fit(std::span<const double> values, double threshold);
  /// With the `share` quantile of the values as threshold, 0 < share < 1 (else kUnsupported).
  [[nodiscard]] static Result<Tail> fit_above_share(std::span<const double> values, double share);

  [[nodiscard]] double threshold() const { return threshold_; }
  [[nodiscard]] double shape() const { return shape_; }
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] Method method() const { return method_; }
  [[nodiscard]] std::size_t exceedances() const { return excesses_.size(); }
  /// Share of all values that lay above the threshold.
  [[nodiscard]] double exceeding_share() const { return share_; }
  /// Log-likelihood (natural) of the excesses under the fitted distribution.
  [[nodiscard]] double log_likelihood() const;

  /// P(value > `level`); at or below the threshold the share that exceeds it: no less is known.
  [[nodiscard]] double exceedance_probability(double level) const;
  /// The level that is exceeded with `probability`, 0 < probability (else infinity or the upper
  /// end); the threshold for those from exceeding_share() up.
  [[nodiscard]] double level(double probability) const;

  /// 95 % intervals by the profile likelihood of the level or the probability (no bootstrap, no
  /// seed), widened by the uncertainty of the share above the threshold, side by side in
  /// quadrature. Asymmetric, as the truth is. About 2,500 n logarithms for n exceedances: of more
  /// than 20,000 every k-th in order is used and the interval comes out wider. A bound that the
  /// data do not set is 0 or infinity. At or inside the threshold only the share is uncertain.
  [[nodiscard]] TailInterval level_interval(double probability) const;
  [[nodiscard]] TailInterval probability_interval(double level) const;

 private:
  Tail() = default;
  double threshold_{0};
  double share_{0};
  double shape_{0};
  double scale_{1};
  std::size_t value_count_{0};
  Method method_{Method::kLikelihood};
  std::vector<double> excesses_;  // ascending, > 0
};

}  // namespace kansoku::stats
