// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/check.h"

namespace kansoku::simulate {
namespace {

constexpr double kNoJump = std::numeric_limits<double>::infinity();
constexpr std::size_t kJumpsMax = 1'000'000;

double richards(const DriftSpec& spec, double age_s) {
  return spec.floor /
         std::pow(1 + spec.q * std::exp(-spec.rate_per_s * (age_s - spec.inflection_s)),
                  1 / spec.shape);
}

/// Nodes and weights on (-1, 1), half of them: the rest by symmetry. Gauss and Legendre, 8 points.
constexpr std::array<std::pair<double, double>, 4> kGauss{
    {{0.1834346424956498, 0.3626837833783620},
     {0.5255324099163290, 0.3137066458778873},
     {0.7966664774136267, 0.2223810344533745},
     {0.9602898564975363, 0.1012285362903763}}};

template <class F>
double integrate(const F& f, double from, double to) {
  const double middle = (from + to) / 2, half = (to - from) / 2;
  double sum = 0;
  for (const auto& [node, weight] : kGauss)
    sum += weight * (f(middle - half * node) + f(middle + half * node));
  return sum * half;
}

}  // namespace

Drift::Drift(const DriftSpec& spec, double horizon_s, RandomStream random)
    : spec_(spec), horizon_s_(horizon_s) {
  if (spec.kind == DriftKind::kGradual) gradual_at_zero_ = richards(spec, 0);
  if (spec.kind != DriftKind::kSudden) return;
  const auto gap = stats::Distribution::exponential(spec.jump_gap_s);
  double at = 0, sum = 0;
  while (jump_times_.size() < kJumpsMax) {
    at += gap.draw(random.uniform());
    if (at > horizon_s) break;
    sum += spec.jump.draw(random.uniform());
    jump_times_.push_back(at);
    jump_sums_.push_back(sum);
  }
}

double Drift::jumps_before(double when_s) const {
  const auto after = std::upper_bound(jump_times_.begin(), jump_times_.end(), when_s);
  if (after == jump_times_.begin()) return 0;
  return jump_sums_[static_cast<std::size_t>(after - jump_times_.begin()) - 1];
}

double Drift::loss_at_age(double age_s) const {
  switch (spec_.kind) {
    case DriftKind::kGradual:
      // From 0 at age 0, whatever the curve's height there.
      return std::max(0.0, richards(spec_, age_s) - gradual_at_zero_);
    case DriftKind::kRecurring:
      return spec_.amplitude * (1 - std::cos(2 * std::numbers::pi * age_s / spec_.period_s)) / 2;
    case DriftKind::kReplayed: {
      const auto& points = spec_.points;
      const auto above =
          std::upper_bound(points.begin(), points.end(), age_s,
                           [](double age, const auto& point) { return age < point.first; });
      if (above == points.begin()) return std::max(0.0, points.front().second);
      if (above == points.end()) return std::max(0.0, points.back().second);
      const auto& [x0, y0] = *std::prev(above);
      const auto& [x1, y1] = *above;
      return std::max(0.0, y0 + (y1 - y0) * (age_s - x0) / (x1 - x0));
    }
    default:
      return 0;
  }
}

double Drift::loss(double trained_s, double now_s) const {
  if (spec_.kind == DriftKind::kSudden) return jumps_before(now_s) - jumps_before(trained_s);
  return loss_at_age(now_s - trained_s);
}

std::vector<double> Drift::corners(double trained_s, double from_s, double to_s) const {
  std::vector<double> at{from_s};
  const auto add = [&](double when) {
    if (when > at.back() && when < to_s) at.push_back(when);
  };
  if (spec_.kind == DriftKind::kSudden) {
    for (auto jump = std::upper_bound(jump_times_.begin(), jump_times_.end(), from_s);
         jump != jump_times_.end() && *jump < to_s; ++jump)
      add(*jump);
  } else if (spec_.kind == DriftKind::kReplayed) {
    for (const auto& [age, loss] : spec_.points)
      add(trained_s + age);
  } else if (spec_.kind == DriftKind::kGradual || spec_.kind == DriftKind::kRecurring) {
    // Smooth, but eight points are to see a piece of at most a quarter of its scale.
    const double scale =
        spec_.kind == DriftKind::kGradual ? 1 / spec_.rate_per_s : spec_.period_s / 8;
    const double pieces = std::min(std::ceil((to_s - from_s) / scale), 10'000.0);
    for (double piece = 1; piece < pieces; ++piece)
      add(from_s + (to_s - from_s) * piece / pieces);
  }
  at.push_back(to_s);
  return at;
}

double Drift::integral(double trained_s, double from_s, double to_s) const {
  if (spec_.kind == DriftKind::kNone || to_s <= from_s) return 0;
  const std::vector<double> at = corners(trained_s, from_s, to_s);
  double sum = 0;
  for (std::size_t i = 1; i < at.size(); ++i)
    sum += spec_.kind == DriftKind::kSudden
               ? loss(trained_s, at[i - 1]) * (at[i] - at[i - 1])
               : integrate([&](double now) { return loss(trained_s, now); }, at[i - 1], at[i]);
  return sum;
}

double Drift::gradual_crossing_age(double level) const {
  const double wanted = level + gradual_at_zero_;
  if (wanted >= spec_.floor) return kNoJump;
  // floor / (1 + q e^(-rate (t - m)))^(1/shape) = wanted, solved for t.
  const double base = std::pow(spec_.floor / wanted, spec_.shape) - 1;
  return spec_.inflection_s - std::log(base / spec_.q) / spec_.rate_per_s;
}

double Drift::recurring_crossing_age(double from_age, double level) const {
  if (level > spec_.amplitude) return kNoJump;
  const double phase = std::acos(1 - 2 * level / spec_.amplitude) / (2 * std::numbers::pi);
  const double cycle = std::floor(from_age / spec_.period_s);
  const double up = (cycle + phase) * spec_.period_s, down = (cycle + 1 - phase) * spec_.period_s;
  if (from_age <= up) return up;
  return from_age <= down ? from_age : (cycle + 1 + phase) * spec_.period_s;
}

double Drift::replayed_crossing_age(double from_age, double level) const {
  if (loss_at_age(from_age) >= level) return from_age;
  const auto& points = spec_.points;
  double x0 = from_age, y0 = loss_at_age(from_age);
  for (const auto& [x1, y1] : points) {
    if (x1 <= from_age) continue;
    if (y1 >= level) return x0 + (x1 - x0) * (level - y0) / (y1 - y0);
    x0 = x1;
    y0 = y1;
  }
  return kNoJump;
}

double Drift::sudden_crossing(double trained_s, double from_s, double level) const {
  const double before = jumps_before(trained_s);
  for (std::size_t i = 0; i < jump_times_.size(); ++i)
    if (jump_sums_[i] - before >= level && jump_times_[i] > trained_s)
      return std::max(from_s, jump_times_[i]);
  return kNoJump;
}

double Drift::crossing(double trained_s, double from_s, double level) const {
  if (loss(trained_s, from_s) >= level) return from_s;
  double at = kNoJump;
  switch (spec_.kind) {
    case DriftKind::kGradual:
      at = trained_s + gradual_crossing_age(level);
      break;
    case DriftKind::kRecurring:
      at = trained_s + recurring_crossing_age(from_s - trained_s, level);
      break;
    case DriftKind::kReplayed:
      at = trained_s + replayed_crossing_age(from_s - trained_s, level);
      break;
    case DriftKind::kSudden:
      at = sudden_crossing(trained_s, from_s, level);
      break;
    case DriftKind::kNone:
      break;
  }
  return at > horizon_s_ ? kNoJump : std::max(at, from_s);
}

double Drift::area_crossing(double trained_s, double from_s, double area) const {
  if (area <= 0) return from_s;
  if (spec_.kind == DriftKind::kNone) return kNoJump;
  // The integral never falls: walk in growing spans, then halve.
  double low = from_s, have = 0;
  double step = std::max(1.0, (horizon_s_ - from_s) / 1024);
  while (low < horizon_s_) {
    const double high = std::min(horizon_s_, low + step);
    const double more = integral(trained_s, low, high);
    if (have + more >= area) {
      double left = low, right = high;
      for (int i = 0; i < 60 && right - left > 1e-3; ++i) {
        const double middle = (left + right) / 2;
        (have + integral(trained_s, low, middle) >= area ? right : left) = middle;
      }
      return right;
    }
    have += more;
    low = high;
  }
  return kNoJump;
}

}  // namespace kansoku::simulate
