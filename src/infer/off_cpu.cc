// SPDX-License-Identifier: Apache-2.0
#include "infer/off_cpu.h"

#include <utility>
#include <vector>

#include "trace/thread_states.h"

namespace kansoku::infer {

OffCpu::OffCpu(const trace::Trace& trace) : is_known_(trace.switches.size() > 0) {
  const auto all = trace::thread_stretches(
      trace, [](std::int32_t tid) { return tid != 0; }, trace.end_ns);
  for (const auto& [tid, stretches] : all) {
    std::vector<stats::Interval> runnable, blocked;
    for (const trace::ThreadStretch& one : stretches) {
      if (one.is_open) continue;
      if (one.state == trace::ThreadState::kQueued)
        runnable.push_back({one.begin_ns, one.end_ns});
      else if (one.state == trace::ThreadState::kAsleep && one.is_uninterruptible())
        blocked.push_back({one.begin_ns, one.end_ns});
    }
    by_tid_[tid] = {stats::IntervalSet::of(std::move(runnable)),
                    stats::IntervalSet::of(std::move(blocked))};
  }
}

OffCpu::Times OffCpu::within(std::int32_t tid, const Span& span) const {
  const auto found = by_tid_.find(tid);
  if (found == by_tid_.end()) return {};
  return {static_cast<double>(found->second.runnable.measure_ns(span)),
          static_cast<double>(found->second.blocked.measure_ns(span))};
}

}  // namespace kansoku::infer
