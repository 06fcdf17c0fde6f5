// SPDX-License-Identifier: Apache-2.0
#include "trace/thread_states.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace kansoku::trace {
namespace {

// Kernel task states (sched.h): a bit above the reported ones marks preemption.
constexpr std::uint32_t kReportedStates = 0xff;

std::optional<ThreadState> state_after(const SchedulerEvent& event,
                                       std::optional<ThreadState> now) {
  switch (event.kind) {
    case SchedulerEvent::Kind::kWake:
      return now && *now != ThreadState::kAsleep ? now : ThreadState::kQueued;
    case SchedulerEvent::Kind::kSwitchIn:
      return ThreadState::kRunning;
    case SchedulerEvent::Kind::kSwitchOut:
      return event.task_state == 0 ? ThreadState::kQueued : ThreadState::kAsleep;
  }
  return now;
}

}  // namespace

std::vector<ThreadStretch> thread_stretches(std::vector<SchedulerEvent> events,
                                            std::int64_t end_ns) {
  std::stable_sort(events.begin(), events.end(),
                   [](const SchedulerEvent& a, const SchedulerEvent& b) {
                     return std::tie(a.time_ns, a.kind) < std::tie(b.time_ns, b.kind);
                   });
  std::vector<ThreadStretch> out;
  std::optional<ThreadState> state;
  for (const SchedulerEvent& event : events) {
    const auto next = state_after(event, state);
    if (next == state) continue;
    if (state) {
      ThreadStretch& last = out.back();
      last.end_ns = event.time_ns;
      last.is_open = false;
      if (last.state == ThreadState::kAsleep && event.kind == SchedulerEvent::Kind::kWake)
        last.waker_tid = event.waker_tid;
      if (last.state == ThreadState::kQueued && !last.is_preempted) last.cpu = event.cpu;
    }
    state = next;
    const bool is_out = event.kind == SchedulerEvent::Kind::kSwitchOut;
    out.push_back({.begin_ns = event.time_ns,
                   .end_ns = std::max(event.time_ns, end_ns),
                   .state = *next,
                   .is_open = true,
                   .is_preempted = is_out && *next == ThreadState::kQueued,
                   .cpu = event.cpu,
                   .task_state = *next == ThreadState::kAsleep ? event.task_state : 0,
                   .waker_tid = {}});
  }
  return out;
}

std::map<std::int32_t, std::vector<ThreadStretch>> thread_stretches(
    const Trace& trace, const std::function<bool(std::int32_t tid)>& is_wanted, std::int64_t end_ns,
    std::int64_t time_max_ns) {
  std::map<std::int32_t, std::vector<SchedulerEvent>> events;
  const auto add = [&](std::int32_t tid, const SchedulerEvent& event) {
    if (event.time_ns < 0 || event.time_ns > time_max_ns || !is_wanted(tid)) return;
    events[tid].push_back(event);
  };
  const SwitchTable& switches = trace.switches;
  const std::size_t switch_count =
      std::min({switches.size(), switches.cpu.size(), switches.prev_tid.size(),
                switches.next_tid.size(), switches.prev_state.size()});
  for (std::size_t i = 0; i < switch_count; ++i) {
    add(switches.prev_tid[i], {.time_ns = switches.time_ns[i],
                               .kind = SchedulerEvent::Kind::kSwitchOut,
                               .cpu = switches.cpu[i],
                               .task_state = switches.prev_state[i] & kReportedStates});
    add(switches.next_tid[i], {.time_ns = switches.time_ns[i],
                               .kind = SchedulerEvent::Kind::kSwitchIn,
                               .cpu = switches.cpu[i]});
  }
  const WakeTable& wakes = trace.wakes;
  const std::size_t wake_count = std::min({wakes.size(), wakes.tid.size(), wakes.waker_tid.size()});
  for (std::size_t i = 0; i < wake_count; ++i)
    add(wakes.tid[i], {.time_ns = wakes.time_ns[i], .waker_tid = wakes.waker_tid[i]});
  std::map<std::int32_t, std::vector<ThreadStretch>> out;
  for (auto& [tid, of_thread] : events)
    out[tid] = thread_stretches(std::move(of_thread), end_ns);
  return out;
}

}  // namespace kansoku::trace
