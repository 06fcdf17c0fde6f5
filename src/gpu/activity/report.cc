// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/time.h"
#include "gpu/activity/activity.h"
#include "gpu/activity/internal/arg_reader.h"
#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/findings.h"
#include "gpu/activity/internal/host_slices.h"
#include "gpu/activity/internal/idle_tracks.h"
#include "gpu/activity/internal/memory_figures.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tables.h"
#include "gpu/activity/internal/timeline.h"
#include "gpu/activity/internal/tracks.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kTimelinesMax = 8;  // devices that a page draws

/// Steps by begin, each cut at the begin of the next.
void order_steps(std::vector<ProcessSteps>& all) {
  for (ProcessSteps& of : all) {
    std::sort(
        of.steps.begin(), of.steps.end(),
        [](const stats::Interval& a, const stats::Interval& b) { return a.begin_ns < b.begin_ns; });
    for (std::size_t i = 0; i + 1 < of.steps.size(); ++i)
      of.steps[i].end_ns = std::min(of.steps[i].end_ns, of.steps[i + 1].begin_ns);
    std::erase_if(of.steps, [](const stats::Interval& s) { return s.end_ns <= s.begin_ns; });
  }
}

/// The steps that PyTorch's profiler wrote on host threads.
std::vector<ProcessSteps> profiler_steps(const trace::Trace& trace, const ArgReader& args,
                                         const HostSlices& host) {
  std::map<std::int32_t, ProcessSteps> found;
  std::map<trace::StringId, bool> is_step;
  for (std::uint32_t i = 0; i < trace.slices.size(); ++i) {
    const auto [known, is_new] = is_step.try_emplace(trace.slices.name[i]);
    if (is_new) known->second = args.string(trace.slices.name[i]).starts_with("ProfilerStep#");
    if (!known->second || trace.slices.track[i].raw >= trace.tracks.size()) continue;
    // The device repeats the annotation.
    if (args.string(trace.slices.category[i]).starts_with("gpu_")) continue;
    const std::int32_t pid = process_of_track(trace, trace.slices.track[i]);
    found[pid].pid = pid;
    found[pid].steps.push_back(host.time(i));
  }
  std::vector<ProcessSteps> out;
  out.reserve(found.size());
  for (auto& [pid, steps] : found)
    out.push_back(std::move(steps));
  return out;
}

class ReportMaker {
 public:
  ReportMaker(const Input& in, WorkReport& out) : in_(in), out_(out) {}
  void make();

 private:
  void add_counts();
  void add_device(std::uint32_t index);
  void add_idle(const Device& device, const DeviceTime& time, DeviceFigures& figures);
  [[nodiscard]] std::int64_t host_begin_ns(const Device& device) const;
  void add_states();
  void require(Figure figure, bool is_there);
  void add_notes();
  [[nodiscard]] bool allows(Figure figure) const { return is_allowed(figure, in_.recorded); }

  const Input& in_;
  WorkReport& out_;
  std::optional<IdleCauses> causes_;
};

void ReportMaker::add_counts() {
  out_.op_count = in_.work.ops.size();
  out_.call_count = in_.work.calls.size();
  out_.unlinked_count = in_.work.unlinked_count;
  for (const Call& call : in_.work.calls) {
    if (call.is_nested) continue;
    out_.launch_count += call.what == CallClass::kLaunch ? 1 : 0;
    if (call.what != CallClass::kModule) continue;
    ++out_.module_load_count;
    out_.module_load_ms += us_of(call.time.end_ns - call.time.begin_ns) / 1e3;
  }
}

/// The time from which on a device is waited for: its first step, or the begin of its process in a
/// profile. A recording may have seen the process load its libraries: its own first operation then.
std::int64_t ReportMaker::host_begin_ns(const Device& device) const {
  if (const ProcessSteps* const of = steps_of(in_, device.pid)) return of->steps.front().begin_ns;
  std::int64_t begin_ns = kTimeMaxNs;
  for (const Thread& thread : in_.work.threads) {
    if (in_.recorded.is_imported && thread.pid == device.pid && !thread.slices.empty())
      begin_ns = std::min(begin_ns, in_.trace.slices.start_ns[thread.slices.front()]);
  }
  return begin_ns;
}

