// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/activity/device_work.h"
#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

/// State of a thread, as the scheduler sees it.
enum class HostState : std::uint8_t {
  kUnknown,    // before its first event
  kRunning,    // on a processor
  kQueued,     // it could run, and has no processor
  kForThread,  // asleep, and another thread of its process woke it: a lock, a condition, a queue
  kBlocked     // asleep, and something else woke it: a timer, a disk, the network, a process
};
inline constexpr std::size_t kHostStateCount = 5;

struct HostPiece {
  stats::Interval time;
  HostState state{HostState::kUnknown};
};

/// The states of the threads that call CUDA, from the scheduler's events; without them nothing.
class HostStates {
 public:
  HostStates(const trace::Trace& trace, const DeviceWork& work);

  /// The pieces of `part` in which the state of `thread` (index into DeviceWork::threads) is one;
  /// they cover `part`.
  [[nodiscard]] std::vector<HostPiece> split(std::uint32_t thread, stats::Interval part) const;

 private:
  std::vector<std::vector<HostPiece>> pieces_;  // by thread, by time, disjoint
};

}  // namespace kansoku::gpu::activity
