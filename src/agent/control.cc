// SPDX-License-Identifier: Apache-2.0
#include "agent/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parse.h"
#include "detect/feature.h"

namespace kansoku::agent {
namespace {

Json job_json(const JobTable::JobStatus& job, bool is_paused) {
  Json ranks = Json::array();
  for (const auto& rank : job.detector.ranks) {
    ranks.push(Json::object()
                   .set("rank", rank.rank)
                   .set("pid", rank.pid)
                   .set("score", is_paused ? std::nan("") : rank.score)  // an old one is none
                   .set("flagged", !is_paused && rank.is_flagged));
  }
  const bool is_watching = job.detector.state == detect::Detector::State::kWatching;
  Json out = Json::object()
                 .set("name", job.name)
                 .set("command", job.command)
                 .set("world_size", job.world_size)
                 .set("state", is_watching ? "watching" : "learning")
                 .set("learned", job.detector.learned)
                 .set("threshold", job.detector.threshold)
                 .set("windows", job.detector.windows)
                 .set("flagged", job.detector.flagged)
                 .set("refreshes", job.detector.refreshes)
                 .set("false_alarms_per_day", Json::object()
                                                  .set("expected", job.detector.alarms_per_day)
                                                  .set("low", job.detector.alarms_low)
                                                  .set("high", job.detector.alarms_high))
                 .set("ranks", std::move(ranks));
  Json incidents = Json::array();
  if (job.detector.open) incidents.push(job.detector.open->to_json());
  for (const trace::IncidentRecord& growing : job.detector.growing)
    incidents.push(growing.to_json());
  out.set("incidents", std::move(incidents));
  return out;
}

Json row_json(const FeatureRow& row) {
  Json values = Json::object();
  const auto features = detect::known_features();
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (std::isfinite(row.window.values[i])) values.set(features[i].name, row.window.values[i]);
  }
  return Json::object()
      .set("job", row.job)
      .set("rank", row.window.rank)
      .set("pid", row.window.pid)
      .set("features", std::move(values));
}

Json delivery_json(const Delivery& delivery) {
  return Json::object()
      .set("target", delivery.target)
      .set("sent", delivery.counts.sent)
      .set("queued", static_cast<std::uint64_t>(delivery.counts.queued))
      .set("failed", delivery.counts.failed)
      .set("dropped", delivery.counts.dropped)
      .set("problem", delivery.counts.last_error);
}

Json device_json(const capture::nvml::DeviceCounterStats& stats) {
  return Json::object()
      .set("failed_calls", stats.failed_calls)
      .set("hung_calls", stats.hung_calls)
      .set("lost", stats.lost);
}

std::string failure(const Error& error) {
  return Json::object().set("ok", false).set("error", error.what).set("hint", error.hint).dump();
}

std::string incidents_answer(const Json& request, const ControlActions& actions) {
  store::IncidentFilter filter;
  filter.since_ns = parse_int<std::int64_t>(request.at("since_ns").as_string()).value_or(0);
  filter.job = request.at("job").as_string();
  filter.kind = request.at("kind").as_string();
  filter.only_open = request.at("open").as_bool();
  filter.count_max = static_cast<std::size_t>(
      std::clamp<std::int64_t>(request.at("count").as_int(100), 1, 10'000));
  const auto found = actions.incidents(filter);
  if (!found) return failure(found.error());
  Json list = Json::array();
  for (const trace::IncidentRecord& incident : *found)
    list.push(incident.to_json());
  return Json::object().set("ok", true).set("incidents", std::move(list)).dump();
}

}  // namespace

Json status_json(const StatusView& view) {
  Json entries = Json::array();
  for (const auto& entry : view.entries) {
    entries.push(Json::object()
                     .set("name", entry.name)
                     .set("hits", entry.hits)
                     .set("enabled", entry.enabled));
  }
  Json problems = Json::array();
  for (const std::string& problem : view.problems)
    problems.push(problem);
  Json jobs = Json::array();
  for (const auto& job : view.jobs)
    jobs.push(job_json(job, view.is_paused));
  Json rows = Json::array();
  if (view.rows != nullptr) {
    for (const FeatureRow& row : *view.rows)
      rows.push(row_json(row));
  }
  Json deliveries = Json::array();
  for (const Delivery& delivery : view.deliveries)
    deliveries.push(delivery_json(delivery));
  const auto& watching = view.watching;
  return Json::object()
      .set("schema", "kansoku.watch_status/1")
      .set("host", view.host)
      .set("version", view.version)
      .set("up_s", static_cast<double>((view.now - view.started).count()) * 1e-9)
      .set("paused", view.is_paused)
      .set("bpf", watching.bpf)
      .set("devices", view.devices)
      .set("processes", static_cast<std::uint64_t>(watching.target_count))
      .set("candidates", static_cast<std::uint64_t>(watching.candidate_count))
      .set("probes", static_cast<std::uint64_t>(watching.probe_count))
      .set("links", static_cast<std::uint64_t>(watching.link_count))
      .set("files", static_cast<std::uint64_t>(watching.file_count))
      .set("probe_hits", watching.hits)
      .set("lost", view.figures.lost)
      .set("failed_attachments", watching.failed)
      .set("failed_writes", view.failed_writes)
      .set("jobs_over_limit", view.jobs_over_limit)
      .set("refused_models", view.refused_models)
      .set("cpu_share", view.figures.own_share)
      .set("lowered_probes", static_cast<std::uint64_t>(view.figures.lowered_probes))
      .set("look_every", view.figures.slowness)
      .set("cpu_s", view.figures.cpu_s)
      .set("resident_bytes", view.figures.resident_bytes)
      .set("device_calls", device_json(view.device_stats))
      .set("deliveries", std::move(deliveries))
      .set("entries", std::move(entries))
      .set("problems", std::move(problems))
      .set("jobs", std::move(jobs))
      .set("rows", std::move(rows));
}

std::string answer(std::string_view untrusted_line, const ControlActions& actions) {
  const auto parsed = Json::parse(untrusted_line);
  if (!parsed) return failure(parsed.error());
  const std::string what = parsed->at("do").as_string();
  if (what == "status")
    return Json::object().set("ok", true).set("status", status_json(actions.status())).dump();
  if (what == "incidents") return incidents_answer(*parsed, actions);
  if (what == "label") {
    const std::string label = parsed->at("label").as_string();
    if (label != "ack" && label != "false" && label != "true")
      return failure({Code::kUnsupported, fmt::format("label {}: ack, false or true", label)});
    const auto is_learnt = actions.label(parsed->at("id").as_string(), label);
    if (!is_learnt) return failure(is_learnt.error());
    return Json::object().set("ok", true).set("learnt", *is_learnt).dump();
  }
  if (what == "pause" || what == "resume") {
    actions.pause(what == "pause");
    return Json::object().set("ok", true).dump();
  }
  return failure({Code::kUnsupported, fmt::format("request {}: unknown", what),
                  "status, incidents, label, pause or resume"});
}

}  // namespace kansoku::agent
