// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "sys/fd.h"
#include "sys/internal/kept_file.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;

bool has_controller(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

/// One line of /proc/PID/cgroup: "4:cpu,cpuacct:/path" or "0::/path". The path may hold colons.
struct Group {
  std::string_view controllers, path;
};
std::optional<Group> parse_group(std::string_view line) {
  const std::size_t first = line.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  return Group{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

/// Folders that may hold the files of `controller` for a process, the likeliest first; "" as
/// controller: version 2.
std::vector<std::string> folders_of(std::string_view groups, std::string_view controller,
                                    const std::string& root) {
  std::vector<std::string> folders;
  while (!groups.empty()) {
    const auto group = parse_group(cut_line(groups));
    // ".." is a group outside of the namespace of this process.
    if (!group || group->path.find("..") != std::string_view::npos) continue;
    const std::string_view path = group->path == "/" ? "" : group->path;
    if (controller.empty() && group->controllers.empty()) {
      folders.push_back(fmt::format("{}{}", root, path));
      folders.push_back(fmt::format("{}/unified{}", root, path));
    } else if (!controller.empty() && has_controller(group->controllers, controller)) {
      folders.push_back(fmt::format("{}/{}{}", root, controller, path));
      folders.push_back(fmt::format("{}/{}{}", root, group->controllers, path));
    }
  }
  return folders;
}

KeptFile open_first(const std::vector<std::string>& folders, std::string_view name) {
  for (const std::string& folder : folders) {
    if (auto file = KeptFile::open(fmt::format("{}/{}", folder, name))) return std::move(*file);
  }
  return {};
}

/// The number behind `key` and a blank at the start of a line.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = cut_line(text);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ')
      return parse_int<std::uint64_t>(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> times(std::optional<std::uint64_t> value, std::uint64_t factor) {
  if (!value || *value > UINT64_MAX / factor) return std::nullopt;
  return *value * factor;
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  return parse_int<std::uint64_t>(cut_line(text));
}

}  // namespace

CgroupCpu parse_cpu_stat(std::string_view untrusted) {
  constexpr std::uint64_t kNsPerUs = 1000;
  CgroupCpu out;
  out.periods = value_of(untrusted, "nr_periods");
  out.throttled_periods = value_of(untrusted, "nr_throttled");
  out.throttled_ns = value_of(untrusted, "throttled_time");  // version 1
  if (!out.throttled_ns) out.throttled_ns = times(value_of(untrusted, "throttled_usec"), kNsPerUs);
  out.used_ns = times(value_of(untrusted, "usage_usec"), kNsPerUs);
  return out;
}

struct CgroupSampler::Files {
  std::string unified_folder;
  KeptFile cpu;
  KeptFile memory, memory_limit, memory_events;
};

CgroupSampler::CgroupSampler(std::unique_ptr<Files> files) : files_(std::move(files)) {}
CgroupSampler::CgroupSampler(CgroupSampler&&) noexcept = default;
CgroupSampler& CgroupSampler::operator=(CgroupSampler&&) noexcept = default;
CgroupSampler::~CgroupSampler() = default;

const std::string& CgroupSampler::unified_folder() const {
  return files_->unified_folder;
}

Result<CgroupSampler> CgroupSampler::open(std::int32_t pid) {
  return open(pid, Options{});
}

Result<CgroupSampler> CgroupSampler::open(std::int32_t pid, const Options& options) {
  TRY(const std::string groups,
      read_file(fmt::format("{}/{}/cgroup", options.proc_root, pid), kFileBytesMax));
  const std::string& root = options.cgroup_root;
  const auto unified = folders_of(groups, "", root);
  auto files = std::make_unique<Files>();
  // A host with both has the controllers on version 1.
  const auto old_cpu = folders_of(groups, "cpu", root);
  const auto old_memory = folders_of(groups, "memory", root);
  files->cpu = open_first(old_cpu.empty() ? unified : old_cpu, "cpu.stat");
  if (old_memory.empty()) {
    files->memory = open_first(unified, "memory.current");
    files->memory_limit = open_first(unified, "memory.max");
    files->memory_events = open_first(unified, "memory.events");
  } else {
    files->memory = open_first(old_memory, "memory.usage_in_bytes");
    files->memory_limit = open_first(old_memory, "memory.limit_in_bytes");
    files->memory_events = open_first(old_memory, "memory.oom_control");
  }
  for (const std::string& folder : unified) {
    if (!files->unified_folder.empty()) break;
    if (KeptFile::open(fmt::format("{}/cgroup.procs", folder))) files->unified_folder = folder;
  }
  if (!files->cpu.is_open() && !files->memory.is_open()) {
    return Error{Code::kUnavailable,
                 fmt::format("control group of process {}: no figures under {}", pid, root),
                 "control groups have to be mounted there; in a container: those of the host"};
  }
  return CgroupSampler(std::move(files));
}

Result<CgroupCpu> CgroupSampler::cpu() const {
  if (!files_->cpu.is_open())
    return Error{Code::kUnavailable, "control group: it has no processor controller"};
  KeptFile::Buffer buffer;
  TRY(const std::string_view text, files_->cpu.read(buffer));
  return parse_cpu_stat(text);
}

Result<CgroupMemory> CgroupSampler::memory() const {
  if (!files_->memory.is_open())
    return Error{Code::kUnavailable, "control group: it has no memory controller"};
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;  // version 1 writes a huge number
  CgroupMemory out;
  KeptFile::Buffer buffer;
  TRY(const std::string_view used, files_->memory.read(buffer));
  out.used_bytes = whole_number(used);
  if (files_->memory_limit.is_open()) {
    if (const auto text = files_->memory_limit.read(buffer)) out.limit_bytes = whole_number(*text);
    if (out.limit_bytes >= kNoLimit) out.limit_bytes.reset();
  }
  if (files_->memory_events.is_open()) {
    if (const auto text = files_->memory_events.read(buffer))
      out.oom_kills = value_of(*text, "oom_kill");
  }
  return out;
}

std::optional<std::uint64_t> throttled_ns(std::int32_t pid, const std::string& proc_root,
                                          const std::string& cgroup_root) {
  const auto group = CgroupSampler::open(pid, {.proc_root = proc_root, .cgroup_root = cgroup_root});
  if (!group) return std::nullopt;
  const auto cpu = group->cpu();
  return cpu ? cpu->throttled_ns : std::nullopt;
}

}  // namespace kansoku::sys
