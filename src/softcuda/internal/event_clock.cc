// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/event_clock.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "common/parse.h"

namespace kansoku::softcuda {
namespace {

constexpr double kOffsetMaxUs = 86'400e6, kDriftMaxPpm = 1000;

std::optional<double> number_within(std::string_view untrusted, double limit) {
  const auto number = parse_double(untrusted);
  if (!number || !(std::abs(*number) <= limit)) return std::nullopt;
  return number;
}

}  // namespace

Result<ClockSkew> clock_skew_from(std::string_view setting) {
  ClockSkew skew;
  std::string_view rest = setting;
  bool has_offset = false, has_drift = false;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : part.substr(equals + 1);
    const bool is_offset = key == "offset_us" && !has_offset;
    const bool is_drift = key == "drift_ppm" && !has_drift;
    const auto number = is_offset  ? number_within(value, kOffsetMaxUs)
                        : is_drift ? number_within(value, kDriftMaxPpm)
                                   : std::nullopt;
    if (!number) {
      return Error{Code::kCorrupt,
                   fmt::format("KANSOKU_SOFTGPU_EVENT_CLOCK={}: \"{}\" is not offset_us=NUMBER or "
                               "drift_ppm=NUMBER (at most a day, 1000 ppm), each once",
                               setting, part)};
    }
    (is_offset ? skew.offset_ns : skew.drift_ppb) = std::llround(*number * 1000);
    (is_offset ? has_offset : has_drift) = true;
    if (part.size() == rest.size()) return skew;
    rest.remove_prefix(part.size() + 1);
  }
}

BootTime EventClock::at(BootTime host) const {
  // In two parts: nanoseconds times parts per billion overflow after nine seconds.
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t ns = host.time_since_epoch().count();
  const std::int64_t gained =
      ns / kSecond * skew_.drift_ppb + ns % kSecond * skew_.drift_ppb / kSecond;
  return host + Nanos{skew_.offset_ns + gained};
}

}  // namespace kansoku::softcuda
