// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/host_states.h"

#include <algorithm>
#include <map>

#include "gpu/activity/internal/tracks.h"
#include "trace/thread_states.h"

namespace kansoku::gpu::activity {
HostStates::HostStates(const trace::Trace& trace, const DeviceWork& work)
    : pieces_(work.threads.size()) {
  std::map<std::int32_t, std::uint32_t> threads;  // that call CUDA, by number
  std::map<std::int32_t, std::int32_t> process_of;
  for (std::uint32_t i = 0; i < work.threads.size(); ++i)
    threads.emplace(work.threads[i].tid, i);
  for (const trace::Track& track : trace.tracks) {
    if (track.kind == trace::TrackKind::kThread) process_of.emplace(track.tid, track.pid);
  }
  const auto all = trace::thread_stretches(
      trace, [&](std::int32_t tid) { return threads.contains(tid); }, kTimeMaxNs, kTimeMaxNs);
  for (const auto& [tid, stretches] : all) {
    const std::uint32_t number = threads.at(tid);
    const Thread& thread = work.threads[number];
    const auto is_own = [&](std::int32_t waker) {
      const auto process = process_of.find(waker);
      return waker != thread.tid && process != process_of.end() && process->second == thread.pid;
    };
    for (const trace::ThreadStretch& one : stretches) {
      HostState state = HostState::kRunning;
      if (one.state == trace::ThreadState::kQueued) state = HostState::kQueued;
      if (one.state == trace::ThreadState::kAsleep)
        state =
            one.waker_tid && is_own(*one.waker_tid) ? HostState::kForThread : HostState::kBlocked;
      if (one.end_ns > one.begin_ns) pieces_[number].push_back({{one.begin_ns, one.end_ns}, state});
    }
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
