// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diff/thresholds.h"
#include "stats/fit.h"
#include "stats/significance.h"
#include "stats/summary.h"

namespace kansoku::diff {
namespace {

constexpr double kRatioLogMax = 40;  // e^40: beyond it a ratio says nothing

double sum_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return sum;
}

/// Deviations of single steps beyond the outer quantiles become these.
void clip(std::vector<double>& values) {
  const double low = stats::quantile(values, kClipShare);
  const double high = stats::quantile(values, 1 - kClipShare);
  for (double& value : values)
    value = std::clamp(value, low, high);
}

double mean_of(std::span<const double> values) {
  return values.empty() ? 0 : sum_of(values) / static_cast<double>(values.size());
}

/// Variance between the means of kDriftParts parts of `values`, less the effect of the spread
/// inside of the parts.
double drift_of(std::span<const double> values) {
  const std::size_t each = values.size() / kDriftParts;
  if (each < 2) return 0;
  std::vector<double> means;
  double inside = 0;
  for (std::size_t part = 0; part < kDriftParts; ++part) {
    const auto of_part = values.subspan(part * each, each);
    const double mean = mean_of(of_part);
    double squares = 0;
    for (const double value : of_part)
      squares += (value - mean) * (value - mean);
    inside += squares / static_cast<double>((each - 1) * each * kDriftParts);
    means.push_back(mean);
  }
  const double mean = mean_of(means);
  double squares = 0;
  for (const double value : means)
    squares += (value - mean) * (value - mean);
  return std::max(0.0, squares / static_cast<double>(kDriftParts - 1) - inside);
}

void add_spread(std::span<const double> beside, LogRatio& out) {
  out.drift2 = drift_of(beside);
  const double mean = mean_of(beside);
  for (const double value : beside)
    out.spread2 += (value - mean) * (value - mean) / static_cast<double>(beside.size());
}

/// Centre of most of some values: those further than kOutlierSigmas from it do not count. Other
/// programs take a processor or a memory bus for some steps, and such steps tell nothing of a
/// kernel. Source: Beaton and Tukey 1974 (recalled: unverified).
class Biweight {
 public:
  explicit Biweight(std::span<const double> values)
      : centre_(stats::median(values)), scale_(stats::kMadToSigma * stats::mad(values)) {
    if (scale_ <= 1e-12 * centre_) {  // the typical value itself, if it is nearly all
      std::size_t equal = 0;
      for (const double value : values)
        equal += std::abs(value - centre_) <= 1e-9 * centre_ ? 1 : 0;
      is_sound_ = static_cast<double>(equal) >= kInMostSteps * static_cast<double>(values.size());
      scale_ = 0;
      return;
    }
    for (int i = 0; i < kRounds; ++i) {
      double sum = 0, weights = 0;
      for (const double value : values) {
        sum += weight(value) * value;
        weights += weight(value);
      }
      centre_ = sum / weights;
    }
    for (const double value : values) {
      const double far = (value - centre_) / reach();
      if (std::abs(far) < 1)
        slope_ += (1 - far * far) * (1 - 5 * far * far) / static_cast<double>(values.size());
    }
    is_sound_ = slope_ > kSlopeMin && centre_ > 0;
  }

  [[nodiscard]] bool is_sound() const { return is_sound_; }
  [[nodiscard]] double centre() const { return centre_; }
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] double clamped(double value) const {
    return std::clamp(value, centre_ - reach(), centre_ + reach());
  }
  [[nodiscard]] double influence(double value) const {
    return scale_ > 0 ? (value - centre_) * weight(value) / slope_ : 0;
  }

 private:
  static constexpr int kRounds = 8;
  static constexpr double kSlopeMin = 0.1;  // below it the values have no one centre
  [[nodiscard]] double reach() const { return kOutlierSigmas * scale_; }
  [[nodiscard]] double weight(double value) const {
    const double far = (value - centre_) / reach();
    return std::abs(far) < 1 ? (1 - far * far) * (1 - far * far) : 0;
  }

  double centre_{0}, scale_{0}, slope_{0};
  bool is_sound_{false};
};

struct Pooled {
  double mean{0};
  double variance{0};  // of one run around it, beyond that of its steps
  double within{0};    // variance of `mean` from the steps
  double within_degrees{1};
  double drift2{0}, spread2{0};
  std::size_t count{0};
};

Pooled pool(std::span<const LogRatio> runs) {
  Pooled out;
  double degrees = 0;
  for (const LogRatio& run : runs) {
    if (!run.is_known) continue;
    ++out.count;
    out.mean += run.value;
    out.within += run.error * run.error;
    out.drift2 += run.drift2;
    out.spread2 += run.spread2;
    degrees += run.degrees;
  }
  if (out.count == 0) return out;
  const auto count = static_cast<double>(out.count);
  out.mean /= count;
  out.drift2 /= count;
  out.spread2 /= count;
  const double own = out.within / count;  // of one run
  out.within /= count * count;
  out.within_degrees = std::max(1.0, degrees);
  if (out.count < 2) return out;
  double squares = 0;
  for (const LogRatio& run : runs) {
    if (run.is_known) squares += (run.value - out.mean) * (run.value - out.mean);
  }
  out.variance = std::max(0.0, squares / (count - 1) - own);
  return out;
}

}  // namespace

StepDraws::StepDraws(std::size_t step_count, std::uint32_t resamples, std::uint64_t seed) {
  const std::size_t length = stats::default_block_length(step_count);
  stats::BlockBootstrap bootstrap(step_count, length, seed);
  for (std::uint32_t i = 0; i < resamples; ++i) {
    const auto draw = bootstrap.draw();
    draws_.emplace_back(draw.begin(), draw.end());
  }
  block_count_ = std::max<std::size_t>(2, step_count / std::max<std::size_t>(1, length));
}

