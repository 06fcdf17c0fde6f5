// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup.h"

#include <fmt/format.h>

#include <string_view>

#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;

/// Calls `each` with every line.
template <class Each>
void lines(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    each(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

/// The number after `key` and a blank at the start of a line.
std::optional<std::uint64_t> value_of(const std::string& path, std::string_view key) {
  const auto text = read_file(path, kFileBytesMax);
  if (!text) return std::nullopt;
  std::optional<std::uint64_t> found;
  lines(*text, [&](std::string_view line) {
    if (line.size() <= key.size() || !line.starts_with(key) || line[key.size()] != ' ') return;
    found = parse_int<std::uint64_t>(line.substr(key.size() + 1));
  });
  return found;
}

bool has_controller(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

std::optional<std::uint64_t> throttled_ns(std::int32_t pid, const std::string& proc_root,
                                          const std::string& cgroup_root) {
  const auto groups = read_file(fmt::format("{}/{}/cgroup", proc_root, pid), kFileBytesMax);
  if (!groups) return std::nullopt;
  std::optional<std::uint64_t> found;
  lines(*groups, [&](std::string_view line) {  // "4:cpu,cpuacct:/path" or "0::/path"
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos || found) return;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (path.find("..") != std::string::npos) return;
    if (has_controller(controllers, "cpu")) {
      for (const std::string folder : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
        found =
            value_of(fmt::format("{}/{}{}/cpu.stat", cgroup_root, folder, path), "throttled_time");
        if (found) return;
      }
    }
    if (controllers.empty()) {
      if (const auto us =
              value_of(fmt::format("{}{}/cpu.stat", cgroup_root, path), "throttled_usec"))
        found = *us * 1000;
    }
  });
  return found;
}

}  // namespace kansoku::sys
