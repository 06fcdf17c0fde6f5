// SPDX-License-Identifier: Apache-2.0
#include "fleet/internal/incident_store.h"

#include <algorithm>

#include "common/json.h"
#include "common/parse.h"
#include "fleet/internal/wire_format.h"

namespace kansoku::fleet::internal {
namespace {

constexpr std::size_t kSummaryTextBytes = 1024;
constexpr std::string_view kSchema = "kansoku.watch_incident/1";

/// A time that JSON carries as a string; 0 if it is none, or before 1970.
std::int64_t time_of(const Json& json, std::string_view key) {
  return std::max<std::int64_t>(0, parse_int<std::int64_t>(json.at(key).as_string()).value_or(0));
}

}  // namespace

void IncidentStore::add(std::string_view text, const Summary& message, std::string_view job_key,
                        std::uint32_t index) {
  const auto json = Json::parse(text);
  if (!json || !json->is_object() || json->at("schema").as_string() != kSchema ||
      json->at("id").as_string().empty()) {
    ++loss_.bad_parts;
    return;
  }
  Incident incident;
  incident.host = message.host;
  incident.is_job_told = !job_key.empty();
  incident.job = job_key.empty() ? clean_text(json->at("job").as_string()) : std::string(job_key);
  incident.kind = clean_text(json->at("kind").as_string());
  incident.summary = json->at("summary").as_string().substr(0, kSummaryTextBytes);
  // Nothing that a message tells of lies behind it; such an incident would never be forgotten.
  incident.begin_ns = std::min(time_of(*json, "begin_ns"), message.end_ns);
  incident.end_ns = std::min(time_of(*json, "end_ns"), message.end_ns);
  incident.score = json->at("score").as_double();
  incident.news_ns = message.end_ns;
  incident.version = {{message.epoch_ns, message.sequence}, index};
  incident.json = text;
  const Key key{message.host, clean_text(json->at("id").as_string())};
  const auto known = incidents_.find(key);
  if (known != incidents_.end()) {
    // A job that is over is in no later message: whose incident it is stays as it was told.
    Incident& before = known->second;
    if (before.is_job_told != incident.is_job_told) {
      (before.is_job_told ? incident : before).job = (before.is_job_told ? before : incident).job;
      before.is_job_told = incident.is_job_told = true;
    }
    if (before.version >= incident.version) return;
    forget(key);
  }
  by_begin_.emplace(incident.begin_ns, key);
  ++of_host_[key.first];
  incidents_.emplace(key, std::move(incident));
  if (incidents_.size() <= options_.incidents_max) return;
  ++loss_.above_limits;
  make_room();
}

void IncidentStore::make_room() {
  const auto most =
      std::max_element(of_host_.begin(), of_host_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::find_if(by_begin_.begin(), by_begin_.end(), [&](const auto& one) {
    return of_host_.find(one.second.first)->second == most->second;
  });
  forget(Key(oldest->second));
}

void IncidentStore::forget(const Key& key) {
  const auto found = incidents_.find(key);
  if (found == incidents_.end()) return;
  by_begin_.erase({found->second.begin_ns, key});
  const auto count = of_host_.find(key.first);
  if (--count->second == 0) of_host_.erase(count);
  incidents_.erase(found);
}

void IncidentStore::forget_before(std::int64_t wall_ns) {
  std::vector<Key> old;
  for (const auto& [key, incident] : incidents_)
    if (std::max(incident.end_ns, incident.news_ns) < wall_ns) old.push_back(key);
  for (const Key& key : old)
    forget(key);
}

/// Sweeps over the incidents of each job in order of their begin: one that begins before the latest
/// end so far, or shortly after it, belongs to the group. An open one ends with its latest news.
std::vector<FleetGroup> IncidentStore::groups() const {
  struct Open {
    FleetGroup group;
    std::set<std::string> kinds, hosts;
    std::int64_t reaches_ns{0};
    double score{-1};
  };
  std::vector<Open> all;
  std::map<std::string, std::size_t, std::less<>> latest;  // of each job, in `all`
  for (const auto& [begin_ns, key] : by_begin_) {
    const Incident& incident = incidents_.at(key);
    const auto found = latest.find(incident.job);
    const bool joins = found != latest.end() &&
                       begin_ns - options_.group_gap.count() <= all[found->second].reaches_ns;
    if (!joins) {
      latest[incident.job] = all.size();
      all.emplace_back();
      all.back().group.job = incident.job;
      all.back().group.begin_ns = begin_ns;
      all.back().group.end_ns = incident.end_ns;
    }
    Open& open = all[latest[incident.job]];
    const bool is_open = incident.end_ns == 0 || open.group.end_ns == 0;
    open.group.end_ns = is_open ? 0 : std::max(open.group.end_ns, incident.end_ns);
    open.reaches_ns = std::max(
        {open.reaches_ns, begin_ns, incident.end_ns == 0 ? incident.news_ns : incident.end_ns});
    open.kinds.insert(incident.kind);
    open.hosts.insert(incident.host);
    if (incident.score > open.score) {
      open.score = incident.score;
      open.group.summary = incident.summary;
    }
    open.group.incidents.push_back(Json::parse(incident.json).value_or(Json()));
  }
  std::vector<FleetGroup> groups;
  for (Open& open : all) {
    open.group.kinds.assign(open.kinds.begin(), open.kinds.end());
    open.group.hosts.assign(open.hosts.begin(), open.hosts.end());
    groups.push_back(std::move(open.group));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const FleetGroup& a, const FleetGroup& b) {
    return std::tie(a.begin_ns, a.job) < std::tie(b.begin_ns, b.job);
  });
  return groups;
}

}  // namespace kansoku::fleet::internal
