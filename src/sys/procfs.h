// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::sys {

/// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin{0}, end{0};  // addresses
  std::uint64_t file_offset{0};
  std::uint64_t inode{0};
  std::uint32_t device_major{0}, device_minor{0};
  bool readable{false}, writable{false}, executable{false};
  std::string
      path;  // as the target sees it, in its own mount namespace; "" or "[heap]" for no file
};

/// Parses the text of a maps file; lines that make no sense are skipped. At most 65,536 lines are
/// read.
[[nodiscard]] std::vector<Mapping> parse_maps(std::string_view untrusted);

/// From the text of a mountinfo file: the type of the file system with that device number; "" if
/// there is none.
[[nodiscard]] std::string parse_file_system(std::string_view untrusted, std::uint32_t device_major,
                                            std::uint32_t device_minor);

/// From the text of /proc/stat: time that the hypervisor gave to others while a processor of this
/// machine had work, over all of them, in clock ticks; nothing if it is not told.
[[nodiscard]] std::optional<std::uint64_t> parse_stolen_ticks(std::string_view untrusted);

/// From /proc/PID/stat or task/TID/stat.
struct ProcStat {
  std::string comm;
  char state{'?'};  // R running or runnable, S sleeping, D disk, T stopped, Z zombie, ...
  std::int32_t parent_pid{0};
  std::uint64_t user_ticks{0}, system_ticks{0};
  std::uint64_t start_ticks{0};  // since boot: with the pid it names a process for ever
  std::uint64_t minor_faults{0}, major_faults{0};
  std::uint32_t threads{0};
  std::uint64_t resident_pages{0};  // 0 also where the line ends before it
};
/// `untrusted`: the whole line; the comm may hold blanks and parentheses.
[[nodiscard]] std::optional<ProcStat> parse_stat(std::string_view untrusted);

/// Reads the processes of this host. `root` is "/proc", or a folder laid out like it for tests.
/// Pids may vanish at any time: that is kNotFound, never a crash. Every read is bounded. Any
/// thread.
class Procfs {
 public:
  explicit Procfs(std::string root = "/proc") : root_(std::move(root)) {}

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] std::vector<std::int32_t> pids() const;                  // ascending
  [[nodiscard]] std::vector<std::int32_t> tids(std::int32_t pid) const;  // ascending; empty if gone
  [[nodiscard]] Result<std::vector<Mapping>> maps(std::int32_t pid) const;
  /// Type of the file system with that device number in the process's mount namespace, e.g.
  /// "overlay" or "fuse.sshfs"; "" if that is not known. Asks the kernel, not that file system.
  [[nodiscard]] std::string file_system(std::int32_t pid, std::uint32_t device_major,
                                        std::uint32_t device_minor) const;
  [[nodiscard]] Result<ProcStat> stat(std::int32_t pid) const;
  /// Time stolen from all processors of this machine since its start, ns; nothing if it is not
  /// told.
  [[nodiscard]] std::optional<std::uint64_t> stolen_ns() const;
  [[nodiscard]] Result<ProcStat> thread_stat(std::int32_t pid, std::int32_t tid) const;
  [[nodiscard]] Result<std::vector<std::string>> cmdline(std::int32_t pid) const;
  [[nodiscard]] Result<std::map<std::string, std::string>> environ(std::int32_t pid) const;
  /// User and network namespace of a process. Zeros if they may not be read. Zeros where that may
  /// not be read.
  struct Owner {
    std::uint32_t user{0};     // effective user id
    std::uint64_t network{0};  // inode of its network namespace
  };
  [[nodiscard]] Owner owner(std::int32_t pid) const;
  /// `path` of a mapping seen from here, through the target's root:
  /// "/proc/PID/root/usr/lib/libx.so".
  [[nodiscard]] std::string through_root(std::int32_t pid, std::string_view path) const;
  /// The file behind a mapping, also after it was deleted or replaced. Needs CAP_SYS_ADMIN or
  /// CAP_CHECKPOINT_RESTORE.
  [[nodiscard]] std::string map_file(std::int32_t pid, const Mapping& mapping) const;

 private:
  std::string root_;
};

}  // namespace kansoku::sys
