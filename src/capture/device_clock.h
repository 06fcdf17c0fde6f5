// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "common/time.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// Puts the times of another clock (a device's, a library's) on boot time, with a bound of the
/// error, from readings of it between two of boot time. Sound as long as that clock's rate is off
/// by no more than kDriftMax: each reading bounds the offset, the less the older it is, and all of
/// them together bound it best (the intersection of their intervals). Single-threaded.
class DeviceClock {
 public:
  static constexpr double kDriftMax = 200e-6;  // of a crystal over its range of temperature: 100e-6
  static constexpr std::size_t kReadingsMax = 64;

  explicit DeviceClock(std::string name) : name_(std::move(name)) {}

  /// It was read between these two. One that contradicts those before shows that the clock was set
  /// or began anew: they are forgotten, and restarts() counts it.
  void add(std::int64_t device_ns, BootTime before, BootTime after);

  struct Mapped {
    BootTime time{};
    Nanos error{};  // the true time lies no further away
  };
  /// Nothing before the first reading.
  [[nodiscard]] std::optional<Mapped> to_boot(std::int64_t device_ns) const;

  [[nodiscard]] std::uint64_t restarts() const { return restarts_; }
  /// True once two readings agree that lie so far apart, for their width, that the clock's rate is
  /// that of time within a quarter. Until then a clock that stands still, or runs as it likes, may
  /// only not have contradicted itself yet.
  [[nodiscard]] bool keeps_pace() const { return keeps_pace_; }
  /// Writes the present map into the trace: metadata "kansoku.clock.NAME", "offset_ns=... at_ns=...
  /// error_ns=... drift_max=... restarts=...": boot time = device time + offset, at that device
  /// time. `worst`: the largest error of the mapped times, "worst_error_ns=..." unless it is 0.
  void write(trace::Writer& writer, BootTime now, Nanos worst = {}) const;

 private:
  struct Reading {
    std::int64_t device_ns{0};
    std::int64_t low_ns{0}, high_ns{0};  // boot time less device time lies between
  };
  struct Bounds {  // of the offset, less base_ns_: an offset of half a century has no nanoseconds
    double low{0}, high{0};
  };
  [[nodiscard]] Bounds bounds_at(std::int64_t device_ns) const;

  std::string name_;
  std::deque<Reading> readings_;
  std::int64_t base_ns_{0};  // near the offset
  std::uint64_t restarts_{0};
  bool keeps_pace_{false};
};

}  // namespace kansoku::capture
