// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kansoku::sys::internal {

/// Root of this process's namespace of control groups (version 2) in the tree that is mounted at
/// `cgroup_root`: "/kubepods.slice/pod/container", "" at the root of the tree. Paths in
/// /proc/PID/cgroup are relative to it, with ".." for groups outside. Looks through the tree for
/// the group that holds `own_pid`; later asks for a root get the same answer. Nothing if it is not
/// there, as if only the namespace's own part is mounted; then it is looked for again at the 64th
/// ask, the 4,096th and so on. Any thread.
[[nodiscard]] std::optional<std::string> namespace_group(const std::string& cgroup_root,
                                                         const std::string& proc_root,
                                                         std::int32_t own_pid);

/// `path` of /proc/PID/cgroup as a path below the root of the tree; nothing if it leads out of it.
[[nodiscard]] std::optional<std::string> path_from_root(std::string_view untrusted_path,
                                                        std::string_view namespace_group);

}  // namespace kansoku::sys::internal
