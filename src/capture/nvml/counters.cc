// SPDX-License-Identifier: Apache-2.0
#include "capture/nvml/counters.h"

#include <array>
#include <utility>

namespace kansoku::capture::nvml {

std::vector<std::string_view> throttle_reason_names(std::uint64_t reasons) {
  static constexpr std::array<std::pair<std::uint64_t, std::string_view>, 9> kNames{{
      {0x1, "idle"},
      {0x2, "application_clocks"},
      {0x4, "sw_power_cap"},
      {0x8, "hw_slowdown"},
      {0x10, "sync_boost"},
      {0x20, "sw_thermal"},
      {0x40, "hw_thermal"},
      {0x80, "hw_power_brake"},
      {0x100, "display_clocks"},
  }};
  std::vector<std::string_view> names;
  for (const auto& [bit, name] : kNames) {
    if ((reasons & bit) != 0) names.push_back(name);
  }
  return names;
}

std::optional<std::uint64_t> counter_change(std::optional<std::uint64_t> before,
                                            std::optional<std::uint64_t> now) {
  if (!before || !now || *now < *before) return std::nullopt;
  return *now - *before;
}

}  // namespace kansoku::capture::nvml
