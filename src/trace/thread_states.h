// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "trace/model.h"

namespace kansoku::trace {

/// State of a thread, as the scheduler sees it.
enum class ThreadState : std::uint8_t {
  kRunning,
  kQueued,  // ready, without a processor
  kAsleep   // until somebody wakes it
};

/// A stretch of time of a thread in one state. Times: nanoseconds of the boot clock.
struct ThreadStretch {
  std::int64_t begin_ns{0}, end_ns{0};
  ThreadState state{ThreadState::kRunning};
  bool is_open{false};       // its end was not seen: the recording's stands for it
  bool is_preempted{false};  // of kQueued: the processor was taken away, else it was woken
  std::uint32_t cpu{0};  // of kQueued: where it queues. One that was woken: where it comes to run
  std::uint32_t task_state{0};              // of kAsleep: the kernel's (TASK_*), without preemption
  std::optional<std::int32_t> waker_tid{};  // of kAsleep: 0: an interrupt; nothing: not seen

  /// In uninterruptible sleep, as for a disk.
  [[nodiscard]] bool is_uninterruptible() const { return (task_state & 0x2) != 0; }
  /// By a signal or a debugger: __TASK_STOPPED, __TASK_TRACED.
  [[nodiscard]] bool is_stopped() const { return (task_state & (0x4 | 0x8)) != 0; }
};

/// A scheduler event as one thread sees it. At equal times the wake comes first, then coming to
/// run.
struct SchedulerEvent {
  enum class Kind : std::uint8_t { kWake, kSwitchIn, kSwitchOut };
  std::int64_t time_ns{0};
  Kind kind{Kind::kWake};
  std::uint32_t cpu{0};         // not of kWake
  std::uint32_t task_state{0};  // of kSwitchOut: 0: preempted
  std::int32_t waker_tid{0};    // of kWake
};

/// The stretches of one thread, by time, from its events in any order. Time before the first event
/// is in none of them; the state that a lost event would have ended lasts until the next one that
/// tells of another. Waking a thread that is not asleep is void. Pure.
[[nodiscard]] std::vector<ThreadStretch> thread_stretches(std::vector<SchedulerEvent> events,
                                                          std::int64_t end_ns);

/// Those of the threads that `is_wanted`, by thread. Events before 0 and behind `time_max_ns` are
/// left out, as are those of a table whose columns are too short. Deterministic.
[[nodiscard]] std::map<std::int32_t, std::vector<ThreadStretch>> thread_stretches(
    const Trace& trace, const std::function<bool(std::int32_t tid)>& is_wanted, std::int64_t end_ns,
    std::int64_t time_max_ns = std::numeric_limits<std::int64_t>::max());

}  // namespace kansoku::trace
