// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kansoku::sys {

/// Nanoseconds for which the processor quota of the control group of `pid` has held its members
/// back so far (version 1 or 2); nothing if it has no quota controller or cannot be read.
/// `cgroup_root` is where control groups are mounted.
[[nodiscard]] std::optional<std::uint64_t> throttled_ns(
    std::int32_t pid, const std::string& proc_root = "/proc",
    const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace kansoku::sys
