// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/time.h"
#include "simulate/des/resource.h"

namespace kansoku::simulate {

/// A level over time: its mean since the warm-up, exact, and its means over equal spans of the
/// horizon. What happens after the horizon (draining) counts in the integral alone.
class Level {
 public:
  Level(Nanos warmup, Nanos horizon, int points)
      : warmup_(warmup), step_(points > 0 ? horizon / points : horizon), points_(points) {
    if (step_ <= Nanos{0}) step_ = Nanos{1};
    next_ = step_;
    means_.reserve(static_cast<std::size_t>(points));
  }

  void change(Nanos now, std::int64_t by) {
    pass(now);
    integral_.change(now, by);
  }
  [[nodiscard]] std::int64_t now() const { return integral_.level(); }
  /// Units x nanoseconds since time 0.
  [[nodiscard]] des::Wide total(Nanos now) const { return integral_.at(now); }
  [[nodiscard]] double mean_since_warmup(Nanos now) {
    pass(now);
    return integral_.mean(now, warmup_, at_warmup_);
  }
  [[nodiscard]] std::vector<double> series(Nanos end) {
    pass(end);
    return means_;
  }

 private:
  void pass(Nanos now) {
    if (now < next_ && (warm_ || now < warmup_)) return;
    pass_slowly(now);
  }
  void pass_slowly(Nanos now) {
    if (!warm_ && now >= warmup_) {
      warm_ = true;
      at_warmup_ = integral_.at(warmup_);
    }
    while (now >= next_ && means_.size() < static_cast<std::size_t>(points_)) {
      const des::Wide at_next = integral_.at(next_);
      means_.push_back(static_cast<double>(at_next - at_last_) /
                       static_cast<double>(step_.count()));
      at_last_ = at_next;
      next_ += step_;
    }
    if (means_.size() >= static_cast<std::size_t>(points_)) next_ = Nanos::max();
  }

  Nanos warmup_, step_, next_{0};
  int points_;
  bool warm_{false};
  des::TimeIntegral integral_;
  des::Wide at_warmup_{0}, at_last_{0};
  std::vector<double> means_;
};

}  // namespace kansoku::simulate
