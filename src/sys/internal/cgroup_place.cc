// SPDX-License-Identifier: Apache-2.0
#include "sys/internal/cgroup_place.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>

#include "common/parse.h"
#include "sys/fd.h"
#include "sys/internal/kept_file.h"

namespace kansoku::sys::internal {
namespace {

constexpr std::size_t kProcsBytesMax = 1U << 20;
constexpr int kFoldersMax = 100'000, kDepthMax = 32;

bool holds(const std::filesystem::path& folder, std::int32_t pid) {
  const auto text = read_file((folder / "cgroup.procs").string(), kProcsBytesMax);
  if (!text) return false;
  std::string_view rest = *text;
  while (!rest.empty()) {
    if (parse_int<std::int32_t>(cut_line(rest)) == pid) return true;
  }
  return false;
}

std::optional<std::filesystem::path> group_of(const std::filesystem::path& root, std::int32_t pid) {
  if (holds(root, pid)) return root;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(
      root, std::filesystem::directory_options::skip_permission_denied, error);
  int seen = 0;
  for (; !error && at != std::filesystem::recursive_directory_iterator{}; at.increment(error)) {
    if (!at->is_directory(error) || at->is_symlink(error)) continue;
    if (++seen > kFoldersMax) break;
    if (holds(at->path(), pid)) return at->path();
    if (at.depth() >= kDepthMax) at.disable_recursion_pending();
  }
  return std::nullopt;
}

/// The path after "0::" in the file of `pid`.
std::optional<std::string> own_path(const std::string& proc_root, std::int32_t pid) {
  const auto text = read_file(fmt::format("{}/{}/cgroup", proc_root, pid), kProcsBytesMax);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = cut_line(rest);
    if (line.starts_with("0::/")) return std::string(line == "0::/" ? "" : line.substr(3));
  }
  return std::nullopt;
}

std::optional<std::string> find_group(const std::string& cgroup_root, const std::string& proc_root,
                                      std::int32_t own_pid) {
  const auto told = own_path(proc_root, own_pid);
  if (!told) return std::nullopt;
  const auto found = group_of(cgroup_root, own_pid);
  if (!found) return std::nullopt;
  std::string group = found->string().substr(cgroup_root.size());
  // It may have gone into a group below that of its namespace since.
  if (!group.ends_with(*told)) return std::nullopt;
  group.resize(group.size() - told->size());
  return group;
}

}  // namespace

std::optional<std::string> namespace_group(const std::string& cgroup_root,
                                           const std::string& proc_root, std::int32_t own_pid) {
  static std::mutex mu;
  struct Known {
    std::optional<std::string> group;
    std::uint64_t asked{0};
  };
  static std::map<std::string, Known> known;
  const std::lock_guard lock(mu);
  Known& entry = known[cgroup_root];
  // A group that vanished ends the search: it is tried again, ever more rarely.
  const std::uint64_t asked = ++entry.asked;
  const bool is_turn = std::has_single_bit(asked) && std::countr_zero(asked) % 6 == 0;  // 1, 64 ...
  if (!entry.group && is_turn) entry.group = find_group(cgroup_root, proc_root, own_pid);
  return entry.group;
}

std::optional<std::string> path_from_root(std::string_view untrusted_path,
                                          std::string_view namespace_group) {
  std::string_view path = untrusted_path == "/" ? "" : untrusted_path, above = namespace_group;
  while (path == "/.." || path.starts_with("/../")) {
    if (above.empty()) return std::nullopt;
    above = above.substr(0, above.rfind('/'));
    path.remove_prefix(3);
  }
  if (path.find("..") != std::string_view::npos) return std::nullopt;
  return fmt::format("{}{}", above, path);
}

}  // namespace kansoku::sys::internal
