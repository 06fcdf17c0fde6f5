// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "softcuda/telemetry/telemetry.h"

namespace kansoku::softcuda {

/// Tells if the processes of slots still run, for callers that ask many times a second: /proc is
/// read once for a process, after that its descriptor (pidfd) is asked, which costs one system
/// call. Any thread. Holds a descriptor for each process that it was asked for, at most 1,024.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// Same answer as softcuda::is_alive.
  [[nodiscard]] bool is_alive(const TelemetrySlot& slot);

 private:
  struct Process {
    std::uint64_t start_ticks{0};
    int handle{-1};
  };
  void forget_all();

  std::mutex mutex_;
  std::map<std::uint32_t, Process> processes_;  // guarded by mutex_; by pid
};

}  // namespace kansoku::softcuda
