// SPDX-License-Identifier: Apache-2.0
#include "infer/off_cpu.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kansoku::infer {
namespace {
constexpr std::uint32_t kRunning = 0, kBlocked = 2;  // task states: runnable, uninterruptible
}  // namespace

OffCpu::OffCpu(const trace::Trace& trace) : is_known_(trace.switches.size() > 0) {
  struct Off {
    std::int64_t since_ns{0};
    std::uint32_t state{0};
    std::int64_t woken_ns{0};  // 0: not yet
  };
  std::unordered_map<std::int32_t, Off> off;
  const trace::SwitchTable& switches = trace.switches;
  const trace::WakeTable& wakes = trace.wakes;
  // Both in order of time, merged.
  std::vector<std::size_t> by_time(switches.size()), wakes_by_time(wakes.size());
  for (std::size_t i = 0; i < by_time.size(); ++i)
    by_time[i] = i;
  for (std::size_t i = 0; i < wakes_by_time.size(); ++i)
    wakes_by_time[i] = i;
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return switches.time_ns[a] < switches.time_ns[b];
  });
  std::stable_sort(wakes_by_time.begin(), wakes_by_time.end(), [&](std::size_t a, std::size_t b) {
    return wakes.time_ns[a] < wakes.time_ns[b];
  });
  struct Lists {
    std::vector<stats::Interval> runnable, blocked;
  };
  std::unordered_map<std::int32_t, Lists> by_tid;
  std::size_t wake = 0;
  for (const std::size_t i : by_time) {
    const std::int64_t now = switches.time_ns[i];
    for (; wake < wakes.size() && wakes.time_ns[wakes_by_time[wake]] <= now; ++wake) {
      const auto found = off.find(wakes.tid[wakes_by_time[wake]]);
      if (found != off.end() && found->second.woken_ns == 0)
        found->second.woken_ns = wakes.time_ns[wakes_by_time[wake]];
    }
    const std::int32_t in = switches.next_tid[i], out = switches.prev_tid[i];
    if (const auto found = off.find(in); in != 0 && found != off.end()) {
      const Off& was = found->second;
      Lists& lists = by_tid[in];
      const bool is_ready_at_once = was.state == kRunning;
      const std::int64_t ready = is_ready_at_once ? was.since_ns : was.woken_ns;
      if ((was.state & kBlocked) != 0) {
        const std::int64_t end = ready != 0 ? ready : now;
        if (end > was.since_ns) lists.blocked.push_back({was.since_ns, end});
      }
      if (ready != 0 && now > ready) lists.runnable.push_back({ready, now});
      off.erase(found);
    }
    if (out != 0) off[out] = {now, switches.prev_state[i], 0};
  }
  for (auto& [tid, lists] : by_tid)
    by_tid_[tid] = {stats::IntervalSet::of(std::move(lists.runnable)),
                    stats::IntervalSet::of(std::move(lists.blocked))};
}

OffCpu::Times OffCpu::within(std::int32_t tid, const Span& span) const {
  const auto found = by_tid_.find(tid);
  if (found == by_tid_.end()) return {};
  return {static_cast<double>(found->second.runnable.measure_ns(span)),
          static_cast<double>(found->second.blocked.measure_ns(span))};
}

}  // namespace kansoku::infer
