// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "common/text.h"
#include "infer/report.h"

namespace kansoku::infer {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string rate_text(double value, std::string_view unit) {
  constexpr std::array<std::pair<double, char>, 4> kScales{
      {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};
  for (const auto& [scale, letter] : kScales)
    if (value >= scale) return fmt::format("{:.2f} {}{}", value / scale, letter, unit);
  return fmt::format("{:.0f} {}", value, unit);
}

// How near it comes to what the machine can do, and at what.
std::string roofline_text(const Work& work, const ReportOptions& options) {
  if (!options.peaks || work.ns <= 0) return "";
  const double seconds = work.ns * 1e-9;
  const double memory = work.bytes / seconds / options.peaks->bytes_per_second;
  const double arithmetic = work.flops / seconds / options.peaks->flops;
  return memory >= arithmetic ? fmt::format("{:3.0f} % of memory", 100 * memory)
                              : fmt::format("{:3.0f} % of compute", 100 * arithmetic);
}

void write_work(std::string& out, std::string_view name, const Work& work, double share,
                const ReportOptions& options) {
  const double seconds = std::max(work.ns, 1.0) * 1e-9;
  fmt::format_to(Out(out), "  {:<26} {:>5.1f} % {:>9} x {:>9.1f} us {:>14} {:>12}  {}\n",
                 printable(name), 100 * share, work.count,
                 work.ns / 1e3 / static_cast<double>(std::max<std::uint64_t>(work.count, 1)),
                 rate_text(work.flops / seconds, "FLOP/s"), rate_text(work.bytes / seconds, "B/s"),
                 roofline_text(work, options));
}

void write_operators(std::string& out, const ProcessFigures& process, Phase phase,
                     const ReportOptions& options) {
  std::size_t shown = 0;
  for (const OperatorRow& row : process.operators) {
    if (row.phase != phase || ++shown > options.rows) continue;
    if (shown == 1) fmt::format_to(Out(out), "\noperators, {}\n", phase_name(phase));
    write_work(out, row.op, row.work, row.share, options);
  }
  if (shown > options.rows) fmt::format_to(Out(out), "  ... and {} more\n", shown - options.rows);
}

void write_nodes(std::string& out, const ProcessFigures& process, const ReportOptions& options) {
  if (process.nodes.empty()) return;
  out += "\nslowest nodes\n";
  for (std::size_t i = 0; i < std::min(process.nodes.size(), options.rows); ++i) {
    const NodeRow& row = process.nodes[i];
    write_work(out, fmt::format("{} ({})", row.name, phase_name(row.phase)), row.work, row.share,
               options);
  }
}

void write_threads(std::string& out, const ProcessFigures& process) {
  if (process.threads.empty() || process.graph_ns <= 0) return;
  out += "\nthreads, share of the time of graphs\n";
  for (const ThreadRow& row : process.threads) {
    const auto share = [&](double ns) { return 100 * ns / process.graph_ns; };
    fmt::format_to(Out(out),
                   "  thread {:<3} busy {:5.1f} %  waits at barriers {:5.1f} %  outside of nodes "
                   "{:4.1f} %  unexplained {:4.1f} %",
                   row.ith, share(row.busy_ns), share(row.wait_ns), share(row.outside_ns),
                   share(row.unexplained_ns));
    if (process.has_scheduler)
      fmt::format_to(Out(out), "  without a processor {:4.1f} %  blocked {:4.1f} %",
                     share(row.runnable_ns), share(row.blocked_ns));
    out += '\n';
  }
  if (process.imbalance)
    fmt::format_to(Out(out), "  imbalance {:.1f} % (longest thread over the mean)\n",
                   100 * *process.imbalance);
}

void write_graphs(std::string& out, const ProcessFigures& process) {
  std::size_t shown = 0;
  constexpr std::size_t kShown = 4;
  std::vector<const GraphRow*> rows;
  for (const GraphRow& row : process.definitions)
    rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const GraphRow* a, const GraphRow* b) { return a->runs > b->runs; });
  for (const GraphRow* row : rows) {
    if (row->ns <= 0 || ++shown > kShown) continue;
    if (shown == 1) out += "\ngraphs\n";
    fmt::format_to(
        Out(out),
        "  {:<8} {:>6} runs  {} nodes, {} computed  {:.2f} ms in operators, longest path "
        "{:.0f} %\n",
        phase_name(row->phase), row->runs, row->nodes, row->computed, row->ns * 1e-6,
        100 * row->critical_ns / row->ns);
  }
  if (shown > kShown) fmt::format_to(Out(out), "  ... and {} more kinds\n", shown - kShown);
}

