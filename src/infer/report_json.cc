// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "infer/report.h"

namespace kansoku::infer {
namespace {

// Sums of whole numbers, of which doubles hold 53 bits.
Json whole(double value) {
  return static_cast<std::int64_t>(std::llround(value));
}

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

void set_work(Json& out, const Work& work, const ReportOptions& options) {
  out.set("count", work.count).set("time_ns", whole(work.ns));
  out.set("flops", whole(work.flops)).set("bytes", whole(work.bytes));
  if (work.ns > 0) {
    const double seconds = work.ns * 1e-9;
    out.set("flops_per_second", work.flops / seconds).set("bytes_per_second", work.bytes / seconds);
    if (options.peaks) {
      const double memory = work.bytes / seconds / options.peaks->bytes_per_second;
      const double arithmetic = work.flops / seconds / options.peaks->flops;
      out.set("memory_share", memory).set("compute_share", arithmetic);
      out.set("bound", memory >= arithmetic ? "memory" : "compute");
    }
  }
  out.set("runnable_ns", whole(work.runnable_ns)).set("blocked_ns", whole(work.blocked_ns));
}

Json operators_json(const ProcessFigures& process, const ReportOptions& options) {
  Json out = Json::array();
  for (const OperatorRow& row : process.operators) {
    Json one = Json::object();
    one.set("op", row.op).set("phase", phase_name(row.phase)).set("share", row.share);
    one.set("median_ns", whole(row.median_ns));
    set_work(one, row.work, options);
    out.push(std::move(one));
  }
  return out;
}

Json nodes_json(const ProcessFigures& process, const ReportOptions& options) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(process.nodes.size(), options.rows); ++i) {
    const NodeRow& row = process.nodes[i];
    Json one = Json::object();
    one.set("name", row.name).set("op", row.op).set("phase", phase_name(row.phase));
    one.set("weights", row.weights).set("share", row.share);
    set_work(one, row.work, options);
    out.push(std::move(one));
  }
  return out;
}

Json threads_json(const ProcessFigures& process) {
  Json out = Json::array();
  for (const ThreadRow& row : process.threads) {
    Json one = Json::object();
    one.set("thread", static_cast<std::uint32_t>(row.ith)).set("operators", row.operators);
    one.set("busy_ns", whole(row.busy_ns))
        .set("wait_ns", whole(row.wait_ns))
        .set("outside_ns", whole(row.outside_ns));
    one.set("unexplained_ns", whole(row.unexplained_ns));
    one.set("runnable_ns", whole(row.runnable_ns)).set("blocked_ns", whole(row.blocked_ns));
    out.push(std::move(one));
  }
  return out;
}

Json graphs_json(const ProcessFigures& process) {
  Json out = Json::array();
  for (const GraphRow& row : process.definitions) {
    Json one = Json::object();
    one.set("definition", row.definition).set("phase", phase_name(row.phase)).set("runs", row.runs);
    one.set("nodes", std::uint64_t{row.nodes}).set("computed", std::uint64_t{row.computed});
    one.set("time_ns", whole(row.ns)).set("critical_ns", whole(row.critical_ns));
    one.set("critical_nodes", std::uint64_t{row.path.size()});
    out.push(std::move(one));
  }
  return out;
}

Json experts_json(const ProcessFigures& process) {
  Json out = Json::array();
  for (const ExpertRow& row : process.experts) {
    Json one = Json::object();
    one.set("name", row.name).set("tokens", row.tokens).set("repeated", row.repeated);
    one.set("counts", Json::array_of(row.counts));
    out.push(std::move(one));
  }
  return out;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& finding : findings) {
    Json one = Json::object();
    one.set("cause", cause_name(finding.cause)).set("pid", finding.pid).set("what", finding.what);
    one.set("share", finding.share).set("text", finding.text);
    one.set("basis", std::string(verdict::basis_name(verdict::Basis::kObservation)));
    one.set("since_ns", finding.since_ns == 0 ? Json() : Json(std::to_string(finding.since_ns)));
    out.push(std::move(one));
  }
  return out;
}

Json device_json(const DeviceFigures& device, const ReportOptions& options) {
  Json phases = Json::array(), kernels = Json::array();
  for (const DevicePhase& phase : device.phases) {
    Json one = Json::object();
    one.set("phase", phase_name(phase.phase)).set("micro_batches", phase.micro_batches);
    one.set("tokens", phase.tokens).set("launches", phase.launches).set("graphs", phase.graphs);
    one.set("kernels", phase.kernels).set("kernels_least", phase.kernels_least);
    one.set("kernels_most", phase.kernels_most).set("kernel_ns", whole(phase.kernel_ns));
    one.set("timed", phase.timed).set("placed", phase.placed).set("unplaced", phase.unplaced);
    phases.push(std::move(one));
  }
  for (std::size_t i = 0; i < std::min(device.kernels.size(), options.rows); ++i) {
    const KernelRow& row = device.kernels[i];
    Json one = Json::object();
    one.set("name", row.name).set("phase", phase_name(row.phase)).set("count", row.count);
    one.set("time_ns", whole(row.ns)).set("share", row.share);
    kernels.push(std::move(one));
  }
  Json operators = Json::array();
  for (const DeviceOperatorRow& row : device.operators) {
    Json one = Json::object();
    one.set("op", row.op).set("phase", phase_name(row.phase)).set("count", row.count);
    one.set("kernels", row.kernels).set("time_ns", whole(row.ns)).set("share", row.share);
    one.set("flops", whole(row.flops)).set("bytes", whole(row.bytes)).set("inferred", true);
    operators.push(std::move(one));
  }
  return Json::object()
      .set("phases", std::move(phases))
      .set("operators", std::move(operators))
      .set("kernels", std::move(kernels))
      .set("kernels_outside", device.outside);
}

