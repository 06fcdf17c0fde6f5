// SPDX-License-Identifier: Apache-2.0
#include "capture/device_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kansoku::capture {
namespace {

std::int64_t ns(BootTime time) {
  return time.time_since_epoch().count();
}

}  // namespace

// How far the offset may have moved between two device times.
DeviceClock::Bounds DeviceClock::bounds_at(std::int64_t device_ns) const {
  Bounds out{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  for (const Reading& reading : readings_) {
    const double moved = kDriftMax * std::fabs(static_cast<double>(device_ns - reading.device_ns));
    out.low = std::max(out.low, static_cast<double>(reading.low_ns - base_ns_) - moved);
    out.high = std::min(out.high, static_cast<double>(reading.high_ns - base_ns_) + moved);
  }
  return out;
}

void DeviceClock::add(std::int64_t device_ns, BootTime before, BootTime after) {
  if (after < before) return;  // nothing lies between
  const Reading reading{device_ns, ns(before) - device_ns, ns(after) - device_ns};
  const Bounds known = bounds_at(device_ns);
  const bool contradicts = static_cast<double>(reading.low_ns - base_ns_) > known.high ||
                           static_cast<double>(reading.high_ns - base_ns_) < known.low;
  if (contradicts) {
    ++restarts_;
    readings_.clear();
    keeps_pace_ = false;
  }
  constexpr std::int64_t kWidthsApart = 4;
  keeps_pace_ =
      keeps_pace_ || std::any_of(readings_.begin(), readings_.end(), [&](const Reading& old) {
        const std::int64_t widths = reading.high_ns - reading.low_ns + old.high_ns - old.low_ns;
        return ns(before) - (old.high_ns + old.device_ns) >= kWidthsApart * widths;
      });
  if (readings_.empty()) base_ns_ = reading.low_ns;
  readings_.push_back(reading);
  if (readings_.size() <= kReadingsMax) return;
  // The one that bounds least now goes: the widest, counting its loss by age.
  const auto width = [&](const Reading& one) {
    return static_cast<double>(one.high_ns - one.low_ns) +
           2 * kDriftMax * static_cast<double>(device_ns - one.device_ns);
  };
  readings_.erase(
      std::max_element(readings_.begin(), readings_.end(),
                       [&](const Reading& a, const Reading& b) { return width(a) < width(b); }));
}

std::optional<DeviceClock::Mapped> DeviceClock::to_boot(std::int64_t device_ns) const {
  if (readings_.empty()) return std::nullopt;
  const Bounds bounds = bounds_at(device_ns);
  const double offset = (bounds.low + bounds.high) / 2;
  return Mapped{boot_time(device_ns + base_ns_ + std::llround(offset)),
                Nanos{std::llround(std::ceil((bounds.high - bounds.low) / 2)) + 1}};
}

void DeviceClock::write(trace::Writer& writer, BootTime now, Nanos worst) const {
  if (readings_.empty()) return;
  const std::int64_t at = readings_.back().device_ns;
  const Mapped mapped = *to_boot(at);
  writer.metadata("kansoku.clock." + name_,
                  fmt::format("offset_ns={} at_ns={} error_ns={} drift_max={:g} restarts={}{}",
                              ns(mapped.time) - at, at, mapped.error.count(), kDriftMax, restarts_,
                              worst > Nanos{} ? fmt::format(" worst_error_ns={}", worst.count())
                                              : std::string{}),
                  now);
}

}  // namespace kansoku::capture
