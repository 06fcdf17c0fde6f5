// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/stat.h"
#include "common/time.h"
#include "sys/cgroup.h"
#include "sys/process_counters.h"
#include "sys/procfs.h"
#include "sys/tcp.h"

namespace kansoku::capture {

STAT(host_failed_questions, kNotice, kCapture,
     "times the kernel did not list the TCP connections; figures of connections are missing there");

/// Reading of one process from /proc, control groups and sockets, now. Totals are since its
/// beginning, or that of its group. Nothing: it was not asked for, or cannot be read.
struct HostReading {
  std::optional<std::uint64_t> resident_bytes;
  std::optional<std::uint64_t> memory_room;   // bytes until a limit, of the last ten readings
  std::optional<std::uint64_t> throttled_ns;  // held back by a processor quota
  std::optional<std::uint64_t> stolen_ns;     // by the hypervisor, of all processors of the host
  std::optional<sys::ProcessTcp> tcp;
  std::optional<sys::ProcessCounters> main_thread;  // times and faults of that thread
  std::optional<std::uint64_t> processor_ns;        // of all threads, in clock ticks
};

/// Reads the kernel's own counters of processes, each counter in this one place. Keeps files open
/// from reading to reading. Single-threaded.
class HostReader {
 public:
  /// `connections`: how they are read.
  explicit HostReader(const sys::TcpSampler::Options& connections) : tcp_(connections) {}
  HostReader() = default;
  struct Wanted {
    bool memory{false}, quota{false}, main_thread{false}, stolen{false}, processor_time{false};
    bool connections{false};  // cost most
  };
  /// One entry a process of `pids`; others are forgotten.
  [[nodiscard]] std::map<std::int32_t, HostReading> read(std::span<const std::int32_t> pids,
                                                         BootTime now, const Wanted& wanted);
  void add_losses(Losses& out) const {
    out.add(host_failed_questions, tcp_.stats().failed_questions);
  }
  /// The connections of a process as the last reading with connections saw them.
  [[nodiscard]] std::vector<sys::TcpSocket> sockets(std::int32_t pid,
                                                    std::size_t sockets_max) const {
    return tcp_.sockets(pid, sockets_max);
  }

 private:
  struct Kept {
    std::optional<sys::ProcessSampler> sampler, main_thread;
    std::optional<sys::CgroupCpuSampler> quota;
    std::optional<std::uint64_t> memory_room;
    std::uint32_t room_age{0};  // readings
  };
  static void read_process(std::int32_t pid, const Wanted& wanted, Kept& kept, HostReading& out);
  static void read_quota(std::int32_t pid, Kept& kept, HostReading& out);

  sys::Procfs procfs_;
  std::map<std::int32_t, Kept> kept_;
  sys::TcpSampler tcp_;
};

}  // namespace kansoku::capture
