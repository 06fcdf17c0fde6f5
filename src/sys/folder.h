// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::sys {

/// True if `path` names a folder (symbolic links followed). Any thread; may block on the disk.
[[nodiscard]] bool is_folder(const std::string& path);

/// The paths of the regular files directly in `folder`, sorted by name. kNotFound or kPermission
/// with the path; kLimit above `files_max`.
[[nodiscard]] Result<std::vector<std::string>> list_files(const std::string& folder,
                                                          std::size_t files_max);

}  // namespace kansoku::sys
