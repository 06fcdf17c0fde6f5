// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kansoku::cli {

inline constexpr const char* kStateFolder = "/var/lib/kansoku";

/// "2026-11-22 04:05:06" in UTC.
[[nodiscard]] std::string wall_text(std::int64_t wall_ns);

}  // namespace kansoku::cli
