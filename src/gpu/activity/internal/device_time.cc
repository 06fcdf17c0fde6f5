// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/thresholds.h"

namespace kansoku::gpu::activity {
namespace {

using stats::Interval;
using stats::IntervalSet;

std::int64_t length_of(const IntervalSet& set, Interval window) {
  return set.measure_ns(window);
}

/// The operations that one step launched, as the device ran them.
struct StepSpan {
  std::int64_t first_ns{0}, last_ns{0};
  bool is_empty{true};
};

/// Per step; an operation belongs to the step in which it was launched.
std::vector<StepSpan> step_spans(const Input& in, const Device& device,
                                 const std::vector<Interval>& steps) {
  std::vector<StepSpan> spans(steps.size());
  for (const std::uint32_t i : device.ops) {
    const Op& op = in.work.ops[i];
    if (!is_busy(op.what)) continue;
    const std::int64_t at_ns =
        op.call == kNoIndex ? op.time.begin_ns : in.work.calls[op.call].time.begin_ns;
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), at_ns,
                         [](std::int64_t ns, const Interval& step) { return ns < step.begin_ns; });
    if (after == steps.begin() || at_ns >= (after - 1)->end_ns) continue;
    StepSpan& span = spans[static_cast<std::size_t>(after - steps.begin()) - 1];
    span.first_ns = span.is_empty ? op.time.begin_ns : std::min(span.first_ns, op.time.begin_ns);
    span.last_ns = std::max(span.last_ns, op.time.end_ns);
    span.is_empty = false;
  }
  return spans;
}

/// Losses that count operations of devices; others leave open how much is missing.
constexpr std::array<std::string_view, 8> kLostOperations{
    "cuda_ring_full",   "cuda_untimed_no_event", "cuda_untimed_legacy", "cuda_untimed_programmatic",
    "cuda_interleaved", "cuda_event_errors",     "cuda_lost_context",   "cuda_odd_records"};

/// The share of `total_ns` that lost records may have covered, at most: as many operations of mean
/// length, but no more than what is empty. Nothing if other losses leave that open.
std::optional<double> unknown_share(const Input& in, const Device& device, double total_ns,
                                    double empty_ns) {
  std::uint64_t lost = 0;
  for (const auto& [name, loss] : in.trace.losses) {
    if (loss.count == 0 || loss.severity < Severity::kDataLoss) continue;
    if (std::find(kLostOperations.begin(), kLostOperations.end(), name) == kLostOperations.end())
      return std::nullopt;
    lost += loss.count;
  }
  if (lost == 0) return 0;
  double sum_ns = 0;
  for (const std::uint32_t i : device.ops)
    sum_ns += static_cast<double>(in.work.ops[i].time.end_ns - in.work.ops[i].time.begin_ns);
  const double mean_ns = sum_ns / static_cast<double>(std::max<std::size_t>(device.ops.size(), 1));
  return std::min(empty_ns, mean_ns * static_cast<double>(lost)) / total_ns;
}

}  // namespace

DeviceTime device_time(const DeviceWork& work, const Device& device) {
  std::vector<Interval> busy, compute, communication, copies;
  DeviceTime out;
  for (const std::uint32_t i : device.ops) {
    const Op& op = work.ops[i];
    if (!is_busy(op.what)) continue;
    out.window.begin_ns = busy.empty() ? op.time.begin_ns : out.window.begin_ns;
    out.window.end_ns = std::max(out.window.end_ns, op.time.end_ns);
    busy.push_back(op.time);
    if (op.what == OpClass::kKernel) compute.push_back(op.time);
    if (op.what == OpClass::kCollective) communication.push_back(op.time);
    if (op.what == OpClass::kCopy) copies.push_back(op.time);
  }
  out.busy = IntervalSet::of(std::move(busy));
  out.compute = IntervalSet::of(std::move(compute));
  out.communication = IntervalSet::of(std::move(communication));
  out.copies = IntervalSet::of(std::move(copies));
  return out;
}

const ProcessSteps* steps_of(const Input& in, std::int32_t pid) {
  for (const ProcessSteps& of : in.steps) {
    if (of.pid == pid && !of.steps.empty()) return &of;
  }
  return nullptr;
}

Interval judged_window(const Input& in, const Device& device, const DeviceTime& time) {
  const ProcessSteps* const of = steps_of(in, device.pid);
  if (of == nullptr || !in.recorded.is_one_clock) return time.window;
  Interval window;
  bool is_empty = true;
  for (const StepSpan& span : step_spans(in, device, of->steps)) {
    if (span.is_empty) continue;
    window.begin_ns = is_empty ? span.first_ns : std::min(window.begin_ns, span.first_ns);
    window.end_ns = std::max(window.end_ns, span.last_ns);
    is_empty = false;
  }
  return is_empty ? time.window : window;
}

