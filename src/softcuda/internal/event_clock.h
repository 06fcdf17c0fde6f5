// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"
#include "common/time.h"

namespace kansoku::softcuda {

/// How the device's clock differs from the host's.
struct ClockSkew {
  std::int64_t offset_ns{0};
  std::int64_t drift_ppb{0};  // gain in a second, in nanoseconds
};

/// "offset_us=250,drift_ppm=50", either part or both: at most a day, and 1000 ppm, to each side.
/// kCorrupt names the mistake.
[[nodiscard]] Result<ClockSkew> clock_skew_from(std::string_view setting);

/// The device's clock: the host's with an offset and a drift, counted from the host's 0, so that
/// all processes see the same. `host` must outlive it. Any thread.
class EventClock final : public Clock {
 public:
  explicit EventClock(const Clock& host) : host_(host) {}
  /// Before anybody asks for a time.
  void set(const ClockSkew& skew) { skew_ = skew; }
  [[nodiscard]] BootTime now() const override { return at(host_.now()); }
  /// Time of this clock at time `host` of the host's.
  [[nodiscard]] BootTime at(BootTime host) const;

 private:
  const Clock& host_;
  ClockSkew skew_;
};

}  // namespace kansoku::softcuda
