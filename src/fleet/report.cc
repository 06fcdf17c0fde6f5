// SPDX-License-Identifier: Apache-2.0
#include "fleet/report.h"

#include <algorithm>
#include <utility>

namespace kansoku::fleet {
namespace {

Json to_json(const FleetHost& host) {
  return Json::object()
      .set("host", host.host)
      .set("boot_id", host.boot_id)
      .set("state", host.is_lost ? "lost" : "up")
      .set("silent_s", static_cast<double>(host.silent_ns) * 1e-9)
      .set("messages", host.messages)
      .set("missing", host.missing)
      .set("duplicates", host.duplicates)
      .set("restarts", host.restarts)
      .set("reboots", host.reboots)
      .set("dropped_parts", host.dropped);
}

Json to_json(const std::vector<FleetRank>& ranks) {
  Json list = Json::array();
  for (const FleetRank& rank : ranks)
    list.push(Json::object().set("rank", rank.rank).set("host", rank.host).set("p50", rank.p50));
  return list;
}

Json to_json(const FleetModel& model) {
  Json odd = Json::array();
  for (const FleetOddHost& one : model.odd) {
    odd.push(Json::object()
                 .set("host", one.host)
                 .set("feature", one.feature)
                 .set("spreads", one.spreads)
                 .set("seen", one.seen)
                 .set("usual", one.usual));
  }
  return Json::object()
      .set("features", Json::array_of(model.features))
      .set("rows", model.rows)
      .set("modes", model.modes)
      .set("hosts", static_cast<std::uint64_t>(model.hosts))
      .set("odd_count", static_cast<std::uint64_t>(model.odd_count))
      .set("odd", std::move(odd));
}

Json to_json(const FleetJob& job) {
  Json features = Json::array();
  for (const FleetFeature& feature : job.features) {
    features.push(Json::object()
                      .set("name", feature.name)
                      .set("count", feature.count)
                      .set("p10", feature.p10)
                      .set("p50", feature.p50)
                      .set("p90", feature.p90)
                      .set("p99", feature.p99)
                      .set("highest", to_json(feature.highest))
                      .set("lowest", to_json(feature.lowest)));
  }
  return Json::object()
      .set("key", job.key)
      .set("name", job.name)
      .set("world_size", job.world_size)
      .set("hosts", job.host_count)
      .set("ranks", job.rank_count)
      .set("features", std::move(features))
      .set("model", job.model ? to_json(*job.model) : Json());
}

Json to_json(const FleetGroup& group) {
  Json incidents = Json::array();
  for (const Json& incident : group.incidents)
    incidents.push(incident);
  return Json::object()
      .set("job", group.job)
      .set("begin_ns", std::to_string(group.begin_ns))
      .set("end_ns", std::to_string(group.end_ns))
      .set("kinds", Json::array_of(group.kinds))
      .set("hosts", Json::array_of(group.hosts))
      .set("summary", group.summary)
      .set("incidents", std::move(incidents));
}

template <class Item>
Json list_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items)
    list.push(to_json(item));
  return list;
}

}  // namespace

Json FleetReport::to_json() const {
  const auto lost =
      std::count_if(hosts.begin(), hosts.end(), [](const FleetHost& host) { return host.is_lost; });
  std::uint64_t missing = 0;
  for (const FleetHost& host : hosts)
    missing += host.missing;
  Json counts = Json::object();
  for (const auto& [name, count] : counters)
    counts.set(name, count);
  return Json::object()
      .set("schema", "kansoku.collect/1")
      .set("time_ns", std::to_string(time_ns))
      .set("window_s", static_cast<double>(window_ns) * 1e-9)
      .set("host_count", static_cast<std::uint64_t>(hosts.size()))
      .set("lost_host_count", static_cast<std::int64_t>(lost))
      .set("messages", messages)
      .set("bytes", bytes)
      .set("missing_messages", missing)
      .set("loss", Json::object()
                       .set("refused", loss.refused)
                       .set("out_of_window", loss.out_of_window)
                       .set("stale", loss.stale)
                       .set("above_limits", loss.above_limits)
                       .set("bad_parts", loss.bad_parts)
                       .set("unlike", loss.unlike))
      .set("unlearnt_parts", unlearnt_parts)
      .set("counters", std::move(counts))
      .set("hosts", list_of(hosts))
      .set("jobs", list_of(jobs))
      .set("incident_groups", list_of(groups));
}

}  // namespace kansoku::fleet
