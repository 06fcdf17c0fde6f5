// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "sys/fd.h"
#include "sys/internal/cgroup_place.h"
#include "sys/internal/kept_file.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kCgroupBytesMax = 64 << 10;

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
                                    const CgroupCpuSampler::Options& options) {
  std::vector<std::string> folders;
  const std::string& root = options.cgroup_root;
  const auto add = [&](const std::string& folder, std::string_view untrusted_path) {
    // ".." is a group outside of the namespace of this process, which begins somewhere in the tree.
    const bool is_outside = untrusted_path.starts_with("/..");
    const auto from = is_outside && controller.empty()
                          ? internal::namespace_group(folder, options.proc_root, options.own_pid)
                          : std::optional<std::string>("");
    if (!from) return;
    if (const auto path = internal::path_from_root(untrusted_path, *from))
      folders.push_back(folder + *path);
  };
  while (!groups.empty()) {
    const auto group = parse_group(cut_line(groups));
    if (!group) continue;
    if (controller.empty() && group->controllers.empty()) {
      add(root, group->path);
      add(root + "/unified", group->path);
    } else if (!controller.empty() && has_controller(group->controllers, controller)) {
      add(fmt::format("{}/{}", root, controller), group->path);
      add(fmt::format("{}/{}", root, group->controllers), group->path);
    }
  }
  return folders;
}

/// `name` in a group and in those around it, innermost first.
std::vector<KeptFile> open_first(const std::vector<std::string>& folders, const std::string& root,
                                 std::string_view name) {
  constexpr std::size_t kGroupsMax = 9;
  std::vector<KeptFile> files;
  for (std::string folder : folders) {
    while (files.size() < kGroupsMax && folder.size() > root.size() && folder.starts_with(root)) {
      auto file = KeptFile::open(fmt::format("{}/{}", folder, name));
      if (!file && files.empty()) break;
      if (file) files.push_back(std::move(*file));
      folder.resize(folder.rfind('/'));
    }
    if (!files.empty()) break;
  }
  return files;
}

/// The folders of a process's own processor group. A host with both versions has the controllers on
/// version 1.
std::vector<std::string> cpu_folders(std::string_view groups,
                                     const CgroupCpuSampler::Options& options) {
  auto folders = folders_of(groups, "cpu", options);
  return folders.empty() ? folders_of(groups, "", options) : folders;
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

}  // namespace

namespace {

/// The number in a file of one line; none if it is a word, such as "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto text = read_file(path, kCgroupBytesMax);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  return parse_int<std::uint64_t>(cut_line(rest));
}

/// Room left: the least of a group and of those around it, up to the mount point of groups.
std::optional<MemoryRoom> least_room(std::string folder, const std::string& root,
                                     std::string_view limit_name, std::string_view used_name) {
  std::optional<MemoryRoom> out;
  while (folder.size() > root.size() && folder.starts_with(root)) {
    const auto limit = number_in(fmt::format("{}/{}", folder, limit_name));
    const auto used = number_in(fmt::format("{}/{}", folder, used_name));
    if (limit && used) {
      const std::uint64_t room = *limit - std::min(*limit, *used);
      if (!out || room < out->bytes) out = {room, folder.substr(root.size()), *limit};
    }
    folder.resize(folder.rfind('/'));
  }
  return out;
}

}  // namespace

std::optional<std::uint64_t> parse_available_bytes(std::string_view untrusted) {
  constexpr std::string_view kKey = "MemAvailable:";
  while (!untrusted.empty()) {
    std::string_view line = cut_line(untrusted);
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ', kKey.size())));
    return times(parse_int<std::uint64_t>(line.substr(0, line.find(' '))), 1024);
  }
  return std::nullopt;
}

std::optional<MemoryRoom> memory_room(std::int32_t pid, const CgroupCpuSampler::Options& options) {
  const auto info = read_file(options.proc_root + "/meminfo", kCgroupBytesMax);
  std::optional<MemoryRoom> out;
  if (const auto available = info ? parse_available_bytes(*info) : std::nullopt)
    out = MemoryRoom{.bytes = *available};
  const auto groups =
      read_file(fmt::format("{}/{}/cgroup", options.proc_root, pid), kCgroupBytesMax);
  if (!groups) return out;
  const auto take = [&](std::string_view controller, std::string_view limit,
                        std::string_view used) {
    for (const std::string& folder : folders_of(*groups, controller, options)) {
      const auto room = least_room(folder, options.cgroup_root, limit, used);
      if (room && (!out || room->bytes < out->bytes)) out = room;
    }
  };
  take("memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
  take("", "memory.max", "memory.current");
  return out;
}

std::optional<MemoryRoom> memory_room(std::int32_t pid) {
  return memory_room(pid, {.own_pid = ::getpid()});
}

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

namespace {

/// The quota of one group in processors; none without one.
std::optional<double> quota_of(const std::string& folder) {
  const auto cpus = [](std::optional<std::uint64_t> quota, std::optional<std::uint64_t> period) {
    return quota && period && *period > 0
               ? std::optional(static_cast<double>(*quota) / static_cast<double>(*period))
               : std::nullopt;
  };
  if (const auto text = read_file(folder + "/cpu.max", kCgroupBytesMax)) {
    std::string_view rest = *text;
    const std::string_view line = cut_line(rest);
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    return cpus(parse_int<std::uint64_t>(line.substr(0, blank)),
                parse_int<std::uint64_t>(line.substr(blank + 1)));
  }
  return cpus(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));
}

void add_quota(std::string_view groups, const CgroupCpuSampler::Options& options, CpuLimits& out) {
  const std::string& root = options.cgroup_root;
  for (std::string folder : cpu_folders(groups, options)) {
    while (folder.size() > root.size() && folder.starts_with(root)) {
      const auto quota = quota_of(folder);
      if (quota && (!out.quota_cpus || *quota < *out.quota_cpus)) {
        out.quota_cpus = quota;
        out.quota_group = folder.substr(root.size());
      }
      folder.resize(folder.rfind('/'));
    }
  }
}

}  // namespace

