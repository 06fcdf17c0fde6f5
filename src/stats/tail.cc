// SPDX-License-Identifier: Apache-2.0
#include "stats/tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/numbers.h"
#include "stats/internal/pareto.h"
#include "stats/summary.h"

namespace kansoku::stats {
namespace {

constexpr double kNormal975 = 1.959963984540054;
constexpr double kHalfChiSquared95 = 1.9207294103470266;  // one degree of freedom
constexpr std::size_t kProfileMax = 20'000;
constexpr double kLogLowest = -700;  // of a probability: exp of it is still a normal number

/// Log-likelihood along one parameter, and the values that are not rejected.
class Profile {
 public:
  Profile(std::function<double(double)> at, double cut) : at_(std::move(at)), cut_(cut) {}

  struct Range {
    double low, high;
  };
  /// The accepted range between `lowest` and `highest` around `start`; a bound that is not rejected
  /// is returned as it is.
  [[nodiscard]] Range accepted(double start, double lowest, double highest) const {
    const double inside = accepts(start) ? start : best_of_grid(lowest, highest);
    if (!accepts(inside)) return {inside, inside};
    return {bound(inside, lowest), bound(inside, highest)};
  }

 private:
  [[nodiscard]] bool accepts(double x) const { return at_(x) >= cut_; }

  [[nodiscard]] double best_of_grid(double lowest, double highest) const {
    constexpr int kSteps = 64;
    double best = lowest, best_value = -kInfinity;
    for (int i = 0; i <= kSteps; ++i) {
      const double x = lowest + (highest - lowest) * i / kSteps;
      const double value = at_(x);
      if (value <= best_value) continue;
      best = x;
      best_value = value;
    }
    return best;
  }

  /// The last accepted place on the way from `inside` to `limit`: steps that double, then halves.
  [[nodiscard]] double bound(double inside, double limit) const {
    constexpr int kHalvings = 22;
    const double direction = limit < inside ? -1 : 1;
    double step = 0.05, outside = inside;
    for (;;) {
      outside = inside + direction * step;
      if (direction * (outside - limit) >= 0) {
        outside = limit;
        if (accepts(limit)) return limit;
        break;
      }
      if (!accepts(outside)) break;
      inside = outside;
      step *= 2;
    }
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = 0.5 * (inside + outside);
      (accepts(middle) ? inside : outside) = middle;
    }
    return inside;
  }

  std::function<double(double)> at_;
  double cut_;
};

/// Every k-th in order, so that at most kProfileMax are left.
std::vector<double> thinned(const std::vector<double>& excesses) {
  const std::size_t every = (excesses.size() + kProfileMax - 1) / kProfileMax;
  std::vector<double> out;
  for (std::size_t i = excesses.size(); i > 0; i -= std::min(i, every))
    out.push_back(excesses[i - 1]);
  std::reverse(out.begin(), out.end());
  return out;
}

double cut_of(const std::vector<double>& excesses) {
  return internal::pareto_likelihood_fit(excesses).log_likelihood - kHalfChiSquared95;
}

/// Standard error of the logarithm of the share that exceeds the threshold, times 1.96.
double log_share_error(double share, std::size_t exceedances) {
  return kNormal975 * std::sqrt((1 - share) / static_cast<double>(exceedances));
}

}  // namespace

