// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>

#include "common/result.h"

namespace kansoku::sys {

/// True if the kernel gives this program more rights than its user has: set-user-id, or file
/// capabilities. Then its environment is a stranger's.
[[nodiscard]] bool has_borrowed_rights();
/// True if this process may do more than an ordinary user: it is root's, or has any capability.
[[nodiscard]] bool is_privileged();

/// Variables of the environment that name files and folders of ours.
inline constexpr std::array<const char*, 5> kPathVariables{"KANSOKU_SHARE", "KANSOKU_SOFTGPU_LIBS",
                                                           "KANSOKU_SOFTGPU_DIR", "KANSOKU_DUCKDB",
                                                           "KANSOKU_NVML"};
/// kPermission with borrowed rights if one of them is set: to be called before anything else.
[[nodiscard]] Result<void> check_environment();
/// The value of a variable that names a file or a folder, these and HOME; none where it is not set
/// or empty, and with borrowed rights.
[[nodiscard]] std::optional<std::string> path_from_environment(const char* name);

/// Succeeds if only root can change the existing `path`: the file, each folder above it, and those
/// that symbolic links lead through. A folder in which everybody may make files of their own (/tmp)
/// does for a file of root's. kPermission names the part that others can write to.
[[nodiscard]] Result<void> check_only_root_writes(const std::string& path);

/// To be called before a library is loaded into this process: a privileged one loads only files
/// that nobody but root can have changed. `library`: a path, or a name that the loader looks for;
/// then the folders of LD_LIBRARY_PATH are looked at. kPermission.
[[nodiscard]] Result<void> check_loadable(const std::string& library);

}  // namespace kansoku::sys
