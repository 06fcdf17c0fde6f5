// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "capture/cuda/snapshot.h"

namespace kansoku::capture::cuda {
namespace {

FrameRow row_of(const std::string& name, const std::string& full_name, double calls,
                const Durations& timed, double seconds) {
  FrameRow row{name, full_name == name ? "" : full_name, calls / seconds, {}, {}, {}, timed.count,
               0};
  if (timed.count == 0) return row;
  const double mean_ns = static_cast<double>(timed.total_ns) / static_cast<double>(timed.count);
  row.mean_us = mean_ns * 1e-3;
  row.p99_us = timed.at_most_ns(0.99) * 1e-3;
  row.device_share = mean_ns * calls * 1e-9 / seconds;
  return row;
}

void sort_by_share(std::vector<FrameRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const FrameRow& a, const FrameRow& b) {
    const double left = a.device_share.value_or(-1), right = b.device_share.value_or(-1);
    return left != right ? left > right : a.calls_per_s > b.calls_per_s;
  });
}

double difference(std::uint64_t after, std::uint64_t before) {
  return after > before ? static_cast<double>(after - before) : 0;
}

/// By kernel: how often the process, or a graph that it launched, ran it.
std::map<std::uint32_t, std::uint64_t> runs_of(const Snapshot& snapshot) {
  std::map<std::uint32_t, std::uint64_t> out;
  for (const auto& [index, kernel] : snapshot.kernels)
    out[index] += kernel.info.launches;
  for (const Snapshot::Graph& graph : snapshot.graphs)
    for (const std::uint16_t node : graph.info.nodes)
      out[node] += graph.info.launches;
  return out;
}

void add_kernels(const Snapshot& before, const Snapshot& after, Frame& out) {
  std::map<std::uint32_t, std::uint64_t> ran = runs_of(after), ran_before = runs_of(before);
  for (const auto& [index, kernel] : after.kernels) {
    const auto old = before.kernels.find(index);
    const bool is_new = old == before.kernels.end();
    const double calls = difference(ran[index], ran_before[index]);
    if (calls == 0) continue;
    const Durations timed =
        is_new ? kernel.durations : kernel.durations.since(old->second.durations);
    out.kernels.push_back(
        row_of(short_name(kernel.info), kernel.info.name, calls, timed, out.seconds));
  }
  sort_by_share(out.kernels);
}

void add_others(const Snapshot& before, const Snapshot& after, Frame& out) {
  const auto old = totals_of(before);
  for (const auto& [what, totals] : totals_of(after)) {
    const auto found = old.find(what);
    const ClassTotals earlier = found == old.end() ? ClassTotals{} : found->second;
    const double calls = difference(totals.calls, earlier.calls);
    out.failed_per_s += difference(totals.failed, earlier.failed) / out.seconds;
    if (what == WIRE_CUDA_LAUNCH) out.launches_per_s = calls / out.seconds;
    if (what == WIRE_CUDA_LAUNCH || calls == 0) continue;
    const auto timed = after.classes.find(what);
    const auto timed_before = before.classes.find(what);
    Durations durations;
    if (timed != after.classes.end())
      durations = timed_before == before.classes.end() ? timed->second
                                                       : timed->second.since(timed_before->second);
    FrameRow row = row_of(class_name(what), class_name(what), calls, durations, out.seconds);
    row.bytes_per_s = difference(totals.bytes, earlier.bytes) / out.seconds;
    if (!is_stream_operation(what)) row.device_share.reset();
    out.others.push_back(std::move(row));
  }
  sort_by_share(out.others);
}

}  // namespace

Frame frame_between(const Snapshot& before, const Snapshot& after) {
  Frame out;
  out.now_ns = after.at_ns;
  out.seconds = std::max(1e-3, 1e-9 * static_cast<double>(after.at_ns - before.at_ns));
  out.mode =
      after.state.mode <= WIRE_CUDA_EVERY ? static_cast<Mode>(after.state.mode) : Mode::kDormant;
  out.every_n = out.mode == Mode::kSampled ? after.state.every_n : 1;
  out.poller_share =
      difference(after.state.poller_cpu_ns, before.state.poller_cpu_ns) * 1e-9 / out.seconds;
  if (const double sampled = difference(after.state.sampled, before.state.sampled); sampled > 0) {
    out.own_ns = difference(after.state.own_ns, before.state.own_ns) / sampled;
    out.events_ns = difference(after.state.event_ns, before.state.event_ns) / sampled;
  }
  add_kernels(before, after, out);
  add_others(before, after, out);
  out.waiters = after.waiters;
  out.stuck = stuck_in(after);
  return out;
}

namespace {

/// Seconds of `calls` operations, of which `timed` were timed meanwhile and `ever` since the
/// beginning.
std::optional<double> device_seconds(double calls, const Durations& timed, const Durations& ever) {
  const Durations& of = timed.count > 0 ? timed : ever;
  if (of.count == 0) return std::nullopt;
  return 1e-9 * calls * static_cast<double>(of.total_ns) / static_cast<double>(of.count);
}

struct KernelTime {
  double calls{0}, seconds{0};
  bool is_known{true};
  void add(double more, std::optional<double> device_s) {
    calls += more;
    seconds += device_s.value_or(0);
    is_known = is_known && device_s;
  }
};

KernelTime kernel_time(const Snapshot& before, const Snapshot& after) {
  KernelTime out;
  for (const auto& [index, kernel] : after.kernels) {
    const auto old = before.kernels.find(index);
    const bool is_new = old == before.kernels.end();
    const double calls = difference(kernel.info.launches, is_new ? 0 : old->second.info.launches);
    if (calls == 0) continue;
    const Durations timed =
        is_new ? kernel.durations : kernel.durations.since(old->second.durations);
    out.add(calls, device_seconds(calls, timed, kernel.durations));
  }
  return out;
}

Durations of_class(const Snapshot& snapshot, std::uint32_t what) {
  const auto found = snapshot.classes.find(what);
  return found == snapshot.classes.end() ? Durations{} : found->second;
}

}  // namespace

DeviceRates device_rates(const Snapshot& before, const Snapshot& after) {
  DeviceRates out;
  const double seconds = std::max(1e-3, 1e-9 * difference(after.at_ns, before.at_ns));
  const auto old = totals_of(before), now = totals_of(after);
  const auto since = [&](std::uint32_t what, std::uint64_t ClassTotals::*member) {
    const auto new_one = now.find(what), old_one = old.find(what);
    return difference(new_one == now.end() ? 0 : new_one->second.*member,
                      old_one == old.end() ? 0 : old_one->second.*member);
  };
  out.copied_bytes_per_s = since(WIRE_CUDA_COPY, &ClassTotals::bytes) / seconds;
  const KernelTime kernels = kernel_time(before, after);
  out.kernels_per_s = kernels.calls / seconds;
  if (kernels.is_known && kernels.calls > 0) out.kernel_mean_s = kernels.seconds / kernels.calls;
  const double graphs = since(WIRE_CUDA_GRAPH_LAUNCH, &ClassTotals::calls);
  const Durations ever = of_class(after, WIRE_CUDA_GRAPH_LAUNCH);
  const auto graph_s =
      graphs == 0
          ? std::optional(0.0)
          : device_seconds(graphs, ever.since(of_class(before, WIRE_CUDA_GRAPH_LAUNCH)), ever);
  if (kernels.is_known && graph_s && kernels.calls + graphs > 0)
    out.busy_share = (kernels.seconds + *graph_s) / seconds;
  return out;
}

}  // namespace kansoku::capture::cuda
