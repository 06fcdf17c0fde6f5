// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/internal/steps/job.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// One scheduler event as one thread sees it.
struct SchedEvent {
  enum class Kind : std::uint8_t { kWake, kSwitchIn, kPreempted, kBlocks };
  std::int64_t time_ns{0};
  Kind kind{Kind::kWake};
  std::uint32_t cpu{0};       // not of kWake
  std::int32_t waker_tid{0};  // of kWake
  bool is_stop{false};        // of kBlocks: by a signal or a debugger
};

/// Running, runnable and blocked intervals of a thread from its events, in any order. Time before
/// the first event is in none of them; a lost event ends the state it belongs to at the next one.
[[nodiscard]] ThreadTimes thread_times(std::vector<SchedEvent> events, std::int64_t end_ns);

/// Fills `main` of every rank from the scheduler tables of `trace`; adds a note if there is
/// nothing.
void read_thread_times(const trace::Trace& trace, JobData& job);

}  // namespace kansoku::diagnose
