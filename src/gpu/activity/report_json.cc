// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <type_traits>

#include "gpu/activity/activity.h"

namespace kansoku::gpu::activity {
namespace {

double rounded_json(double value) {
  return std::round(value * 1e6) / 1e6;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  if (!value) return Json();
  if constexpr (std::is_same_v<T, double>)
    return Json(rounded_json(*value));
  else
    return Json(*value);
}

Json rank_json(std::int32_t rank) {
  return rank == trace::kNoRank ? Json() : Json(rank);
}

Json spread_json(const Spread& spread) {
  return Json::object()
      .set("count", spread.count)
      .set("mean", rounded_json(spread.mean))
      .set("p50", rounded_json(spread.p50))
      .set("p90", rounded_json(spread.p90))
      .set("p99", rounded_json(spread.p99))
      .set("max", rounded_json(spread.max));
}

Json or_null(const std::optional<Spread>& spread) {
  return spread ? spread_json(*spread) : Json();
}

template <class Rows, class ToJson>
Json list_json(const Rows& rows, std::size_t rows_max, ToJson to_json) {
  Json out = Json::array();
  for (std::size_t i = 0; i < rows.size() && i < rows_max; ++i)
    out.push(to_json(rows[i]));
  return out;
}

template <class Rows, class ToJson>
Json list_json(const std::optional<Rows>& rows, std::size_t rows_max, ToJson to_json) {
  return rows ? list_json(*rows, rows_max, to_json) : Json();
}

Json kernel_json(const KernelRow& row) {
  return Json::object()
      .set("name", row.name)
      .set("full_name", row.full_name.empty() ? Json() : Json(row.full_name))
      .set("class", op_class_name(row.what))
      .set("count", row.count)
      .set("total_us", or_null(row.total_us))
      .set("share", or_null(row.share))
      .set("us", or_null(row.us))
      .set("grid", row.grid.empty() ? Json() : Json(row.grid))
      .set("block", row.block.empty() ? Json() : Json(row.block))
      .set("shape_count", row.shape_count)
      .set("registers", or_null(row.registers))
      .set("shared_bytes", or_null(row.shared_bytes))
      .set("occupancy", or_null(row.occupancy))
      .set("occupancy_by", row.occupancy_by.empty() ? Json() : Json(row.occupancy_by))
      .set("shared_count", row.shared_count);
}

Json others_json(const Others& others) {
  return Json::object()
      .set("count", others.count)
      .set("total_us", or_null(others.total_us))
      .set("share", or_null(others.share));
}

Json copy_json(const CopyRow& row) {
  return Json::object()
      .set("kind", row.kind.empty() ? Json() : Json(row.kind))
      .set("pageable", or_null(row.pageable))
      .set("count", row.count)
      .set("bytes", or_null(row.bytes))
      .set("total_us", or_null(row.total_us))
      .set("gb_per_s", or_null(row.gb_per_s));
}

Json collective_json(const CollectiveRow& row) {
  return Json::object()
      .set("name", row.name)
      .set("count", row.count)
      .set("bytes", or_null(row.bytes))
      .set("group_size", or_null(row.group_size))
      .set("us", or_null(row.us))
      .set("bus_gb_per_s", or_null(row.bus_gb_per_s));
}

Json gemm_json(const GemmRow& row) {
  return Json::object()
      .set("batch", row.batch)
      .set("m", row.m)
      .set("n", row.n)
      .set("k", row.k)
      .set("count", row.count)
      .set("kernel_count", row.kernel_count)
      .set("shared_count", row.shared_count)
      .set("total_us", rounded_json(row.total_us))
      .set("tflops", or_null(row.tflops))
      .set("peak_share", or_null(row.peak_share));
}

Json operator_json(const OperatorRow& row) {
  return Json::object()
      .set("name", row.name)
      .set("call_count", row.call_count)
      .set("op_count", row.op_count)
      .set("device_us", rounded_json(row.device_us))
      .set("top_kernel", row.top_kernel);
}

Json range_json(const RangeRow& row) {
  return Json::object()
      .set("name", row.name)
      .set("domain", row.domain.empty() ? Json() : Json(row.domain))
      .set("count", row.count)
      .set("host_us", rounded_json(row.host_us))
      .set("op_count", or_null(row.op_count))
      .set("device_us", or_null(row.device_us))
      .set("share", or_null(row.share));
}

Json idle_json(const IdleRow& row) {
  return Json::object()
      .set("cause", idle_cause_name(row.cause))
      .set("us", rounded_json(row.us))
      .set("share", rounded_json(row.share))
      .set("longest_us", rounded_json(row.longest_us))
      .set("function", row.function.empty() ? Json() : Json(row.function))
      .set("function_us", rounded_json(row.function_us));
}

Json gap_json(const GapRow& row) {
  return Json::object()
      .set("stream", row.stream)
      .set("host_wait_us", rounded_json(row.host_wait_us))
      .set("kernel_wait_us", rounded_json(row.kernel_wait_us))
      .set("other_us", rounded_json(row.other_us));
}

Json queue_json(const QueueRow& row) {
  return Json::object()
      .set("stream", row.stream)
      .set("length", spread_json(row.length))
      .set("time_mean", rounded_json(row.time_mean));
}

Json voids_json(const std::optional<VoidFigures>& voids) {
  if (!voids) return Json();
  return Json::object()
      .set("step_count", voids->step_count)
      .set("step_ms", rounded_json(voids->step_ms))
      .set("v_inter", rounded_json(voids->v_inter))
      .set("v_minority", rounded_json(voids->v_minority))
      .set("v_unknown", or_null(voids->v_unknown));
}

Json overlap_json(const std::optional<OverlapFigures>& overlap) {
  if (!overlap) return Json();
  return Json::object()
      .set("communication_us", rounded_json(overlap->communication_us))
      .set("compute_us", rounded_json(overlap->compute_us))
      .set("both_us", rounded_json(overlap->both_us))
      .set("share", or_null(overlap->share));
}

Json bound_json(const std::optional<LaunchBound>& bound) {
  if (!bound) return Json();
  return Json::object()
      .set("stretch_count", bound->stretch_count)
      .set("op_count", bound->op_count)
      .set("us", rounded_json(bound->us))
      .set("idle_us", rounded_json(bound->idle_us))
      .set("early_us", rounded_json(bound->early_us));
}

Json exposed_json(const std::optional<ExposedCopies>& copies) {
  if (!copies) return Json();
  return Json::object()
      .set("copy_us", rounded_json(copies->copy_us))
      .set("exposed_us", rounded_json(copies->exposed_us))
      .set("could_overlap_us", rounded_json(copies->could_overlap_us))
      .set("pageable_us", rounded_json(copies->pageable_us))
      .set("blocking_us", rounded_json(copies->blocking_us));
}

Json device_json(const DeviceFigures& device, std::size_t rows_max) {
  return Json::object()
      .set("pid", device.pid)
      .set("rank", rank_json(device.rank))
      .set("device", device.ordinal < 0 ? Json() : Json(device.ordinal))
      .set("op_count", device.op_count)
      .set("window_us", or_null(device.window_us))
      .set("busy_us", or_null(device.busy_us))
      .set("idle_us", or_null(device.idle_us))
      .set("compute_us", or_null(device.compute_us))
      .set("judged_us", or_null(device.judged_us))
      .set("void", voids_json(device.voids))
      .set("overlap", overlap_json(device.overlap))
      .set("idle", list_json(device.idle, rows_max, idle_json))
      .set("gaps", list_json(device.gaps, SIZE_MAX, gap_json))
      .set("queues", list_json(device.queues, SIZE_MAX, queue_json))
      .set("issue_latency_us", or_null(device.issue_latency_us))
      .set("negative_latency_count", device.negative_latency_count)
      .set("short_kernel_count", or_null(device.short_kernel_count))
      .set("launch_bound", bound_json(device.launch_bound))
      .set("copies", exposed_json(device.copies));
}

Json holder_json(const MemoryHolder& holder) {
  return Json::object()
      .set("stack", holder.stack.empty() ? Json() : Json(holder.stack))
      .set("bytes", holder.bytes)
      .set("count", holder.count);
}

Json failure_json(const FailedAllocation& failure) {
  return Json::object()
      .set("time_ns", std::to_string(failure.time_ns))
      .set("requested_bytes", or_null(failure.requested_bytes))
      .set("live_bytes", or_null(failure.live_bytes))
      .set("is_survived", failure.is_survived)
      .set("holders", list_json(failure.holders, SIZE_MAX, holder_json));
}

Json memory_json(const MemoryFigures& memory) {
  const bool is_known = memory.point_count > 0;
  Json leak;
  if (memory.leak) {
    leak = Json::object()
               .set("per", memory.leak->per)
               .set("bytes_per_step", rounded_json(memory.leak->bytes_per_step))
               .set("step_count", static_cast<std::uint64_t>(memory.leak->step_count))
               .set("growers", list_json(memory.leak->growers, SIZE_MAX, holder_json));
  }
  return Json::object()
      .set("pid", memory.pid)
      .set("rank", rank_json(memory.rank))
      .set("source", memory.source)
      .set("high_water_bytes", is_known ? Json(memory.high_water_bytes) : Json())
      .set("high_water_ns", is_known ? Json(std::to_string(memory.high_water_ns)) : Json())
      .set("last_bytes", is_known ? Json(memory.last_bytes) : Json())
      .set("holders", list_json(memory.holders, SIZE_MAX, holder_json))
      .set("leak", leak)
      .set("failures", list_json(memory.failures, SIZE_MAX, failure_json));
}

Json work_finding_json(const Finding& finding) {
  return Json::object()
      .set("kind", finding.kind)
      .set("detail", finding.detail)
      .set("ranks", Json::array_of(finding.ranks))
      .set("share", or_null(finding.share))
      .set("verdict", finding.verdict)
      .set("evidence", Json::array_of(finding.evidence));
}

Json figure_json(const FigureState& state) {
  constexpr std::array<std::string_view, 3> kNames{"known", "partly", "unknown"};
  Json out = Json::object()
                 .set("name", state.name)
                 .set("state", kNames[static_cast<std::size_t>(state.is)]);
  if (!state.why.empty()) out.set("why", state.why);
  return out;
}

Json work_losses_json(const std::vector<trace::Loss>& losses) {
  Json out = Json::object();
  for (const trace::Loss& loss : losses) {
    out.set(loss.name, Json::object()
                           .set("count", loss.count)
                           .set("severity", severity_name(loss.severity))
                           .set("advice", loss.advice));
  }
  return out;
}

Json notes_json(const WorkReport& report) {
  Json out = Json::array();
  for (const DeviceNote& note : report.device_notes)
    out.push(note.text);
  for (const std::string& note : report.notes)
    out.push(note);
  return out;
}

}  // namespace

Json to_json(const WorkReport& report, std::size_t rows_max) {
  // With one launch in N only the calls of the sample are there.
  const bool counts_calls = report.call_count > 0 && is_allowed(Figure::kLaunches, report.recorded);
  return Json::object()
      .set("schema", "kansoku.cuda_report/1")
      .set("mode", mode_text(report.recorded))
      .set("imported", report.recorded.is_imported)
      .set("one_clock", report.recorded.is_one_clock)
      .set("steps_by", report.steps_by)
      .set("op_count", report.op_count)
      .set("call_count", report.call_count)
      .set("launch_count", counts_calls ? Json(report.launch_count) : Json())
      .set("unlinked_count", report.unlinked_count)
      .set("figures", list_json(report.figures, SIZE_MAX, figure_json))
      .set("findings", list_json(report.findings, SIZE_MAX, work_finding_json))
      .set("devices",
           list_json(report.devices, SIZE_MAX,
                     [&](const DeviceFigures& device) { return device_json(device, SIZE_MAX); }))
      .set("kernel_count", static_cast<std::uint64_t>(report.kernels.size()))
      .set("kernels", list_json(report.kernels, rows_max, kernel_json))
      .set("other_kernels", others_json(others_of(report, rows_max)))
      .set("copies", list_json(report.copies, SIZE_MAX, copy_json))
      .set("collectives", list_json(report.collectives, rows_max, collective_json))
      .set("gemms", list_json(report.gemms, rows_max, gemm_json))
      .set("operators", list_json(report.operators, rows_max, operator_json))
      .set("ranges", list_json(report.ranges, rows_max, range_json))
      .set("memory", list_json(report.memory, SIZE_MAX, memory_json))
      .set("module_loads", counts_calls ? Json::object()
                                              .set("count", report.module_load_count)
                                              .set("ms", rounded_json(report.module_load_ms))
                                        : Json())
      .set("notes", notes_json(report))
      .set("losses", work_losses_json(report.losses));
}

}  // namespace kansoku::gpu::activity
