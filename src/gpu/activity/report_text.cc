// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/text.h"
#include "gpu/activity/activity.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kNameWidthMax = 60;

std::string shown_name(std::string_view untrusted) {
  std::string name = printable(untrusted);
  if (name.size() > kNameWidthMax) {
    name.resize(kNameWidthMax - 3);
    name = printable(name) + "...";
  }
  return name;
}

std::string ms_text(double us) {
  return fmt::format("{:.3f} ms", us / 1e3);
}

template <class T>
std::string known(const std::optional<T>& value, const char* format, double scale = 1) {
  if (!value) return "unknown";
  return fmt::format(fmt::runtime(format), static_cast<double>(*value) * scale);
}

std::string device_head(const DeviceFigures& device) {
  std::string text = device.ordinal < 0 ? "device" : fmt::format("device {}", device.ordinal);
  text += device.rank == trace::kNoRank ? fmt::format(" of process {}", device.pid)
                                        : fmt::format(" of rank {}", device.rank);
  return text;
}

class ReportText {
 public:
  ReportText(const WorkReport& report, std::size_t rows_max)
      : report_(report), rows_max_(rows_max) {}
  std::string text();

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void findings();
  void device(const DeviceFigures& device);
  void waits(const DeviceFigures& device);
  void kernels();
  void transfers();
  void products();
  void ranges();
  void memory();
  void unknown();

  const WorkReport& report_;
  std::size_t rows_max_;
  std::string out_;
};

void ReportText::findings() {
  for (const Finding& finding : report_.findings) {
    const std::string share =
        finding.share ? fmt::format(", {:.1f} % of the time", *finding.share * 100) : "";
    line("{} ({}){}: {}", finding.kind, shown_name(finding.detail), share,
         printable(finding.verdict));
    for (const std::string& evidence : finding.evidence)
      line("  - {}", printable(evidence));
  }
  if (report_.findings.empty()) line("no finding");
}

void ReportText::device(const DeviceFigures& device) {
  line("");
  line("{}: {} operations", device_head(device), device.op_count);
  if (device.window_us) {
    line("  busy {} of {} ({:.1f} %) from its first operation to its last, computing {}",
         ms_text(*device.busy_us), ms_text(*device.window_us),
         *device.window_us > 0 ? 100 * *device.busy_us / *device.window_us : 0.0,
         ms_text(*device.compute_us));
  } else {
    line("  busy: unknown");
  }
  if (device.overlap && device.overlap->share) {
    line("  communication {}, {:.1f} % of it beside computation",
         ms_text(device.overlap->communication_us), 100 * *device.overlap->share);
  }
  if (device.voids) {
    line("  void: {:.1f} % between steps, {:.1f} % within, {} lost; {} steps of {:.3f} ms",
         100 * device.voids->v_inter, 100 * device.voids->v_minority,
         !device.voids->v_unknown ? std::string("unknown")
         : *device.voids->v_unknown > 0
             ? fmt::format("at most {:.1f} %", 100 * *device.voids->v_unknown)
             : std::string("nothing"),
         device.voids->step_count, device.voids->step_ms);
  }
  if (device.copies && device.copies->copy_us > 0) {
    line("  copies {}, {} with no kernel beside, {} of that could overlap",
         ms_text(device.copies->copy_us), ms_text(device.copies->exposed_us),
         ms_text(device.copies->could_overlap_us));
  }
  if (device.judged_us && device.voids)
    line("  its shares below, and those of findings: of {}, {} steps", ms_text(*device.judged_us),
         device.voids->step_count);
  waits(device);
}

void ReportText::waits(const DeviceFigures& device) {
  if (device.issue_latency_us) {
    const Spread& us = *device.issue_latency_us;
    line("  launch to start: p50 {:.1f} us, p99 {:.1f} us", us.p50, us.p99);
  }
  if (device.queues) {
    for (const QueueRow& row : *device.queues)
      line("  queue of stream {}: {:.1f} on average, {:.0f} at most", row.stream, row.time_mean,
           row.length.max);
  }
  if (device.short_kernel_count)
    line("  {} kernels shorter than their launch", *device.short_kernel_count);
  if (device.launch_bound && device.launch_bound->stretch_count > 0) {
    line("  launch-bound: {} stretches, {}, idle {}", device.launch_bound->stretch_count,
         ms_text(device.launch_bound->us), ms_text(device.launch_bound->idle_us));
  }
  if (!device.idle) return;
  for (const IdleRow& row : *device.idle) {
    line("  idle {:>5.1f} % {:<15} {}{}", 100 * row.share, idle_cause_name(row.cause),
         ms_text(row.us), row.function.empty() ? "" : "  " + shown_name(row.function));
  }
}

void ReportText::kernels() {
  if (report_.kernels.empty()) return;
  line("");
  line("{:>8} {:>12} {:>7} {:>10} {:>10}  {}", "count", "total ms", "share", "p50 us", "p99 us",
       "kernel");
  for (std::size_t i = 0; i < report_.kernels.size() && i < rows_max_; ++i) {
    const KernelRow& row = report_.kernels[i];
    line("{:>8} {:>12} {:>7} {:>10} {:>10}  {}", row.count, known(row.total_us, "{:.3f}", 1e-3),
         known(row.share, "{:.1f} %", 100),
         row.us ? fmt::format("{:.1f}", row.us->p50) : std::string("unknown"),
         row.us ? fmt::format("{:.1f}", row.us->p99) : std::string("unknown"),
         shown_name(row.name));
  }
  if (report_.kernels.size() > rows_max_) {
    const Others others = others_of(report_, rows_max_);
    line("{:>8} {:>12} {:>7} {:>10} {:>10}  ({} others)", others.count,
         known(others.total_us, "{:.3f}", 1e-3), known(others.share, "{:.1f} %", 100), "", "",
         report_.kernels.size() - rows_max_);
  }
}

