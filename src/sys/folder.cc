// SPDX-License-Identifier: Apache-2.0
#include "sys/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace kansoku::sys {
namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<std::vector<std::string>> list_files(const std::string& folder, std::size_t files_max) {
  std::error_code error;
  std::vector<std::string> files;
  fs::directory_iterator at(folder, fs::directory_options::none, error);
  if (error) return errno_error(error.value(), "list", folder);
  for (const fs::directory_iterator end; at != end; at.increment(error)) {
    if (error) return errno_error(error.value(), "list", folder);
    std::error_code unreadable;
    if (!at->is_regular_file(unreadable)) continue;
    if (files.size() >= files_max)
      return Error{Code::kLimit, fmt::format("list {}: more than {} files", folder, files_max)};
    files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace kansoku::sys
