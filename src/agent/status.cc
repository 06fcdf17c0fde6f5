// SPDX-License-Identifier: Apache-2.0
#include "agent/status.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "detect/feature.h"

namespace kansoku::agent {
namespace {

Json job_json(const JobTable::JobStatus& job, const StatusView& view) {
  const bool is_paused = view.is_paused;
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
                 .set("failed_fits", job.detector.failed_fits)
                 .set("fit_problem", job.detector.fit_problem)
                 .set("false_alarms_per_day", Json::object()
                                                  .set("expected", job.detector.alarms_per_day)
                                                  .set("low", job.detector.alarms_low)
                                                  .set("high", job.detector.alarms_high))
                 .set("ranks", std::move(ranks));
  Json incidents = Json::array();
  for (const trace::IncidentRecord& incident : view.incidents)
    if (incident.job == job.name) incidents.push(incident.to_json());
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

Json losses_json(const Losses& losses) {
  Json out = Json::object();
  for (const auto& [stat, total] : losses.all())
    out.set(stat->name, total);
  return out;
}

Json source_json(const SourceStatus& source) {
  return Json::object()
      .set("name", source.name)
      .set("state", source.state)
      .set("cpu_s", source.cpu_s)
      .set("losses", losses_json(source.losses));
}

// Members of the time when devices were the only source that told of itself.
void set_devices(Json& out, const std::vector<SourceStatus>& sources) {
  const auto devices = std::find_if(sources.begin(), sources.end(),
                                    [](const SourceStatus& one) { return one.name == "devices"; });
  if (devices == sources.end()) return;
  constexpr std::string_view kPrefix = "device_";
  Json calls = Json::object();
  for (const auto& [stat, total] : devices->losses.all())
    if (stat->name.starts_with(kPrefix)) calls.set(stat->name.substr(kPrefix.size()), total);
  out.set("devices", devices->state).set("device_calls", std::move(calls));
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
  Json jobs = Json::array();
  for (const auto& job : view.jobs)
    jobs.push(job_json(job, view));
  Json rows = Json::array();
  if (view.rows != nullptr) {
    for (const FeatureRow& row : *view.rows)
      rows.push(row_json(row));
  }
  Json deliveries = Json::array();
  for (const Delivery& delivery : view.deliveries)
    deliveries.push(delivery_json(delivery));
  Json sources = Json::array();
  for (const SourceStatus& source : view.sources)
    sources.push(source_json(source));
  const auto& watching = view.watching;
  Json out = Json::object()
                 .set("schema", "kansoku.watch_status/1")
                 .set("host", view.host)
                 .set("version", view.version)
                 .set("up_s", static_cast<double>((view.now - view.started).count()) * 1e-9)
                 .set("paused", view.is_paused)
                 .set("bpf", watching.bpf)
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
                 .set("sources", std::move(sources))
                 .set("deliveries", std::move(deliveries))
                 .set("recordings", Json::object()
                                        .set("made", view.recordings.made)
                                        .set("failed", view.recordings.failed)
                                        .set("skipped", view.recordings.skipped))
                 .set("entries", std::move(entries))
                 .set("problems", Json::array_of(view.problems))
                 .set("jobs", std::move(jobs))
                 .set("rows", std::move(rows));
  set_devices(out, view.sources);
  return out;
}

}  // namespace kansoku::agent
