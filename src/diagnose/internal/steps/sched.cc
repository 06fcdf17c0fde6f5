// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sched.h"

#include <algorithm>
#include <unordered_map>

#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

/// Samples so soon after a preemption have caused it, most likely: who samples takes the processor
/// of whom it looks at. Others of a preempted thread are of its time in the queue. Set on a single
/// process, of whose 189 samples 175 found it preempted: half within 23 us, nine of ten within
/// 26 us; who looks at several ranks in turn takes longer.

/// Puts samples that found the thread just preempted at the last instant in which it ran.
void date_back(const std::vector<QueueWait>& waits, std::vector<ThreadSample>& samples) {
  for (ThreadSample& sample : samples) {
    const auto after = std::upper_bound(
        waits.begin(), waits.end(), sample.time_ns,
        [](std::int64_t t, const QueueWait& wait) { return t < wait.time.begin_ns; });
    if (after == waits.begin()) continue;
    const QueueWait& wait = *(after - 1);
    if (wait.is_preempted && sample.time_ns < wait.time.end_ns &&
        sample.time_ns - wait.time.begin_ns < kSoonNs)
      sample.time_ns = wait.time.begin_ns - 1;
  }
}

}  // namespace

ThreadTimes thread_times(const std::vector<trace::ThreadStretch>& stretches) {
  ThreadTimes times;
  std::vector<Interval> running, runnable, blocked;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const trace::ThreadStretch& one = stretches[i];
    const Interval time{one.begin_ns, one.end_ns};
    switch (one.state) {
      case trace::ThreadState::kRunning:
        running.push_back(time);
        break;
      case trace::ThreadState::kQueued:
        runnable.push_back(time);
        if (i + 1 < stretches.size() && stretches[i + 1].state == trace::ThreadState::kRunning)
          times.queue_waits.push_back({time, one.cpu, one.is_preempted});
        break;
      case trace::ThreadState::kAsleep:
        blocked.push_back(time);
        if (!one.is_open) times.blocked_waits.push_back({time, one.waker_tid, one.is_stopped()});
        break;
    }
  }
  times.is_known = !stretches.empty();
  times.running = IntervalSet::of(std::move(running));
  times.runnable = IntervalSet::of(std::move(runnable));
  times.blocked = IntervalSet::of(std::move(blocked));
  return times;
}

void read_thread_times(const trace::Trace& trace, JobData& job) {
  std::unordered_map<std::int32_t, std::size_t> rank_of_tid;
  for (std::size_t i = 0; i < job.ranks.size(); ++i)
    rank_of_tid.emplace(job.ranks[i].pid, i);
  for (const trace::Track& track : trace.tracks) {
    const auto rank = rank_of_tid.find(track.pid);
    const bool is_of_rank = rank != rank_of_tid.end() && job.ranks[rank->second].pid == track.pid;
    if (track.kind == trace::TrackKind::kThread && is_of_rank)
      rank_of_tid.emplace(track.tid, rank->second);
  }
  const auto stretches = trace::thread_stretches(
      trace, [&](std::int32_t tid) { return rank_of_tid.contains(tid); }, job.end_ns, kTimeMaxNs);
  bool is_any_known = false;
  for (const auto& [tid, of_thread] : stretches) {
    RankData& rank = job.ranks[rank_of_tid[tid]];
    ThreadTimes times = thread_times(of_thread);
    if (tid == rank.main_tid) {
      is_any_known = is_any_known || times.is_known;
      rank.main = std::move(times);
    } else {
      rank.helper_waits.insert(rank.helper_waits.end(), times.queue_waits.begin(),
                               times.queue_waits.end());
      rank.helpers_running.push_back(std::move(times.running));
    }
  }
  for (RankData& rank : job.ranks) {
    date_back(rank.main.queue_waits, rank.samples);
    std::stable_sort(
        rank.helper_waits.begin(), rank.helper_waits.end(),
        [](const QueueWait& a, const QueueWait& b) { return a.time.begin_ns < b.time.begin_ns; });
  }
  if (!is_any_known && !job.ranks.empty()) {
    job.notes.emplace_back(words::kNoScheduler);
  }
}

}  // namespace kansoku::diagnose
