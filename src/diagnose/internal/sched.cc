// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/sched.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace kansoku::diagnose {
namespace {

enum class State : std::uint8_t { kUnknown, kRunning, kRunnable, kBlocked };

// Kernel task states (sched.h): 0 running; a bit above the reported states marks preemption.
constexpr std::uint32_t kReportedStates = 0xff;

State next_state(State now, SchedEvent::Kind kind) {
  switch (kind) {
    case SchedEvent::Kind::kWake:
      return now == State::kRunning ? now : State::kRunnable;  // waking a running thread is void
    case SchedEvent::Kind::kSwitchIn:
      return State::kRunning;
    case SchedEvent::Kind::kPreempted:
      return State::kRunnable;
    case SchedEvent::Kind::kBlocks:
      return State::kBlocked;
  }
  return State::kUnknown;
}

}  // namespace

ThreadTimes thread_times(std::vector<SchedEvent> events, std::int64_t end_ns) {
  std::sort(events.begin(), events.end(), [](const SchedEvent& a, const SchedEvent& b) {
    return std::tie(a.time_ns, a.kind) < std::tie(b.time_ns, b.kind);
  });
  std::vector<Interval> parts[4];
  State state = State::kUnknown;
  std::int64_t since_ns = 0;
  for (const SchedEvent& event : events) {
    parts[static_cast<std::size_t>(state)].push_back({since_ns, event.time_ns});
    state = next_state(state, event.kind);
    since_ns = event.time_ns;
  }
  parts[static_cast<std::size_t>(state)].push_back({since_ns, end_ns});
  ThreadTimes times;
  times.is_known = !events.empty();
  times.running = IntervalSet::of(std::move(parts[static_cast<std::size_t>(State::kRunning)]));
  times.runnable = IntervalSet::of(std::move(parts[static_cast<std::size_t>(State::kRunnable)]));
  times.blocked = IntervalSet::of(std::move(parts[static_cast<std::size_t>(State::kBlocked)]));
  return times;
}

void read_thread_times(const trace::Trace& trace, JobData& job) {
  std::unordered_map<std::int32_t, std::size_t> rank_of_tid;
  for (std::size_t i = 0; i < job.ranks.size(); ++i)
    rank_of_tid.emplace(job.ranks[i].pid, i);
  std::vector<std::vector<SchedEvent>> events(job.ranks.size());
  const auto add = [&](std::int32_t tid, std::int64_t time_ns, SchedEvent::Kind kind) {
    const auto found = rank_of_tid.find(tid);
    if (found == rank_of_tid.end() || time_ns < 0 || time_ns > kTimeMaxNs) return;
    events[found->second].push_back({time_ns, kind});
  };
  const auto& table = trace.switches;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool preempted = (table.prev_state[i] & kReportedStates) == 0;
    add(table.prev_tid[i], table.time_ns[i],
        preempted ? SchedEvent::Kind::kPreempted : SchedEvent::Kind::kBlocks);
    add(table.next_tid[i], table.time_ns[i], SchedEvent::Kind::kSwitchIn);
  }
  for (std::size_t i = 0; i < trace.wakes.size(); ++i)
    add(trace.wakes.tid[i], trace.wakes.time_ns[i], SchedEvent::Kind::kWake);
  bool is_any_known = false;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    job.ranks[i].main = thread_times(std::move(events[i]), job.end_ns);
    is_any_known = is_any_known || job.ranks[i].main.is_known;
  }
  if (!is_any_known && !job.ranks.empty()) {
    job.notes.emplace_back(
        "no scheduler events: time spent queueing for a processor cannot be told from work");
  }
}

}  // namespace kansoku::diagnose