Result<Tail> Tail::fit(std::span<const double> values, double threshold) {
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::isfinite(threshold) || !std::all_of(values.begin(), values.end(), finite))
    return Error{Code::kCorrupt, "fit tail: a value or the threshold is not finite"};
  Tail tail;
  tail.threshold_ = threshold;
  tail.value_count_ = values.size();
  for (const double value : values) {
    if (value > threshold) tail.excesses_.push_back(value - threshold);
  }
  const std::size_t count = tail.excesses_.size();
  if (count < kExceedancesMin) {
    return Error{Code::kLimit,
                 fmt::format("fit tail: {} of {} values exceed {}, {} are needed", count,
                             values.size(), threshold, kExceedancesMin),
                 "lower the threshold or gather more values"};
  }
  std::sort(tail.excesses_.begin(), tail.excesses_.end());
  if (!std::isfinite(tail.excesses_.back()))
    return Error{Code::kCorrupt, "fit tail: an excess over the threshold is not finite"};
  if (tail.excesses_.front() == tail.excesses_.back()) {
    return Error{Code::kLimit,
                 fmt::format("fit tail: all {} values above {} are equal", count, threshold),
                 "a constant has no tail"};
  }
  tail.share_ = static_cast<double>(count) / static_cast<double>(values.size());
  const internal::ParetoFit fit = internal::pareto_likelihood_fit(tail.excesses_);
  internal::Pareto pareto = fit.pareto;
  if (!fit.regular) {
    pareto = internal::pareto_moments_fit(tail.excesses_);
    tail.method_ = Method::kMoments;
  }
  tail.shape_ = pareto.shape;
  tail.scale_ = pareto.scale;
  return tail;
}

Result<Tail> Tail::fit_above_share(std::span<const double> values, double share) {
  if (!(share > 0 && share < 1)) {
    return Error{Code::kUnsupported,
                 fmt::format("fit tail: a share of {} is not between 0 and 1", share)};
  }
  return fit(values, quantile(values, share));
}

double Tail::log_likelihood() const {
  return internal::pareto_log_likelihood({shape_, scale_}, excesses_);
}

double Tail::exceedance_probability(double level) const {
  if (!(level > threshold_)) return share_;
  return share_ * internal::pareto_survival({shape_, scale_}, level - threshold_);
}

double Tail::level(double probability) const {
  if (probability >= share_) return threshold_;
  if (!(probability > 0)) return shape_ < 0 ? threshold_ - scale_ / shape_ : kInfinity;
  return threshold_ + internal::pareto_excess({shape_, scale_}, probability / share_);
}

TailInterval Tail::level_interval(double probability) const {
  const double error = log_share_error(share_, excesses_.size());
  const double level = this->level(probability);
  if (!(probability > 0)) return {threshold_ + excesses_.back(), level, kInfinity};
  if (probability >= share_) return {threshold_, threshold_, threshold_ + error * scale_};
  const std::vector<double> used = thinned(excesses_);
  const double log_survival = std::log(probability / share_);
  const Profile profile(
      [&](double log_y) { return internal::pareto_profile(used, std::exp(log_y), log_survival); },
      cut_of(used));
  constexpr double kReach = 40;  // of the logarithm: a factor of 1e17
  const double y = level - threshold_;
  const double log_y = std::log(y);
  const auto [low, high] = profile.accepted(log_y, log_y - kReach, log_y + kReach);
  // How the level moves with the logarithm of the share.
  const double moved = error * scale_ * std::exp(-shape_ * log_survival);
  const double below = std::hypot(std::max(0.0, y - std::exp(low)), moved);
  const double above =
      high >= log_y + kReach ? kInfinity : std::hypot(std::max(0.0, std::exp(high) - y), moved);
  return {level - below, level, level + above};
}

TailInterval Tail::probability_interval(double level) const {
  const double error = log_share_error(share_, excesses_.size());
  const double probability = exceedance_probability(level);
  const double y = level - threshold_;
  if (!(y > 0)) {
    return {probability * std::exp(-error), probability,
            std::min(1.0, probability * std::exp(error))};
  }
  const std::vector<double> used = thinned(excesses_);
  const Profile profile(
      [&](double log_survival) { return internal::pareto_profile(used, y, log_survival); },
      cut_of(used));
  constexpr double kLogHighest = -1e-9;
  const double estimate = std::clamp(std::log(probability / share_), kLogLowest, kLogHighest);
  const auto [low, high] = profile.accepted(estimate, kLogLowest, kLogHighest);
  const double below = std::hypot(std::max(0.0, estimate - low), error);
  const double above = std::hypot(std::max(0.0, high - estimate), error);
  const double centre = estimate + std::log(share_);
  const bool open = low <= kLogLowest || probability == 0;
  return {open ? 0 : std::exp(centre - below), probability,
          std::min(1.0, std::exp(centre + above))};
}

}  // namespace kansoku::stats
