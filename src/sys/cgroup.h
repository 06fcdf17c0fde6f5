// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::sys {

/// Counters of cpu.stat, since the group was made.
struct CgroupCpu {
  std::optional<std::uint64_t> used_ns;
  std::optional<std::uint64_t> periods, throttled_periods;  // with a quota only
  std::optional<std::uint64_t> throttled_ns;
};
/// `untrusted`: the text of a cpu.stat of either version.
[[nodiscard]] CgroupCpu parse_cpu_stat(std::string_view untrusted);

/// Reads cpu.stat of the control group that a process is in again and again: a small read, and one
/// for each group. `throttled_ns` is the sum over the group and those around it (eight at most),
/// whose quotas hold the process back too; all else is of its own group. A process that is moved to
/// another group is followed. Version 1 or 2, or both as some hosts have them. Not shared between
/// threads.
class CgroupCpuSampler {
 public:
  struct Options {
    std::string proc_root{"/proc"};
    // Mount point of the control groups. In a container: those of the host, so that groups outside
    // of its own are seen too (version 2 only).
    std::string cgroup_root{"/sys/fs/cgroup"};
    std::int32_t own_pid{0};  // of this process, as `proc_root` has it
  };
  /// kNotFound without the process.
  [[nodiscard]] static Result<CgroupCpuSampler> open(std::int32_t pid, const Options& options);
  [[nodiscard]] static Result<CgroupCpuSampler> open(std::int32_t pid);
  CgroupCpuSampler(CgroupCpuSampler&&) noexcept;
  CgroupCpuSampler& operator=(CgroupCpuSampler&&) noexcept;
  ~CgroupCpuSampler();

  /// kNotFound once the process or its group is gone; kUnavailable if the group has no processor
  /// figures or none that can be read.
  [[nodiscard]] Result<CgroupCpu> sample();

 private:
  struct Files;
  explicit CgroupCpuSampler(std::unique_ptr<Files> files);
  std::unique_ptr<Files> files_;
};

/// Which processors a process may use.
struct CpuLimits {
  std::string cpus;            // as the kernel lists them, "0-3,8": affinity within the cpuset
  std::uint32_t cpu_count{0};  // number of these
  std::string quota_group;     // below the root; of its group and those around it the one with ...
  std::optional<double> quota_cpus;  // ... the least quota, in processors; none: there is no quota
  friend bool operator==(const CpuLimits&, const CpuLimits&) = default;
};
/// kNotFound without the process. Some small reads a group.
[[nodiscard]] Result<CpuLimits> cpu_limits(std::int32_t pid,
                                           const CgroupCpuSampler::Options& options);
[[nodiscard]] Result<CpuLimits> cpu_limits(std::int32_t pid);
/// `untrusted`: a list such as "0-3,8". Numbers in it, each counted once a part; 0 for no list.
[[nodiscard]] std::uint32_t count_cpus(std::string_view untrusted);

/// Bytes that a process can still take.
struct MemoryRoom {
  std::uint64_t bytes{0};
  std::string group{};  // below the root, whose limit it reaches first; "": the host has no more
  std::uint64_t limit_bytes{0};  // of the group
};
/// Until it, or a group around it, reaches its memory limit, or the host has none available. None
/// if nothing can be read. Some small reads a group.
[[nodiscard]] std::optional<MemoryRoom> memory_room(std::int32_t pid,
                                                    const CgroupCpuSampler::Options& options);
[[nodiscard]] std::optional<MemoryRoom> memory_room(std::int32_t pid);
/// `untrusted`: the text of /proc/meminfo.
[[nodiscard]] std::optional<std::uint64_t> parse_available_bytes(std::string_view untrusted);

/// The container that a process runs in, as the names of its control groups tell it.
struct Container {
  std::string runtime;  // "docker", "containerd", "cri-o", "podman"; "" if only the id is known
  std::string id;       // 64 hexadecimal digits
  std::string pod_uid;  // of Kubernetes, with dashes; "" outside of it
  friend bool operator==(const Container&, const Container&) = default;
};
/// `untrusted`: the text of /proc/PID/cgroup. Nothing if no name looks like a container's; the
/// innermost one counts. Runtimes that choose other names, or a reader inside of the container's
/// own namespace, are not seen.
[[nodiscard]] std::optional<Container> parse_container(std::string_view untrusted);
/// Container of a process, read now.
[[nodiscard]] std::optional<Container> container_of(std::int32_t pid,
                                                    const std::string& proc_root = "/proc");

}  // namespace kansoku::sys
