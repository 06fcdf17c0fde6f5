// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/time.h"
#include "simulate/des/resource.h"

namespace kansoku::simulate {

/// A level over time: its mean between the warm-up and the horizon, exact, and its means over equal
/// spans of the horizon. Later changes (draining) count in total() alone.
class Level {
 public:
  Level(Nanos warmup, Nanos horizon, int points)
      : warmup_(warmup),
        horizon_(horizon),
        step_(points > 0 ? horizon / points : horizon),
        points_(points) {
    if (step_ <= Nanos{0}) step_ = Nanos{1};
    next_step_ = step_;
    next_ = std::min({warmup_, horizon_, next_step_});
    means_.reserve(static_cast<std::size_t>(points));
  }

  void change(Nanos now, std::int64_t by) {
    if (now >= next_) pass(now);
    integral_.change(now, by);
  }
  [[nodiscard]] std::int64_t now() const { return integral_.level(); }
  /// Units x nanoseconds since time 0.
  [[nodiscard]] des::Wide total(Nanos now) const { return integral_.at(now); }
  /// Mean between the warm-up and the horizon, or `now` if that comes first.
  [[nodiscard]] double mean(Nanos now) {
    if (now >= next_) pass(now);
    if (now < horizon_) return integral_.mean(now, warmup_, at_warmup_);
    if (horizon_ <= warmup_) return 0;
    return static_cast<double>(at_horizon_ - at_warmup_) /
           static_cast<double>((horizon_ - warmup_).count());
  }
  [[nodiscard]] std::vector<double> series(Nanos now) {
    if (now >= next_) pass(now);
    return means_;
  }

 private:
  void pass(Nanos now) {
    if (now >= warmup_ && !std::exchange(warm_, true)) at_warmup_ = integral_.at(warmup_);
    if (now >= horizon_ && !std::exchange(over_, true)) at_horizon_ = integral_.at(horizon_);
    while (now >= next_step_ && means_.size() < static_cast<std::size_t>(points_)) {
      const des::Wide at_step = integral_.at(next_step_);
      means_.push_back(static_cast<double>(at_step - at_last_) /
                       static_cast<double>(step_.count()));
      at_last_ = at_step;
      next_step_ += step_;
    }
    next_ = Nanos::max();
    if (!warm_) next_ = std::min(next_, warmup_);
    if (!over_) next_ = std::min(next_, horizon_);
    if (means_.size() < static_cast<std::size_t>(points_)) next_ = std::min(next_, next_step_);
  }

  Nanos warmup_, horizon_, step_, next_step_{0}, next_{0};
  int points_;
  bool warm_{false}, over_{false};
  des::TimeIntegral integral_;
  des::Wide at_warmup_{0}, at_horizon_{0}, at_last_{0};
  std::vector<double> means_;
};

}  // namespace kansoku::simulate