std::optional<VoidFigures> void_figures(const Input& in, const Device& device,
                                        const DeviceTime& time) {
  const ProcessSteps* const of = steps_of(in, device.pid);
  if (of == nullptr) return std::nullopt;
  const auto spans = step_spans(in, device, of->steps);
  VoidFigures out;
  std::vector<double> steps_ms;
  double total_ns = 0, inter_ns = 0, void_ns = 0;
  for (std::size_t s = 0; s + 1 < spans.size(); ++s) {
    const StepSpan& step = spans[s];
    const StepSpan& next = spans[s + 1];
    if (step.is_empty || next.is_empty || next.first_ns <= step.first_ns) continue;
    const std::int64_t last_ns = std::min(step.last_ns, next.first_ns);
    const std::int64_t busy_ns = length_of(time.busy, {step.first_ns, last_ns});
    steps_ms.push_back(static_cast<double>(next.first_ns - step.first_ns) / 1e6);
    total_ns += static_cast<double>(next.first_ns - step.first_ns);
    inter_ns += static_cast<double>(next.first_ns - last_ns);
    void_ns += static_cast<double>(last_ns - step.first_ns - busy_ns);
  }
  if (steps_ms.empty() || total_ns <= 0) return std::nullopt;
  out.step_count = steps_ms.size();
  out.step_ms = stats::median(steps_ms);
  out.v_inter = inter_ns / total_ns;
  out.v_minority = total_ns > inter_ns ? void_ns / (total_ns - inter_ns) : 0;
  out.v_unknown = unknown_share(in, device, total_ns, inter_ns + void_ns);
  return out;
}

OverlapFigures overlap_figures(const DeviceTime& time) {
  OverlapFigures out;
  out.communication_us = us_of(length_of(time.communication, time.window));
  out.compute_us = us_of(length_of(time.compute, time.window));
  out.both_us = us_of(length_of(time.communication.intersect(time.compute), time.window));
  if (out.communication_us > 0) out.share = out.both_us / out.communication_us;
  return out;
}

ExposedCopies exposed_copies(const Input& in, const Device& device, const DeviceTime& time,
                             Interval window) {
  const IntervalSet kernels = time.compute.unite(time.communication);
  std::set<std::uint32_t> kernel_streams;
  for (const std::uint32_t i : device.ops) {
    if (in.work.ops[i].what == OpClass::kKernel) kernel_streams.insert(in.work.ops[i].stream);
  }
  std::vector<Interval> could, pageable, blocking;
  for (const std::uint32_t i : device.ops) {
    const Op& op = in.work.ops[i];
    if (op.what != OpClass::kCopy) continue;
    const auto said = in.args.number(op.slice, ArgName::kPageable);
    const std::string_view name = in.args.string(in.trace.slices.name[op.slice]);
    const bool is_staged = op.call != kNoIndex && in.work.calls[op.call].is_staged;
    const bool is_pageable =
        said ? *said != 0 : is_staged || name.find("Pageable") != std::string_view::npos;
    if (is_pageable) pageable.push_back(op.time);
    const bool is_waited_for = op.call != kNoIndex && in.work.calls[op.call].is_blocking;
    if (is_waited_for) blocking.push_back(op.time);
    if (is_pageable || is_waited_for || kernel_streams.contains(op.stream))
      could.push_back(op.time);
  }
  ExposedCopies out;
  out.copy_us = us_of(length_of(time.copies, window));
  const IntervalSet exposed = time.copies.subtract(kernels);
  out.exposed_us = us_of(length_of(exposed, window));
  const auto exposed_us = [&](std::vector<Interval> of) {
    return us_of(length_of(exposed.intersect(IntervalSet::of(std::move(of))), window));
  };
  out.could_overlap_us = exposed_us(std::move(could));
  out.pageable_us = exposed_us(std::move(pageable));
  out.blocking_us = exposed_us(std::move(blocking));
  return out;
}

std::vector<GapRow> gap_rows(const Input& in, std::uint32_t device) {
  std::vector<GapRow> rows;
  for (const Stream& stream : streams_of(in.work, device)) {
    GapRow row{.stream = stream.number};
    const Op* before = nullptr;
    for (const std::uint32_t i : stream.ops) {
      const Op& op = in.work.ops[i];
      if (!is_busy(op.what)) continue;
      const std::int64_t gap_ns = before == nullptr ? 0 : op.time.begin_ns - before->time.end_ns;
      if (gap_ns > 0) {
        const bool is_late = op.call != kNoIndex && in.recorded.is_one_clock &&
                             in.work.calls[op.call].time.begin_ns > before->time.end_ns;
        double& us = is_late                 ? row.host_wait_us
                     : gap_ns < kKernelGapNs ? row.kernel_wait_us
                                             : row.other_us;
        us += us_of(gap_ns);
      }
      if (before == nullptr || op.time.end_ns > before->time.end_ns) before = &op;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace kansoku::gpu::activity