void write_experts(std::string& out, const ProcessFigures& process) {
  if (process.experts.empty()) return;
  out += "\nexperts, share of uses\n";
  for (const ExpertRow& row : process.experts) {
    const double sum = std::max(1.0, static_cast<double>(std::accumulate(
                                         row.counts.begin(), row.counts.end(), std::uint64_t{0})));
    fmt::format_to(Out(out), "  {:<20}", printable(row.name));
    constexpr std::size_t kShown = 16;
    for (std::size_t i = 0; i < std::min(row.counts.size(), kShown); ++i)
      fmt::format_to(Out(out), " {:3.0f} %", 100 * static_cast<double>(row.counts[i]) / sum);
    fmt::format_to(Out(out), "  used by the token before, too: {:.0f} %\n", 100 * row.repeated);
  }
}

void write_device_operators(std::string& out, const DeviceFigures& device, const DevicePhase& phase,
                            const ReportOptions& options) {
  std::size_t shown = 0;
  for (const DeviceOperatorRow& row : device.operators) {
    if (row.phase != phase.phase || ++shown > options.rows) continue;
    if (shown == 1) out += "  operators, by order and names of kernels (inferred)\n";
    const double seconds = std::max(row.ns, 1.0) * 1e-9;
    fmt::format_to(Out(out), "  {:>5.1f} % {:>9} x {:>9.1f} us {:>14} {:>12}  {}\n",
                   100 * row.share, row.count,
                   row.ns * 1e-3 / static_cast<double>(std::max<std::uint64_t>(row.count, 1)),
                   rate_text(row.flops / seconds, "FLOP/s"), rate_text(row.bytes / seconds, "B/s"),
                   printable(row.op));
  }
  if (phase.unplaced > 0)
    fmt::format_to(Out(out), "  the kernels of {} of {} splits fit no nodes\n", phase.unplaced,
                   phase.placed + phase.unplaced);
  if (shown > 0) out += "  kernels\n";
}

void write_device(std::string& out, const DeviceFigures& device, const ReportOptions& options) {
  for (const DevicePhase& phase : device.phases) {
    const auto batches = static_cast<double>(std::max<std::uint64_t>(phase.timed, 1));
    fmt::format_to(
        Out(out),
        "\ndevice, {}: {} kernels in {} micro-batches ({} to {} each), {} launches, {} of "
        "them graphs; {:.3f} ms in kernels each\n",
        phase_name(phase.phase), phase.kernels, phase.micro_batches, phase.kernels_least,
        phase.kernels_most, phase.launches, phase.graphs, phase.kernel_ns * 1e-6 / batches);
    write_device_operators(out, device, phase, options);
    std::size_t shown = 0;
    for (const KernelRow& row : device.kernels) {
      if (row.phase != phase.phase || ++shown > options.rows) continue;
      fmt::format_to(Out(out), "  {:>5.1f} % {:>9} x {:>9.1f} us  {}\n", 100 * row.share, row.count,
                     row.ns * 1e-3 / static_cast<double>(std::max<std::uint64_t>(row.count, 1)),
                     printable(row.name));
    }
  }
  if (device.outside > 0)
    fmt::format_to(Out(out), "  {} kernels outside of micro-batches\n", device.outside);
}

void write_findings(std::string& out, const Verdict& verdict) {
  for (const Finding& finding : verdict.findings)
    fmt::format_to(Out(out), "finding: {} ({:.0f} %): {}\n", cause_name(finding.cause),
                   100 * finding.share, printable(finding.text));
}

void write_comparison(std::string& out, const Comparison& comparison,
                      const ReportOptions& options) {
  out += "\nchange from the other recording";
  if (comparison.token_ratio > 0)
    fmt::format_to(Out(out), ": a token takes {:.2f} times as long", comparison.token_ratio);
  out += '\n';
  for (std::size_t i = 0; i < std::min(comparison.operators.size(), options.rows); ++i) {
    const OperatorChange& one = comparison.operators[i];
    fmt::format_to(Out(out),
                   "  {:<26} {:>9.1f} us -> {:>9.1f} us  {:>6.2f} times  {:>5.1f} % of {}\n",
                   printable(one.op), one.base_ns * 1e-3, one.now_ns * 1e-3, one.ratio,
                   100 * one.share, phase_name(one.phase));
  }
}

/// "micro-batches" for "micro_batches".
std::string words_of(std::string figure) {
  std::replace(figure.begin(), figure.end(), '_', '-');
  return figure;
}

