// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/time.h"

namespace kansoku::capture {

/// Decides when probes at launch rate are on: always, while their cost stays below the budget;
/// otherwise in a slice of each second. Pure; told the time.
class CudaGovernor {
 public:
  static constexpr Nanos kPeriod = std::chrono::seconds{1};
  static constexpr Nanos kFirst = std::chrono::milliseconds{100};  // the rate is not known yet
  static constexpr Nanos kSliceMin = std::chrono::milliseconds{50};
  static constexpr double kWantedMin = 0.1;  // of the budget, however much was above it before

  /// `budget`: seconds of processor time a second, all observed processes together.
  /// `hit_seconds`: of one hit.
  CudaGovernor(double budget, double hit_seconds) : budget_(budget), hit_seconds_(hit_seconds) {}

  /// True if the probes are to be on from `now` on. `hits`: of all of them, so far.
  [[nodiscard]] bool decide(BootTime now, std::uint64_t hits);
  /// When to decide again at the latest.
  [[nodiscard]] BootTime next() const { return next_; }

  /// The share of the time for which they were on.
  [[nodiscard]] double share_on() const;
  /// Hits a second while they were on, in the last second.
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] double hit_seconds() const { return hit_seconds_; }
  [[nodiscard]] bool is_sliced() const { return slice_ < kPeriod; }

 private:
  void end_period(BootTime now, std::uint64_t hits);

  double budget_, hit_seconds_;
  double rate_{0};
  double debt_{0};  // seconds of processor time above the budget that are not saved yet
  bool is_started_{false}, is_on_{true};
  Nanos slice_{kPeriod}, length_{kFirst};  // of this period
  Nanos on_{}, all_{};                     // so far
  Nanos on_in_period_{};
  std::uint64_t hits_before_{0};
  BootTime last_{}, period_{}, next_{};
};

}  // namespace kansoku::capture
