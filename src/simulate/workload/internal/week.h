// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/time.h"

namespace kansoku::simulate::internal {

inline constexpr std::int64_t kHourNs = 3'600'000'000'000;
inline constexpr std::int64_t kDayNs = 24 * kHourNs;
inline constexpr std::int64_t kWeekNs = 7 * kDayNs;
/// Latest end of a stream of arrivals, 146 years: sums of two such times do not overflow.
inline constexpr std::int64_t kStreamMaxNs = std::int64_t{1} << 62;

/// floor(a / b), b > 0.
[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// A time as nanoseconds since the Monday 00:00 at or before time 0. No calendar and no time zone
/// of the reader enters: the source's own local time decides.
[[nodiscard]] constexpr std::int64_t since_monday_ns(std::int64_t epoch_in_week_s, Nanos at) {
  return epoch_in_week_s * 1'000'000'000 + at.count();
}

/// 0..167 of a time since some Monday 00:00.
[[nodiscard]] constexpr int hour_of_week(std::int64_t since_monday_ns) {
  const std::int64_t hour = floor_div(since_monday_ns, kHourNs) % 168;
  return static_cast<int>(hour < 0 ? hour + 168 : hour);
}

[[nodiscard]] constexpr double seconds(Nanos duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

/// The nearest nanosecond, at most kStreamMaxNs; 0 for a value that is negative or not a number.
[[nodiscard]] constexpr Nanos nanos_of(double seconds) {
  if (!(seconds > 0)) return Nanos{0};
  const double ns = seconds * 1e9 + 0.5;
  return ns >= static_cast<double>(kStreamMaxNs) ? Nanos{kStreamMaxNs}
                                                 : Nanos{static_cast<std::int64_t>(ns)};
}

}  // namespace kansoku::simulate::internal