void ReportMaker::add_idle(const Device& device, const DeviceTime& time, DeviceFigures& figures) {
  const stats::Interval window = judged_window(in_, device, time);
  figures.judged_us = us_of(window.end_ns - window.begin_ns);
  figures.has_steps = steps_of(in_, device.pid) != nullptr;
  const bool has_launches =
      std::any_of(device.ops.begin(), device.ops.end(),
                  [&](std::uint32_t op) { return in_.work.ops[op].call != kNoIndex; });
  Stretches stretches;
  if (allows(Figure::kLaunchBound) && has_launches) {
    stretches = launch_bound_stretches(in_, device, window);
    figures.launch_bound = stretches.figures;
  }
  if (allows(Figure::kIdleCauses) && has_launches) {
    if (!causes_) causes_.emplace(in_);
    figures.idle = causes_->rows(device, window, stretches);
    figures.longest_idle = causes_->longest(device, window, stretches, host_begin_ns(device));
  }
  if (in_.options.with_view && out_.view.timelines.size() < kTimelinesMax) {
    out_.view.timelines.push_back(
        timeline_of(in_, device, time, window, figures.idle ? &*causes_ : nullptr, stretches));
  }
  if (in_.options.with_tracks && figures.idle)
    out_.tracks.idle.push_back(idle_track_of(in_, device, time, *causes_));
  if (allows(Figure::kExposedCopies)) figures.copies = exposed_copies(in_, device, time, window);
}

void ReportMaker::add_device(std::uint32_t index) {
  const Device& device = in_.work.devices[index];
  DeviceFigures figures;
  figures.pid = device.pid;
  figures.rank = device.rank;
  figures.ordinal = device.ordinal;
  figures.op_count = device.ops.size();
  add_latencies(in_, device, figures);
  const DeviceTime time = device_time(in_.work, device);
  if (allows(Figure::kBusyIdle) && !time.busy.empty()) {
    figures.window_us = us_of(time.window.end_ns - time.window.begin_ns);
    figures.busy_us = us_of(time.busy.measure_ns(time.window));
    figures.idle_us = *figures.window_us - *figures.busy_us;
    figures.compute_us = us_of(time.compute.measure_ns(time.window));
    figures.gaps = gap_rows(in_, index);
    if (allows(Figure::kOverlap)) figures.overlap = overlap_figures(time);
    if (allows(Figure::kVoid)) figures.voids = void_figures(in_, device, time);
    add_idle(device, time, figures);
    if (allows(Figure::kQueueLength)) {
      figures.queues = queue_rows(in_, index);
      if (figures.queues->empty()) figures.queues.reset();
    }
  }
  out_.devices.push_back(std::move(figures));
}

/// A figure that the mode allows, but whose source is not there.
void ReportMaker::require(Figure figure, bool is_there) {
  FigureState& state = out_.figures[static_cast<std::size_t>(figure)];
  if (is_there || state.is == FigureState::Is::kUnknown) return;
  const FigureRow& row = figure_rows()[static_cast<std::size_t>(figure)];
  state.is = FigureState::Is::kUnknown;
  state.why = fmt::format("it needs {}, which the recording lacks", row.needs);
}