void ReportText::transfers() {
  if (!report_.copies.empty()) line("");
  for (const CopyRow& row : report_.copies) {
    const char* const memory = !row.pageable ? "" : *row.pageable ? " pageable" : " pinned";
    line("copy {}{}: {} times, {} MB, {} GB/s", row.kind.empty() ? "?" : shown_name(row.kind),
         memory, row.count, known(row.bytes, "{:.3f}", 1e-6), known(row.gb_per_s, "{:.3f}"));
  }
  for (std::size_t i = 0; i < report_.collectives.size() && i < rows_max_; ++i) {
    const CollectiveRow& row = report_.collectives[i];
    line("collective {}: {} times, {} MB, {} ranks, p50 {:.1f} us, at least {} GB/s on the bus",
         row.name.empty() ? "?" : row.name, row.count, known(row.bytes, "{:.3f}", 1e-6),
         known(row.group_size, "{:.0f}"), row.us ? row.us->p50 : 0.0,
         known(row.bus_gb_per_s, "{:.3f}"));
  }
}

void ReportText::products() {
  if (report_.gemms) {
    line("");
    for (std::size_t i = 0; i < report_.gemms->size() && i < rows_max_; ++i) {
      const GemmRow& row = (*report_.gemms)[i];
      line("product {} x ({} x {}) ({} x {}): {} times, {} TFLOP/s{}", row.batch, row.m, row.k,
           row.k, row.n, row.count, known(row.tflops, "{:.3f}"),
           row.peak_share ? fmt::format(", {:.1f} % of the peak", 100 * *row.peak_share) : "");
    }
  }
  if (!report_.operators) return;
  line("");
  for (std::size_t i = 0; i < report_.operators->size() && i < rows_max_; ++i) {
    const OperatorRow& row = (*report_.operators)[i];
    line("operator {}: {} of the device in {} calls, most in {}", shown_name(row.name),
         ms_text(row.device_us), row.call_count, shown_name(row.top_kernel));
  }
}

void ReportText::ranges() {
  if (!report_.ranges) return;
  line("");
  line("   count  operations    host ms  device ms   share  range");
  for (std::size_t i = 0; i < report_.ranges->size() && i < rows_max_; ++i) {
    const RangeRow& row = (*report_.ranges)[i];
    line("{:>8} {:>11} {:>10.3f} {:>10} {:>7}  {}{}", row.count, known(row.op_count, "{:.0f}"),
         row.host_us / 1e3, known(row.device_us, "{:.3f}", 1e-3),
         row.share ? fmt::format("{:.1f} %", 100 * *row.share) : "?", shown_name(row.name),
         row.domain.empty() ? "" : fmt::format(" ({})", shown_name(row.domain)));
  }
  if (report_.ranges->size() > rows_max_)
    line("         and {} further names", report_.ranges->size() - rows_max_);
}

void ReportText::memory() {
  constexpr double kMib = 1.0 / (1 << 20);
  if (!report_.memory.empty()) line("");
  for (const MemoryFigures& memory : report_.memory) {
    if (memory.point_count == 0) continue;
    line("memory of process {}: at most {:.1f} MiB, {:.1f} MiB at the end", memory.pid,
         static_cast<double>(memory.high_water_bytes) * kMib,
         static_cast<double>(memory.last_bytes) * kMib);
    for (const MemoryHolder& holder : memory.holders)
      line("  {:.1f} MiB in {} allocations: {}", static_cast<double>(holder.bytes) * kMib,
           holder.count, holder.stack.empty() ? "(no stack)" : printable(holder.stack));
  }
}

void ReportText::unknown() {
  bool is_first = true;
  for (const FigureState& state : report_.figures) {
    if (state.is == FigureState::Is::kKnown) continue;
    if (is_first) line("");
    is_first = false;
    line("{}: {}: {}", state.is == FigureState::Is::kPartly ? "partly known" : "unknown",
         state.name, state.why);
  }
  for (const DeviceNote& note : report_.device_notes)
    line("note: {}", printable(note.text));
  for (const std::string& note : report_.notes)
    line("note: {}", printable(note));
  for (const trace::Loss& loss : report_.losses) {
    if (loss.severity >= Severity::kDataLoss)
      line("lost: {} {}: {}", loss.count, printable(loss.name), printable(loss.advice));
  }
}

std::string ReportText::text() {
  line("{} device operations, {} calls of CUDA; recorded: {}{}", report_.op_count,
       report_.call_count, mode_text(report_.recorded),
       report_.recorded.is_imported ? " (a profiler's file)" : "");
  if (report_.recorded.mode != Mode::kNone) findings();
  for (const DeviceFigures& of : report_.devices)
    device(of);
  kernels();
  transfers();
  products();
  ranges();
  memory();
  if (report_.recorded.mode != Mode::kNone) unknown();
  return std::move(out_);
}

}  // namespace

Others others_of(const WorkReport& report, std::size_t rows_max) {
  Others others;
  for (std::size_t i = rows_max; i < report.kernels.size(); ++i) {
    const KernelRow& row = report.kernels[i];
    others.count += row.count;
    if (row.total_us) others.total_us = others.total_us.value_or(0) + *row.total_us;
    if (row.share) others.share = others.share.value_or(0) + *row.share;
  }
  return others;
}

std::string to_text(const WorkReport& report, std::size_t rows_max) {
  return ReportText(report, rows_max).text();
}

}  // namespace kansoku::gpu::activity