Json devices_json(const Report& report, const Verdict& verdict, const ReportOptions& options) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(report.processes.size(), verdict.devices.size()); ++i) {
    if (verdict.devices[i].phases.empty() && verdict.devices[i].outside == 0) continue;
    Json one = device_json(verdict.devices[i], options);
    one.set("pid", report.processes[i].pid);
    out.push(std::move(one));
  }
  return out;
}

Json comparison_json(const Comparison& comparison) {
  Json rows = Json::array();
  for (const OperatorChange& change : comparison.operators) {
    Json one = Json::object();
    one.set("op", change.op).set("phase", phase_name(change.phase)).set("share", change.share);
    one.set("base_ns", change.base_ns).set("now_ns", change.now_ns).set("ratio", change.ratio);
    one.set("work_ratio", change.work_ratio);
    rows.push(std::move(one));
  }
  return Json::object()
      .set("token_ratio", comparison.token_ratio > 0 ? Json(comparison.token_ratio) : Json())
      .set("operators", std::move(rows));
}

Json process_json(const ProcessFigures& process, const ReportOptions& options) {
  Json results = Json::object();
  for (const auto& [result, count] : process.results)
    results.set(std::to_string(result), count);
  Json out = Json::object();
  out.set("pid", process.pid).set("name", process.name).set("ggml", process.ggml);
  const auto known = [&](const char* figure, Json value) {
    out.set(figure, process.unknown.contains(figure) ? Json() : std::move(value));
  };
  known("decode", Json::object()
                      .set("calls", process.decodes)
                      .set("results", std::move(results))
                      .set("without_result", process.unanswered)
                      .set("tokens", process.decode_tokens));
  known("micro_batches", Json::object()
                             .set("count", process.micro_batches)
                             .set("tokens", process.micro_batch_tokens)
                             .set("prompt_tokens", process.prompt)
                             .set("generated_tokens", process.generated)
                             .set("drafts", Json::object()
                                                .set("micro_batches", process.drafts.micro_batches)
                                                .set("tokens", process.drafts.tokens)
                                                .set("accepted", process.drafts.accepted)));
  known("graphs", Json::object()
                      .set("count", process.graphs)
                      .set("whole", process.graphs_whole)
                      .set("built", process.uids ? Json(*process.uids) : Json())
                      .set("splits", process.splits)
                      .set("definitions", std::uint64_t{process.definitions.size()}));
  out.set("speed", Json::object()
                       .set("tokens_per_second", optional_number(process.tokens_per_second))
                       .set("prompt_tokens_per_second", optional_number(process.prefill_per_second))
                       .set("decode_ms_p50", optional_number(process.ms_p50))
                       .set("decode_ms_p99", optional_number(process.ms_p99)));
  known("operators", operators_json(process, options));
  out.set("nodes", process.unknown.contains("operators") ? Json() : nodes_json(process, options));
  known("threads", threads_json(process));
  out.set("graph_ns", process.unknown.contains("threads") ? Json() : whole(process.graph_ns));
  out.set("imbalance", optional_number(process.imbalance));
  out.set("graph_kinds", graphs_json(process)).set("experts", experts_json(process));
  if (process.cache) {
    out.set("cache", Json::object()
                         .set("cells", process.cache->cells)
                         .set("used_max", process.cache->used_max)
                         .set("attended", process.cache->attended));
  }
  out.set("scheduler", Json::object()
                           .set("known", process.has_scheduler)
                           .set("runnable_ns", whole(process.runnable_ns))
                           .set("blocked_ns", whole(process.blocked_ns)));
  Json unknown = Json::array();
  for (const auto& [figure, reason] : process.unknown)
    unknown.push(Json::object().set("figure", figure).set("reason", reason));
  out.set("unknown", std::move(unknown));
  return out;
}

}  // namespace

Json to_json(const Report& report, const ReportOptions& options, const Verdict& verdict) {
  Json out = Json::object();
  out.set("schema", "kansoku.llm.report").set("version", 2);
  Json losses = Json::object();
  for (const auto& [name, count] : report.losses)
    losses.set(name, count);
  out.set("losses", std::move(losses)).set("unreadable", report.unreadable);
  Json coverage = Json::array();
  for (const Coverage& one : report.coverage) {
    coverage.push(Json::object()
                      .set("level", trace::model_level_name(one.level))
                      .set("seconds", one.seconds)
                      .set("hits", one.hits)
                      .set("cost_seconds", one.cost_seconds)
                      .set("switching_seconds", one.switching_seconds));
  }
  out.set("coverage", std::move(coverage)).set("seconds", report.seconds);
  out.set("cost_share", report.cost_share);
  if (options.peaks) {
    out.set("peaks", Json::object()
                         .set("bytes_per_second", options.peaks->bytes_per_second)
                         .set("flops_per_second", options.peaks->flops)
                         .set("threads", options.peaks->threads));
  }
  Json processes = Json::array();
  for (const ProcessFigures& process : report.processes)
    processes.push(process_json(process, options));
  out.set("processes", std::move(processes));
  out.set("findings", findings_json(verdict.findings));
  out.set("devices", devices_json(report, verdict, options));
  if (verdict.comparison) out.set("comparison", comparison_json(*verdict.comparison));
  return out;
}

}  // namespace kansoku::infer
