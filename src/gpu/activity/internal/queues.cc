// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/thresholds.h"

namespace kansoku::gpu::activity {
namespace {

/// The length of one stream's queue over time: up at the begin of a launch call, down when the
/// operation begins. At equal moments the launch comes first.
QueueRow queue_row(const Input& in, const Stream& stream) {
  QueueRow row;
  row.stream = stream.number;
  std::vector<std::pair<std::int64_t, std::int32_t>> changes;  // -1 is a launch, sorted first
  for (const std::uint32_t i : stream.ops) {
    const Op& op = in.work.ops[i];
    if (op.call == kNoIndex || op.is_further || !is_busy(op.what)) continue;
    changes.emplace_back(in.work.calls[op.call].time.begin_ns, -1);
    changes.emplace_back(op.time.begin_ns, 1);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<double> lengths;
  lengths.reserve(changes.size());
  std::int64_t length = 0;
  double area = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i > 0)
      area += static_cast<double>(length) *
              static_cast<double>(changes[i].first - changes[i - 1].first);
    length -= changes[i].second;
    lengths.push_back(static_cast<double>(length));
  }
  if (changes.size() > 1 && changes.back().first > changes.front().first)
    row.time_mean = area / static_cast<double>(changes.back().first - changes.front().first);
  row.length = spread_of(lengths);
  return row;
}

}  // namespace

bool stalls(const Call& call) {
  return call.is_blocking || call.what == CallClass::kAlloc || call.what == CallClass::kFree ||
         call.what == CallClass::kHostAlloc || call.what == CallClass::kModule;
}

bool waited_for(const Call& call, std::int64_t device_end_ns) {
  return stalls(call) && call.time.begin_ns < device_end_ns &&
         call.time.end_ns >= device_end_ns - kSyncToleranceNs;
}

std::vector<QueueRow> queue_rows(const Input& in, std::uint32_t device) {
  std::vector<QueueRow> rows;
  for (const Stream& stream : streams_of(in.work, device)) {
    QueueRow row = queue_row(in, stream);
    if (row.length.count > 0) rows.push_back(row);
  }
  return rows;
}

void add_latencies(const Input& in, const Device& device, DeviceFigures& figures) {
  std::vector<double> latencies_us;
  std::uint64_t kernels = 0, linked = 0, shorter = 0;
  for (const std::uint32_t i : device.ops) {
    const Op& op = in.work.ops[i];
    kernels += op.what == OpClass::kKernel && !op.is_further ? 1 : 0;
    if (op.call == kNoIndex || op.is_further || !is_busy(op.what)) continue;
    const Call& call = in.work.calls[op.call];
    const std::int64_t latency_ns = op.time.begin_ns - call.time.begin_ns;
    if (latency_ns < 0) {
      figures.negative_latency_count += in.recorded.is_one_clock ? 1 : 0;
    } else {
      latencies_us.push_back(us_of(latency_ns));
    }
    if (op.what != OpClass::kKernel || call.is_open) continue;
    ++linked;
    shorter += op.time.end_ns - op.time.begin_ns < call.time.end_ns - call.time.begin_ns ? 1 : 0;
  }
  if (!latencies_us.empty() && is_allowed(Figure::kIssueLatency, in.recorded))
    figures.issue_latency_us = spread_of(latencies_us);
  if ((linked > 0 || kernels == 0) && is_allowed(Figure::kShortKernels, in.recorded))
    figures.short_kernel_count = shorter;
}

Stretches launch_bound_stretches(const Input& in, const Device& device, stats::Interval window) {
  Stretches out;
  std::vector<std::uint32_t> run;  // operations of the stretch that may be one
  double run_idle_ns = 0;
  std::int64_t run_begin_ns = 0, busy_until_ns = -1;
  // True if a blocking call of the launching thread lies between the device's last end and a
  // launch.
  const auto was_drained = [&](const Call& launch) {
    auto at =
        std::upper_bound(in.work.calls.begin(), in.work.calls.end(), launch.time.begin_ns,
                         [](std::int64_t ns, const Call& call) { return ns < call.time.begin_ns; });
    constexpr int kCallsBack = 32;
    for (int back = 0; back < kCallsBack && at != in.work.calls.begin(); ++back) {
      --at;
      if (at->thread == launch.thread && waited_for(*at, busy_until_ns)) return true;
    }
    return false;
  };
  const auto close = [&] {
    if (run.size() >= kStretchOpsMin && run_idle_ns > 0) {
      ++out.figures.stretch_count;
      out.figures.op_count += run.size();
      out.figures.us += us_of(busy_until_ns - run_begin_ns);
      out.figures.idle_us += run_idle_ns / 1e3;
      for (const std::uint32_t i : run) {
        const Op& op = in.work.ops[i];
        const std::int64_t returned_ns = in.work.calls[op.call].time.end_ns;
        out.figures.early_us += us_of(
            std::max<std::int64_t>(0, std::min(returned_ns, op.time.end_ns) - op.time.begin_ns));
      }
      out.late.insert(out.late.end(), run.begin(), run.end());
    }
    run.clear();
    run_idle_ns = 0;
  };
  for (const std::uint32_t i : device.ops) {
    const Op& op = in.work.ops[i];
    if (!is_busy(op.what)) continue;
    const bool is_inside = op.time.begin_ns >= window.begin_ns && op.time.end_ns <= window.end_ns;
    const Call* const call = op.call == kNoIndex ? nullptr : &in.work.calls[op.call];
    const std::int64_t latency_ns = call == nullptr ? -1 : op.time.begin_ns - call->time.begin_ns;
    const std::int64_t gap_ns =
        busy_until_ns < 0 ? 0 : std::max<std::int64_t>(0, op.time.begin_ns - busy_until_ns);
    const bool is_prompt = is_inside && call != nullptr && latency_ns >= -device.map_error_ns &&
                           latency_ns <= kPromptNs + device.map_error_ns &&
                           gap_ns <= kLaunchGapMaxNs && busy_until_ns >= 0 &&
                           (gap_ns == 0 || !was_drained(*call));
    if (!is_prompt) {
      close();
    } else {
      if (run.empty()) run_begin_ns = busy_until_ns;
      run.push_back(i);
      run_idle_ns += static_cast<double>(gap_ns);
    }
    busy_until_ns = std::max(busy_until_ns, op.time.end_ns);
  }
  close();
  return out;
}

}  // namespace kansoku::gpu::activity
