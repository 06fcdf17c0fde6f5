// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::sys {

/// Nanoseconds for which the processor quota of the control group of `pid` has held its members
/// back so far (version 1 or 2); nothing if it has no quota controller or cannot be read.
/// `cgroup_root` is where control groups are mounted.
[[nodiscard]] std::optional<std::uint64_t> throttled_ns(
    std::int32_t pid, const std::string& proc_root = "/proc",
    const std::string& cgroup_root = "/sys/fs/cgroup");

/// Of cpu.stat; all since the group was made. Only the quota of this group counts here, not that of
/// groups around it.
struct CgroupCpu {
  std::optional<std::uint64_t> used_ns;
  std::optional<std::uint64_t> periods, throttled_periods;  // with a quota only
  std::optional<std::uint64_t> throttled_ns;
};
/// `untrusted`: the text of a cpu.stat of either version.
[[nodiscard]] CgroupCpu parse_cpu_stat(std::string_view untrusted);

struct CgroupMemory {
  std::optional<std::uint64_t> used_bytes;   // page cache included
  std::optional<std::uint64_t> limit_bytes;  // nothing: no limit of its own
  std::optional<std::uint64_t> oom_kills;    // since the group was made
};

/// Reads the control group that a process is in now again and again: one small read for cpu(),
/// three for memory(). A process that moves to another group later is not followed. Version 1 or 2,
/// or both as some hosts have them. Not shared between threads.
class CgroupSampler {
 public:
  struct Options {
    std::string proc_root{"/proc"};
    std::string cgroup_root{"/sys/fs/cgroup"};
  };
  /// kNotFound without the process; kUnavailable if neither processor nor memory figures are there.
  [[nodiscard]] static Result<CgroupSampler> open(std::int32_t pid, const Options& options);
  [[nodiscard]] static Result<CgroupSampler> open(std::int32_t pid);
  CgroupSampler(CgroupSampler&&) noexcept;
  CgroupSampler& operator=(CgroupSampler&&) noexcept;
  ~CgroupSampler();

  /// kNotFound once the group is gone; kUnavailable if there is no such controller.
  [[nodiscard]] Result<CgroupCpu> cpu() const;
  [[nodiscard]] Result<CgroupMemory> memory() const;
  /// Where pressure files are (pressure.h); "" on version 1.
  [[nodiscard]] const std::string& unified_folder() const;

 private:
  struct Files;
  explicit CgroupSampler(std::unique_ptr<Files> files);
  std::unique_ptr<Files> files_;
};

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
/// Of a process, read now.
[[nodiscard]] std::optional<Container> container_of(std::int32_t pid,
                                                    const std::string& proc_root = "/proc");

}  // namespace kansoku::sys