std::uint32_t count_cpus(std::string_view untrusted) {
  constexpr std::uint32_t kCpusMax = 1U << 16;
  std::uint32_t count = 0;
  while (!untrusted.empty()) {
    const std::size_t comma = untrusted.find(',');
    const std::string_view part = untrusted.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_int<std::uint32_t>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_int<std::uint32_t>(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kCpusMax) return 0;
    count += *last - *first + 1;
    if (comma == std::string_view::npos) break;
    untrusted.remove_prefix(comma + 1);
  }
  return count;
}

Result<CpuLimits> cpu_limits(std::int32_t pid, const CgroupCpuSampler::Options& options) {
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  TRY(const std::string status,
      read_file(fmt::format("{}/{}/status", options.proc_root, pid), kCgroupBytesMax));
  CpuLimits out;
  for (std::string_view rest = status; !rest.empty();) {
    std::string_view line = cut_line(rest);
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t", kKey.size())));
    out.cpus = line;
    out.cpu_count = count_cpus(line);
  }
  const auto groups =
      read_file(fmt::format("{}/{}/cgroup", options.proc_root, pid), kCgroupBytesMax);
  if (groups) add_quota(*groups, options, out);
  return out;
}

Result<CpuLimits> cpu_limits(std::int32_t pid) {
  return cpu_limits(pid, {.own_pid = ::getpid()});
}

struct CgroupCpuSampler::Files {
  Options options;
  std::string groups_path;
  KeptFile groups;
  std::optional<std::string> groups_text;  // that `cpu` was opened for
  std::vector<KeptFile> cpu;               // its own group's first, then those around it

  Result<void> follow(std::string_view groups_now);
};

CgroupCpuSampler::CgroupCpuSampler(std::unique_ptr<Files> files) : files_(std::move(files)) {}
CgroupCpuSampler::CgroupCpuSampler(CgroupCpuSampler&&) noexcept = default;
CgroupCpuSampler& CgroupCpuSampler::operator=(CgroupCpuSampler&&) noexcept = default;
CgroupCpuSampler::~CgroupCpuSampler() = default;

Result<CgroupCpuSampler> CgroupCpuSampler::open(std::int32_t pid) {
  return open(pid, Options{.own_pid = ::getpid()});
}

Result<CgroupCpuSampler> CgroupCpuSampler::open(std::int32_t pid, const Options& options) {
  auto files = std::make_unique<Files>();
  files->options = options;
  files->groups_path = fmt::format("{}/{}/cgroup", options.proc_root, pid);
  TRY(files->groups, KeptFile::open(files->groups_path));
  return CgroupCpuSampler(std::move(files));
}

/// `groups_now`: the begin of the text, which tells whether it is another one.
Result<void> CgroupCpuSampler::Files::follow(std::string_view groups_now) {
  groups_text.reset();
  TRY(const std::string whole, read_file(groups_path, kCgroupBytesMax));
  cpu = open_first(cpu_folders(whole, options), options.cgroup_root, "cpu.stat");
  groups_text = groups_now;
  return {};
}

Result<CgroupCpu> CgroupCpuSampler::sample() {
  KeptFile::Buffer buffer;
  TRY(const std::string_view groups, files_->groups.read(buffer));
  if (groups != files_->groups_text) TRY_VOID(files_->follow(groups));
  if (files_->cpu.empty()) {
    return Error{Code::kUnavailable,
                 fmt::format("{}: no processor figures under {}", files_->groups_path,
                             files_->options.cgroup_root),
                 "mount the control groups there; in a container, mount those of the host"};
  }
  const auto text = files_->cpu.front().read(buffer);
  if (!text) {
    files_->groups_text.reset();  // a group of the same name may take its place
    return text.error();
  }
  CgroupCpu out = parse_cpu_stat(*text);
  for (std::size_t i = 1; i < files_->cpu.size(); ++i) {
    const auto around = files_->cpu[i].read(buffer);
    const auto held_ns = around ? parse_cpu_stat(*around).throttled_ns : std::nullopt;
    if (held_ns) out.throttled_ns = out.throttled_ns.value_or(0) + *held_ns;
  }
  return out;
}

}  // namespace kansoku::sys
