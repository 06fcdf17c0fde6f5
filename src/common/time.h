// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace kansoku {

using Nanos = std::chrono::nanoseconds;

inline constexpr double kNsPerMs = 1e6;

/// CLOCK_BOOTTIME: monotonic, counts suspend; the clock of every Kansoku trace.
struct BootClock {
  using duration = Nanos;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
};
using BootTime = BootClock::time_point;

/// `ns` nanoseconds since boot as a typed time.
[[nodiscard]] constexpr BootTime boot_time(std::int64_t ns) {
  return BootTime{Nanos{ns}};
}

/// Source of time, passed in wherever time matters. Implementations are safe on any thread.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual BootTime now() const = 0;
};

/// A clock that moves only when told to; for tests.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  BootTime now_{};
};

}  // namespace kansoku
