// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::stats {

/// Families of one positive quantity (a duration, a gap, a size), location 0. Parameters in the
/// order of Distribution::parameters, named as in scipy.
enum class Family : std::uint8_t {
  kConstant,              // value >= 0
  kUniform,               // low, high
  kExponential,           // scale (= mean)
  kLogNormal,             // sigma (of the logarithm), scale (= median)
  kWeibull,               // c, scale
  kExponentiatedWeibull,  // a, c, scale
  kPareto,                // b, scale: x >= scale
  kBurrXII,               // c, d, scale
  kGamma,                 // a, scale; with a > 1e10 good to 1e-10, log_density to 1e-15 a
  kEmpirical,             // the sorted sample itself
  kLogMixture,            // weights..., means..., sigmas... of Gaussians on the logarithm
};

/// "lognormal", "exponentiated_weibull", ...: the names of experiment files and JSON.
[[nodiscard]] std::string_view family_name(Family family);
[[nodiscard]] std::optional<Family> family_from_name(std::string_view name);
/// Names of a family's parameters, e.g. {"a", "c", "scale"}; empty for kEmpirical and kLogMixture.
[[nodiscard]] std::span<const std::string_view> parameter_names(Family family);

namespace internal {

/// Parameters of the families with a closed form and derived values for draws, computed once.
struct Shape {
  double outer{1};  // a of gamma and exponentiated Weibull, b of Pareto, d of Burr XII, sigma
  double inner{1};  // c of both Weibull families and Burr XII
  double scale{1};
  double outer_inverse{1}, inner_inverse{1};
  double log_norm{0};  // constant term of a log density, whatever x is
};

/// A component of a mixture that is cut at a cap, weights as they are below the cap.
struct Slice {
  double begin{0}, end{1};   // the u that take this component
  double weight_inverse{1};  // stretches u - begin to (0, 1)
  double below_cap{1};       // its share below the cap before the cut
  double mean{0}, sigma{1};
};

}  // namespace internal

/// A distribution on [0, infinity), optionally with a point mass at 0 and cut at a cap. A value
/// type, immutable after it was made; any thread may read it.
/// Sources: textbook closed forms; parameters as in scipy.stats.
class Distribution {
 public:
  static constexpr std::size_t kParametersMax = std::size_t{1} << 24;

  /// The constant 0.
  Distribution() = default;
  /// kCorrupt names the parameter out of range (not finite, a scale or shape <= 0, weights that do
  /// not sum to 1 within 1e-9, an empty sample, ...) or a wrong count.
  [[nodiscard]] static Result<Distribution> make(Family family, std::vector<double> parameters);
  [[nodiscard]] static Distribution constant(double value);
  [[nodiscard]] static Distribution exponential(double mean);

  /// The same with P(X = 0) = share (0..1), the rest as before: a share replaces the one there was
  /// and is that of the distribution with its cap. A family with a mass of its own at 0 keeps it in
  /// the rest. kCorrupt if `share` is outside 0..1.
  [[nodiscard]] Result<Distribution> with_zero_share(double share) const;
  /// The same conditioned on X <= cap: the result of rejecting larger draws, so a share of zeros
  /// rises. kCorrupt if nothing of the family itself lies below the cap, or it is negative.
  [[nodiscard]] Result<Distribution> capped(double cap) const;

  [[nodiscard]] Family family() const { return family_; }
  [[nodiscard]] std::span<const double> parameters() const { return parameters_; }
  [[nodiscard]] double zero_share() const { return zero_share_; }
  /// Infinity if there is no cap.
  [[nodiscard]] double cap() const { return cap_; }

  /// P(X <= x), with zero share and cap.
  [[nodiscard]] double cdf(double x) const;
  /// Logarithm of the density at x > 0 of the part without the point mass (-infinity where it is 0;
  /// kConstant and kEmpirical have none: NaN).
  [[nodiscard]] double log_density(double x) const;
  /// Smallest x with cdf(x) >= u, u in (0, 1); always finite. kGamma and kLogMixture by iteration.
  [[nodiscard]] double quantile(double u) const;
  /// One draw from one uniform in (0, 1): the quantile, except for kLogMixture, which takes the
  /// component from u and the place inside it from the rest of u. Fast (tens of ns), except kGamma.
  [[nodiscard]] double draw(double u) const;
  /// Infinity if the mean does not exist (Burr XII with c*d <= 1, Pareto with b <= 1; never with a
  /// cap). Exponentiated Weibull, and Burr XII with a cap, by numerical integration.
  [[nodiscard]] double mean() const;

  /// {"family": "weibull", "c": 0.7, "scale": 12.5, "zero_share": .., "cap": ..}, the last two only
  /// where there is a share or a cap; the mixture has arrays "weights", "means", "sigmas", the
  /// empirical one an array "values". `zero_share` is P(X = 0) with the cap.
  [[nodiscard]] Json to_json() const;
  /// kCorrupt names the key; an unknown key is an error too.
  [[nodiscard]] static Result<Distribution> from_json(const Json& untrusted);

 private:
  void prepare();
  [[nodiscard]] double family_cdf(double x) const;
  [[nodiscard]] double family_quantile(double u) const;
  [[nodiscard]] double mixture_quantile(double u) const;
  [[nodiscard]] double mixture_draw(double u) const;

  Family family_{Family::kConstant};
  std::vector<double> parameters_{0.0};
  double zero_share_{0};
  double cap_{std::numeric_limits<double>::infinity()};
  // prepare() computes the members below from those above.
  double below_cap_{1};  // the family's share below the cap
  internal::Shape shape_;
  std::vector<internal::Slice> slices_;  // of kLogMixture, those with a weight below the cap
  std::vector<std::uint32_t> guide_;     // first slice that can hold u in [i, i + 1) / size
};

/// Quantile of the standard normal distribution, u in (0, 1); relative error below 1e-15.
/// Source: Wichura 1988, algorithm AS 241 (PPND16).
[[nodiscard]] double normal_quantile(double u);
/// Its distribution function.
[[nodiscard]] double normal_cdf(double z);

}  // namespace kansoku::stats
