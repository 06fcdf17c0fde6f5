// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "capture/watcher.h"
#include "common/time.h"

namespace kansoku::agent {

/// What /proc, control groups and sockets tell of one process in one window.
struct ProcessHostWindow {
  std::optional<double> resident_bytes;
  std::optional<double> resident_growth;  // bytes/s, above the highest of 30 s
  std::optional<double> memory_room;      // bytes until a limit, of the last ten windows
  std::optional<double> throttled_s;
  std::optional<double> tcp_bytes, tcp_retransmits, tcp_rtt_s;  // in the window
};

struct HostWindow {
  std::optional<double> cpu_stall_s, io_stall_s, memory_stall_s;  // PSI "some", in the window
  std::map<std::int32_t, ProcessHostWindow> processes;            // by pid
};

/// Reads what the kernel counts anyway. Keeps the last readings. Single-threaded.
class HostMeter {
 public:
  HostMeter();
  ~HostMeter();
  HostMeter(const HostMeter&) = delete;
  HostMeter& operator=(const HostMeter&) = delete;

  /// Since the last call; `with_connections` also looks at TCP connections, which costs most.
  [[nodiscard]] HostWindow sample(const capture::WatchWindow& window, bool with_connections);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::agent
