// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "gpu/activity/activity.h"

namespace kansoku::gpu::activity {
namespace {

double thousandths(double value) {
  return std::round(value * 1e3) / 1e3;
}

Json timeline_json(const DeviceTimeline& timeline) {
  Json lanes = Json::array(), idle = Json::array();
  for (const TimelineLane& lane : timeline.lanes) {
    Json spans = Json::array();
    for (const TimelineSpan& span : lane.spans) {
      spans.push(Json::object()
                     .set("begin_us", thousandths(span.begin_us))
                     .set("us", thousandths(span.us))
                     .set("class", op_class_name(span.what))
                     .set("name", span.name)
                     .set("count", span.count));
    }
    lanes.push(Json::object().set("stream", lane.stream).set("spans", spans));
  }
  for (const IdleSpan& span : timeline.idle) {
    idle.push(Json::object()
                  .set("begin_us", thousandths(span.begin_us))
                  .set("us", thousandths(span.us))
                  .set("cause", idle_cause_name(span.cause))
                  .set("function", span.function.empty() ? Json() : Json(span.function)));
  }
  return Json::object()
      .set("pid", timeline.pid)
      .set("rank", timeline.rank == trace::kNoRank ? Json() : Json(timeline.rank))
      .set("device", timeline.ordinal < 0 ? Json() : Json(timeline.ordinal))
      .set("step", timeline.step ? Json(static_cast<std::uint64_t>(*timeline.step)) : Json())
      .set("step_count", static_cast<std::uint64_t>(timeline.step_count))
      .set("us", thousandths(timeline.us))
      .set("lane_count", static_cast<std::uint64_t>(timeline.lane_count))
      .set("lanes", lanes)
      .set("idle", timeline.has_idle ? idle : Json());
}

Json memory_curve_json(const MemoryFigures& memory) {
  Json points = Json::array();
  for (const MemoryPoint& point : memory.curve)
    points.push(Json::array().push(thousandths(point.at_ms)).push(point.bytes));
  return Json::object()
      .set("pid", memory.pid)
      .set("rank", memory.rank == trace::kNoRank ? Json() : Json(memory.rank))
      .set("points", points);
}

}  // namespace

Json view_json(const WorkReport& report) {
  Json timelines = Json::array(), memory = Json::array(), causes = Json::object();
  for (std::size_t i = 0; i < kIdleCauseCount; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    causes.set(idle_cause_name(cause), idle_cause_text(cause));
  }
  for (const DeviceTimeline& timeline : report.view.timelines)
    timelines.push(timeline_json(timeline));
  for (const MemoryFigures& figures : report.memory) {
    if (!figures.curve.empty()) memory.push(memory_curve_json(figures));
  }
  return Json::object()
      .set("schema", "kansoku.cuda_view/1")
      .set("causes", causes)
      .set("timelines", timelines)
      .set("memory", memory);
}

}  // namespace kansoku::gpu::activity