void ReportMaker::add_states() {
  for (const FigureRow& row : figure_rows())
    out_.figures.push_back(state_of(row.figure, in_.recorded));
  const auto any_device = [&](auto has) {
    return out_.devices.empty() || std::any_of(out_.devices.begin(), out_.devices.end(), has);
  };
  const auto is_empty_or_any = [](const auto& rows, auto has) {
    return rows.empty() || std::any_of(rows.begin(), rows.end(), has);
  };
  require(Figure::kLaunches, !in_.work.calls.empty());
  require(Figure::kCopyBytes,
          is_empty_or_any(out_.copies, [](const CopyRow& row) { return row.bytes.has_value(); }));
  require(Figure::kCopyRates, is_empty_or_any(out_.copies, [](const CopyRow& row) {
            return row.gb_per_s.has_value();
          }));
  require(Figure::kBusBandwidth, is_empty_or_any(out_.collectives, [](const CollectiveRow& row) {
            return row.bus_gb_per_s.has_value();
          }));
  require(Figure::kFlops, out_.gemms.has_value());
  require(Figure::kOperators, out_.operators.has_value());
  require(Figure::kMemory, !out_.memory.empty());
  require(Figure::kIssueLatency, any_device([](const DeviceFigures& device) {
            return device.issue_latency_us.has_value();
          }));
  require(Figure::kShortKernels, any_device([](const DeviceFigures& device) {
            return device.short_kernel_count.has_value();
          }));
  require(Figure::kQueueLength,
          any_device([](const DeviceFigures& device) { return device.queues.has_value(); }));
  require(Figure::kVoid,
          any_device([](const DeviceFigures& device) { return device.voids.has_value(); }));
  require(Figure::kIdleCauses,
          any_device([](const DeviceFigures& device) { return device.idle.has_value(); }));
  require(Figure::kLaunchBound,
          any_device([](const DeviceFigures& device) { return device.launch_bound.has_value(); }));
}

void ReportMaker::add_notes() {
  const auto add = [&](const char* text, std::uint64_t count) {
    if (count > 0) out_.notes.push_back(fmt::format("{}: {}", text, count));
  };
  add("device operations without a launch call in the recording", in_.work.unlinked_count);
  add("device operations that were not linked, because two processes use their correlation number",
      in_.work.ambiguous_count);
  add("device operations without an end, left out", in_.work.open_count);
  add("device operations on a clock of their own, before the device's clock was known, left out",
      in_.work.other_clock_count);
  add("slices with impossible times, left out", in_.work.odd_count);
  if (in_.work.moved_ns > 0) {
    out_.notes.push_back(
        fmt::format("device times were moved by {:.0f} us at most: they contradicted waits or "
                    "launches of the host",
                    us_of(in_.work.moved_ns)));
  }
  std::uint64_t negative = 0;
  for (const DeviceFigures& device : out_.devices)
    negative += device.negative_latency_count;
  add("device operations that begin before their launch: the clocks do not agree there", negative);
  for (const auto& [name, loss] : in_.trace.losses) {
    if (loss.count > 0) out_.losses.push_back(loss);
  }
}

void ReportMaker::make() {
  add_counts();
  for (std::uint32_t i = 0; i < in_.work.devices.size(); ++i)
    add_device(i);
  out_.kernels = kernel_rows(in_);
  out_.copies = copy_rows(in_);
  out_.collectives = collective_rows(in_);
  if (allows(Figure::kFlops)) out_.gemms = gemm_rows(in_);
  if (out_.gemms && out_.gemms->empty()) out_.gemms.reset();
  if (allows(Figure::kOperators)) out_.operators = operator_rows(in_);
  if (out_.operators && out_.operators->empty()) out_.operators.reset();
  out_.ranges = range_rows(in_);
  if (out_.ranges->empty()) out_.ranges.reset();
  out_.memory = memory_figures(in_);
  if (in_.options.with_tracks) {
    keep_longest(out_.tracks.idle);
    out_.tracks.steps = in_.steps;
  }
  add_states();
  add_notes();
  out_.findings = findings_of(in_, out_);
}

}  // namespace

Result<WorkReport> report_of(const trace::Trace& trace, const Options& options) {
  TRY(const DeviceWork work, read_device_work(trace));
  const ArgReader args(trace);
  const HostSlices host(trace, work);
  WorkReport report;
  report.recorded = recorded_of(trace, work);
  std::vector<ProcessSteps> steps = options.steps;
  report.steps_by = steps.empty() ? "none" : "caller";
  if (steps.empty()) {
    steps = profiler_steps(trace, args, host);
    if (!steps.empty()) report.steps_by = "profiler";
  }
  order_steps(steps);
  ReportMaker({trace, work, args, host, options, report.recorded, steps}, report).make();
  return report;
}

}  // namespace kansoku::gpu::activity
