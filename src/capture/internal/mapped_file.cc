// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/mapped_file.h"

#include <fmt/format.h>

namespace kansoku::capture {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

bool is_deleted(std::string_view path) {
  return path.size() > kDeleted.size() && path.ends_with(kDeleted);
}

}  // namespace

std::string library_name(std::string_view mapped_path) {
  if (is_deleted(mapped_path)) mapped_path.remove_suffix(kDeleted.size());
  return std::string(mapped_path.substr(mapped_path.rfind('/') + 1));
}

Result<sys::Fd> open_mapped(const sys::Procfs& procfs, std::int32_t pid,
                            const sys::Mapping& mapping) {
  // A file that was replaced under a running process is still there, behind its mapping.
  return sys::Fd::open_regular(
      is_deleted(mapping.path)
          ? fmt::format("{}/{}/map_files/{:x}-{:x}", procfs.root(), pid, mapping.begin, mapping.end)
          : procfs.through_root(pid, mapping.path));
}

}  // namespace kansoku::capture
