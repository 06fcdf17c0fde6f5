// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/host_states.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "gpu/activity/internal/tracks.h"

namespace kansoku::gpu::activity {
namespace {

// Kernel task states (sched.h): a bit above the reported ones marks preemption.
constexpr std::uint32_t kReportedStates = 0xff;

/// A scheduler event as one thread sees it; of equal times the wake comes first.
struct HostEvent {
  enum class Kind : std::uint8_t { kWake, kSwitchIn, kSwitchOut };
  std::int64_t time_ns{0};
  Kind kind{Kind::kWake};
  bool is_asleep{false};      // of kSwitchOut
  std::int32_t waker_tid{0};  // of kWake
};

/// The pieces of one thread; `is_own` tells the threads of its process.
template <typename IsOwn>
std::vector<HostPiece> pieces_of_events(std::vector<HostEvent> events, IsOwn is_own) {
  std::stable_sort(events.begin(), events.end(), [](const HostEvent& a, const HostEvent& b) {
    return std::tie(a.time_ns, a.kind) < std::tie(b.time_ns, b.kind);
  });
  std::vector<HostPiece> out;
  HostState state = HostState::kUnknown;
  std::int64_t since_ns = 0;
  for (const HostEvent& event : events) {
    const bool was_asleep = state == HostState::kBlocked;
    if (event.kind == HostEvent::Kind::kWake && !was_asleep && state != HostState::kUnknown)
      continue;  // of one that has not gone to sleep: void
    const bool is_for_thread =
        event.kind == HostEvent::Kind::kWake && was_asleep && is_own(event.waker_tid);
    if (event.time_ns > since_ns)
      out.push_back({{since_ns, event.time_ns}, is_for_thread ? HostState::kForThread : state});
    since_ns = event.time_ns;
    state = event.kind == HostEvent::Kind::kSwitchIn                       ? HostState::kRunning
            : event.kind == HostEvent::Kind::kSwitchOut && event.is_asleep ? HostState::kBlocked
                                                                           : HostState::kQueued;
  }
  out.push_back({{since_ns, kTimeMaxNs}, state});
  return out;
}

}  // namespace

HostStates::HostStates(const trace::Trace& trace, const DeviceWork& work)
    : pieces_(work.threads.size()) {
  std::map<std::int32_t, std::uint32_t> threads;  // that call CUDA, by number
  std::map<std::int32_t, std::int32_t> process_of;
  for (std::uint32_t i = 0; i < work.threads.size(); ++i)
    threads.emplace(work.threads[i].tid, i);
  for (const trace::Track& track : trace.tracks) {
    if (track.kind == trace::TrackKind::kThread) process_of.emplace(track.tid, track.pid);
  }
  std::vector<std::vector<HostEvent>> events(work.threads.size());
  const auto add = [&](std::int32_t tid, const HostEvent& event) {
    const auto thread = threads.find(tid);
    if (thread == threads.end() || event.time_ns < 0 || event.time_ns > kTimeMaxNs) return;
    events[thread->second].push_back(event);
  };
  const trace::SwitchTable& switches = trace.switches;
  const std::size_t switch_count = std::min({switches.size(), switches.prev_tid.size(),
                                             switches.next_tid.size(), switches.prev_state.size()});
  for (std::size_t i = 0; i < switch_count; ++i) {
    add(switches.prev_tid[i], {.time_ns = switches.time_ns[i],
                               .kind = HostEvent::Kind::kSwitchOut,
                               .is_asleep = (switches.prev_state[i] & kReportedStates) != 0});
    add(switches.next_tid[i], {.time_ns = switches.time_ns[i], .kind = HostEvent::Kind::kSwitchIn});
  }
  const trace::WakeTable& wakes = trace.wakes;
  const std::size_t wake_count = std::min({wakes.size(), wakes.tid.size(), wakes.waker_tid.size()});
  for (std::size_t i = 0; i < wake_count; ++i)
    add(wakes.tid[i], {.time_ns = wakes.time_ns[i], .waker_tid = wakes.waker_tid[i]});
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    if (events[i].empty()) continue;
    const Thread& thread = work.threads[i];
    pieces_[i] = pieces_of_events(std::move(events[i]), [&](std::int32_t waker) {
      const auto process = process_of.find(waker);
      return waker != thread.tid && process != process_of.end() && process->second == thread.pid;
    });
  }
}

std::vector<HostPiece> HostStates::split(std::uint32_t thread, stats::Interval part) const {
  std::vector<HostPiece> out;
  const std::vector<HostPiece>& all = pieces_[thread];
  std::int64_t done_ns = part.begin_ns;
  for (auto at = std::partition_point(
           all.begin(), all.end(),
           [&](const HostPiece& piece) { return piece.time.end_ns <= part.begin_ns; });
       at != all.end() && at->time.begin_ns < part.end_ns; ++at) {
    const std::int64_t end_ns = std::min(at->time.end_ns, part.end_ns);
    if (end_ns > done_ns) out.push_back({{done_ns, end_ns}, at->state});
    done_ns = std::max(done_ns, end_ns);
  }
  if (done_ns < part.end_ns) out.push_back({{done_ns, part.end_ns}, HostState::kUnknown});
  return out;
}

}  // namespace kansoku::gpu::activity