void write_speed(std::string& out, const ProcessFigures& process) {
  fmt::format_to(Out(out), "process {} {}{}\n", process.pid, printable(process.name),
                 process.ggml.empty() ? "" : fmt::format(", ggml {}", printable(process.ggml)));
  std::uint64_t failed = 0;
  for (const auto& [result, count] : process.results)
    if (result != 0) failed += count;
  std::string counts;
  const auto add = [&](const char* figure, const std::string& text) {
    if (process.unknown.contains(figure)) return;
    counts += (counts.empty() ? "  " : ", ") + text;
  };
  add("decode",
      fmt::format("{} decode calls of {} tokens", process.decodes, process.decode_tokens));
  add("micro_batches", fmt::format("{} micro-batches", process.micro_batches));
  add("graphs", fmt::format("{} graphs", process.graphs));
  out += counts;
  if (failed > 0) fmt::format_to(Out(out), "; {} calls failed", failed);
  if (!counts.empty()) out += '\n';
  for (const auto& [figure, reason] : process.unknown)
    fmt::format_to(Out(out), "  {}: unknown: {}\n", words_of(figure), printable(reason));
  if (process.tokens_per_second) {
    fmt::format_to(Out(out), "  {:.1f} tokens/s while decoding ({:.2f} ms, p99 {:.2f} ms)",
                   *process.tokens_per_second, process.ms_p50.value_or(0),
                   process.ms_p99.value_or(0));
    if (process.prefill_per_second)
      fmt::format_to(Out(out), ", {:.0f} tokens/s of prompts", *process.prefill_per_second);
    out += '\n';
  }
  if (process.drafts.tokens > 0)
    fmt::format_to(Out(out), "  drafts: {} tokens in {} micro-batches, {} accepted\n",
                   process.drafts.tokens, process.drafts.micro_batches, process.drafts.accepted);
  if (process.cache)
    fmt::format_to(Out(out), "  cache: {} of {} cells used at most, {} attended\n",
                   process.cache->used_max, process.cache->cells, process.cache->attended);
}

void write_process(std::string& out, const ProcessFigures& process, const ReportOptions& options) {
  write_speed(out, process);
  for (const Phase phase : {Phase::kDecode, Phase::kPrefill, Phase::kOther})
    write_operators(out, process, phase, options);
  write_nodes(out, process, options);
  write_threads(out, process);
  write_graphs(out, process);
  write_experts(out, process);
}

}  // namespace

std::string comparison_text(const Verdict& verdict, const ReportOptions& options) {
  std::string out;
  write_findings(out, verdict);
  if (verdict.comparison) write_comparison(out, *verdict.comparison, options);
  if (out.starts_with('\n')) out.erase(0, 1);
  return out;
}

std::string to_text(const Report& report, const ReportOptions& options, const Verdict& verdict) {
  std::string out;
  write_findings(out, verdict);
  if (!verdict.findings.empty()) out += '\n';
  for (std::size_t i = 0; i < report.processes.size(); ++i) {
    if (i > 0) out += '\n';
    write_process(out, report.processes[i], options);
    if (i < verdict.devices.size()) write_device(out, verdict.devices[i], options);
  }
  if (verdict.comparison) write_comparison(out, *verdict.comparison, options);
  if (report.processes.empty()) out += "no model in inference was seen\n";
  if (!report.coverage.empty()) {
    fmt::format_to(Out(out), "\nobserved {:.1f} s at a cost of {:.2f} %:", report.seconds,
                   100 * report.cost_share);
    for (const Coverage& one : report.coverage)
      fmt::format_to(Out(out), " {} {:.1f} s ({} hits)", trace::model_level_name(one.level),
                     one.seconds, one.hits);
    out += '\n';
  }
  if (options.peaks)
    fmt::format_to(Out(out), "machine, measured on {} thread{}: {}, {}\n", options.peaks->threads,
                   options.peaks->threads == 1 ? "" : "s",
                   rate_text(options.peaks->bytes_per_second, "B/s"),
                   rate_text(options.peaks->flops, "FLOP/s"));
  for (const auto& [name, count] : report.losses)
    fmt::format_to(Out(out), "lost: {} {}\n", count, name);
  return out;
}

std::string live_text(const Report& now, const Report& closer, double age_seconds,
                      const ReportOptions& options) {
  std::string out;
  for (const ProcessFigures& process : now.processes)
    write_speed(out, process);
  for (const ProcessFigures& process : closer.processes) {
    if (process.operators.empty()) continue;
    if (age_seconds >= 1) fmt::format_to(Out(out), "\nas seen {:.0f} s ago", age_seconds);
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill, Phase::kOther})
      write_operators(out, process, phase, options);
    write_nodes(out, process, options);
    write_threads(out, process);
  }
  fmt::format_to(Out(out), "\nKansoku costs the program {:.2f} % now\n", 100 * now.cost_share);
  for (const auto& [name, count] : now.losses)
    fmt::format_to(Out(out), "lost: {} {}\n", count, name);
  return out;
}

}  // namespace kansoku::infer
