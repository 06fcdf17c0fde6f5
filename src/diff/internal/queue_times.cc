// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/queue_times.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

constexpr std::int64_t kSwitchTimeMaxNs = std::int64_t{1} << 61;
constexpr std::uint32_t kReportedStates = 0xff;  // a bit above them marks preemption

enum class QueueChange : std::uint8_t { kWake, kSwitchIn, kPreempted, kBlocks };

struct QueueEvent {
  std::int64_t time_ns{0};
  QueueChange change{QueueChange::kWake};
};

}  // namespace

QueueTimes::QueueTimes(const trace::Trace& trace, const std::set<std::int32_t>& tids) {
  std::map<std::int32_t, std::vector<QueueEvent>> events;
  const auto add = [&](std::int32_t tid, std::int64_t time_ns, QueueChange change) {
    if (time_ns < -kSwitchTimeMaxNs || time_ns > kSwitchTimeMaxNs || !tids.contains(tid)) return;
    events[tid].push_back({time_ns, change});
  };
  const auto& table = trace.switches;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool preempted = (table.prev_state[i] & kReportedStates) == 0;
    add(table.prev_tid[i], table.time_ns[i],
        preempted ? QueueChange::kPreempted : QueueChange::kBlocks);
    add(table.next_tid[i], table.time_ns[i], QueueChange::kSwitchIn);
  }
  for (std::size_t i = 0; i < trace.wakes.size(); ++i)
    add(trace.wakes.tid[i], trace.wakes.time_ns[i], QueueChange::kWake);
  for (auto& [tid, of_thread] : events) {
    std::sort(of_thread.begin(), of_thread.end(), [](const QueueEvent& a, const QueueEvent& b) {
      return std::tie(a.time_ns, a.change) < std::tie(b.time_ns, b.change);
    });
    std::vector<Wait>& waits = threads_[tid];
    std::int64_t total_ns = 0;
    std::optional<Wait> open;
    bool is_running = false;
    for (const QueueEvent& event : of_thread) {
      if (event.change == QueueChange::kSwitchIn && open) {
        open->end_ns = event.time_ns;
        open->before_ns = total_ns;
        total_ns += open->end_ns - open->begin_ns;
        waits.push_back(*open);
      }
      const bool queues = event.change == QueueChange::kPreempted ||
                          (event.change == QueueChange::kWake && !is_running && !open);
      if (queues) {
        open = Wait{.begin_ns = event.time_ns,
                    .end_ns = 0,
                    .before_ns = 0,
                    .is_preempted = event.change == QueueChange::kPreempted};
      } else if (event.change != QueueChange::kWake) {
        open.reset();
      }
      if (event.change != QueueChange::kWake) is_running = event.change == QueueChange::kSwitchIn;
    }
  }
}

std::int64_t QueueTimes::until(const std::vector<Wait>& waits, std::int64_t time_ns) const {
  auto after = std::upper_bound(waits.begin(), waits.end(), time_ns,
                                [](std::int64_t t, const Wait& wait) { return t < wait.begin_ns; });
  if (after == waits.begin()) return 0;
  --after;
  return after->before_ns + std::min(time_ns, after->end_ns) - after->begin_ns;
}

std::int64_t QueueTimes::within(std::int32_t tid, std::int64_t begin_ns,
                                std::int64_t end_ns) const {
  const auto found = threads_.find(tid);
  if (found == threads_.end() || end_ns <= begin_ns) return 0;
  return until(found->second, end_ns) - until(found->second, begin_ns);
}

std::optional<std::int64_t> QueueTimes::sampled_at(std::int32_t tid, std::int64_t time_ns) const {
  const auto found = threads_.find(tid);
  if (found == threads_.end()) return time_ns;
  const std::vector<Wait>& waits = found->second;
  auto after = std::upper_bound(waits.begin(), waits.end(), time_ns,
                                [](std::int64_t t, const Wait& wait) { return t < wait.begin_ns; });
  if (after == waits.begin() || time_ns >= (after - 1)->end_ns) return time_ns;
  --after;
  if (after->is_preempted && time_ns - after->begin_ns < kSoonNs) return after->begin_ns - 1;
  return std::nullopt;
}

}  // namespace kansoku::diff
