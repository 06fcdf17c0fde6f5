// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::cli {

inline constexpr const char* kStateFolder = "/var/lib/kansoku";

/// Asks the agent whose state folder that is. The answer without its "ok". kNotFound if none runs
/// there; errors of the agent come back as they are. Waits for five seconds at most.
[[nodiscard]] Result<Json> ask_agent(const std::string& state_folder, const Json& request);

/// "2026-11-22 04:05:06" in UTC.
[[nodiscard]] std::string wall_text(std::int64_t wall_ns);

}  // namespace kansoku::cli