double StepDraws::standard_error(std::span<const double> values) const {
  const stats::PrefixSums sums(values);
  double total = 0, squares = 0;
  for (const auto& draw : draws_) {
    const double mean = sums.mean(draw);
    total += mean;
    squares += mean * mean;
  }
  const auto count = static_cast<double>(draws_.size());
  if (count < 2) return 0;
  return std::sqrt(std::max(0.0, (squares - total * total / count) / (count - 1)));
}

LogRatio log_ratio(std::span<const double> over, std::span<const double> under,
                   const StepDraws& draws) {
  LogRatio out;
  out.degrees = static_cast<double>(draws.block_count() - 1);
  const double sum_over = sum_of(over), sum_under = sum_of(under);
  if (!(sum_over > 0) || !(sum_under > 0)) return out;
  const double ratio = sum_over / sum_under;
  const double scale = static_cast<double>(over.size()) / sum_under;
  std::vector<double> influence(over.size());
  std::size_t present = 0;
  for (std::size_t s = 0; s < over.size(); ++s) {
    influence[s] = (over[s] - ratio * under[s]) * scale;
    if (over[s] > 0) ++present;
    out.varies = out.varies || std::abs(influence[s]) > 1e-9 * ratio;
  }
  const bool is_in_most =
      static_cast<double>(present) >= kInMostSteps * static_cast<double>(over.size());
  if (is_in_most) clip(influence);
  const double clipped = ratio + sum_of(influence) / static_cast<double>(over.size());
  if (!(clipped > 0)) return out;
  out.value = std::clamp(std::log(clipped), -kRatioLogMax, kRatioLogMax);
  out.error = out.varies ? draws.standard_error(influence) / clipped : 0;
  out.is_known = true;
  if (!is_in_most) return out;
  for (double& value : influence)
    value = (value + clipped) / clipped;
  add_spread(influence, out);
  return out;
}

LogRatio typical_ratio(std::span<const double> over, std::span<const double> under,
                       std::span<const double> factors, const StepDraws& draws) {
  std::vector<double> values;
  for (std::size_t s = 0; s < over.size(); ++s) {
    if (over[s] > 0 && under[s] > 0) values.push_back(over[s] / (under[s] * factors[s]));
  }
  const double least = kInMostSteps * static_cast<double>(over.size());
  if (static_cast<double>(values.size()) < std::max(least, 1.0))
    return log_ratio(over, under, draws);
  Biweight typical(values);
  // Most steps alike and some not, or two kinds of steps: only the mean knows both.
  if (!typical.is_sound()) return log_ratio(over, under, draws);
  LogRatio out;
  out.degrees = static_cast<double>(draws.block_count() - 1);
  out.is_known = true;
  out.value = std::clamp(std::log(typical.centre()), -kRatioLogMax, kRatioLogMax);
  out.varies = typical.scale() > 1e-9 * typical.centre();
  std::vector<double> influence(over.size());
  for (std::size_t s = 0; s < over.size(); ++s) {
    if (over[s] > 0 && under[s] > 0)
      influence[s] = typical.influence(over[s] / (under[s] * factors[s]));
  }
  out.error = out.varies ? draws.standard_error(influence) / typical.centre() : 0;
  for (double& value : values)
    value = typical.clamped(value) / typical.centre();
  add_spread(values, out);
  return out;
}

Difference difference(std::span<const LogRatio> before, std::span<const LogRatio> after,
                      Prior prior) {
  Difference out;
  const Pooled a = pool(before), b = pool(after);
  if (a.count == 0 || b.count == 0) return out;
  out.is_known = true;
  out.value = b.mean - a.mean;
  const double seen_degrees = static_cast<double>(a.count + b.count - 2);
  const double seen = seen_degrees > 0 ? (a.variance * static_cast<double>(a.count - 1) +
                                          b.variance * static_cast<double>(b.count - 1)) /
                                             seen_degrees
                                       : 0;
  const double between_degrees = kPriorDegrees + seen_degrees;
  const double drift = kDriftMultiple * kDriftMultiple * (a.drift2 + b.drift2) / 2;
  const double spread = prior.spread_multiple * prior.spread_multiple * (a.spread2 + b.spread2) / 2;
  const double held = prior.sigma > 0 ? prior.sigma * prior.sigma + drift + spread : 0;
  const double between_each = (kPriorDegrees * held + seen_degrees * seen) / between_degrees;
  const double between =
      between_each * (1 / static_cast<double>(a.count) + 1 / static_cast<double>(b.count));
  const double within = a.within + b.within;
  const double variance = between + within;
  out.error = std::sqrt(variance);
  const double within_degrees = a.within_degrees + b.within_degrees;
  // Welch's formula: the degrees of a sum of two variances.
  const double squares = between * between / between_degrees + within * within / within_degrees;
  out.degrees =
      squares > 0 ? variance * variance / squares : std::numeric_limits<double>::infinity();
  return out;
}

double put(const Difference& difference, double centre, Change& out) {
  if (!difference.is_known) return 1;
  const double reach =
      std::isinf(difference.degrees)
          ? 1.959963984540054 * difference.error
          : stats::student_quantile(0.975, std::max(1.0, difference.degrees)) * difference.error;
  out.ratio = std::exp(difference.value);
  out.low = std::exp(difference.value - reach);
  out.high = std::exp(difference.value + reach);
  out.is_tested = true;
  const double away = difference.value - centre;
  if (std::abs(away) < kEqualLog) return 1;  // rounding
  if (!(difference.error > 0)) return 0;
  return stats::two_sided(away / difference.error, std::max(1.0, difference.degrees));
}

}  // namespace kansoku::diff
