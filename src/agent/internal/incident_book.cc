// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/incident_book.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "detect/detector.h"

namespace kansoku::agent {
namespace {

using exporter::IncidentEvent;

constexpr std::size_t kOverMax = 256;
constexpr Nanos kCountFor = std::chrono::minutes{5};

bool is_growth(const trace::IncidentRecord& one) {
  return std::find(one.tests.begin(), one.tests.end(), "growth") != one.tests.end();
}

}  // namespace

std::vector<trace::IncidentRecord> IncidentBook::take_unclaimed() {
  std::vector<trace::IncidentRecord> out = std::exchange(inherited_, {});
  out.erase(std::remove_if(out.begin(), out.end(),
                           [](const trace::IncidentRecord& one) { return one.end_ns != 0; }),
            out.end());
  return out;
}

/// The latest one that the incident may be the rest of, open ones first, others if they ended as
/// shortly before it as the detector lets one go on; or the end. Steady growth is an incident
/// beside others.
std::vector<trace::IncidentRecord>::iterator IncidentBook::find_inherited(
    const trace::IncidentRecord& incident) {
  auto best = inherited_.end();
  for (auto one = inherited_.begin(); one != inherited_.end(); ++one) {
    if (one->job != incident.job || is_growth(*one) != is_growth(incident)) continue;
    // An end in the future was told while the clock was wrong.
    if (one->end_ns != 0 &&
        std::abs(incident.begin_ns - one->end_ns) > detect::kIncidentPause.count())
      continue;
    const auto order = [](const trace::IncidentRecord& record) {
      return std::pair(record.end_ns == 0, record.begin_ns);
    };
    if (best == inherited_.end() || order(*best) < order(*one)) best = one;
  }
  return best;
}

trace::IncidentRecord IncidentBook::as_continued(const trace::IncidentRecord& incident) {
  auto before = continued_.find(incident.id);
  if (before == continued_.end()) {
    const auto found = find_inherited(incident);
    if (found == inherited_.end()) return incident;
    if (found->end_ns == 0) {
      open_.emplace(found->id, *found);
    } else {
      remember_over(found->id);
    }
    before = continued_.emplace(incident.id, *found).first;
    inherited_.erase(found);
  }
  trace::IncidentRecord out = incident;
  out.id = before->second.id;
  out.begin_ns = before->second.begin_ns;
  out.label = before->second.label;
  out.window_count += before->second.window_count;
  return out;
}

void IncidentBook::remember_over(const std::string& id) {
  if (std::find(over_.begin(), over_.end(), id) != over_.end()) return;
  over_.push_back(id);
  if (over_.size() > kOverMax) over_.pop_front();
}

IncidentBook::Told IncidentBook::note(const trace::IncidentRecord& told) {
  Told out{.incident = as_continued(told)};
  const std::string& id = out.incident.id;
  const bool is_open = open_.contains(id);
  const bool was_over = !is_open && std::find(over_.begin(), over_.end(), id) != over_.end();
  out.is_first = !is_open && !was_over;
  if (out.is_first) ++opened_[out.incident.job].of_kind[out.incident.kind];
  if (out.incident.end_ns != 0) {
    out.event = IncidentEvent::kClosed;
    open_.erase(id);
    remember_over(id);
    return out;
  }
  if (is_open) out.event = IncidentEvent::kChanged;
  if (was_over) {
    out.event = IncidentEvent::kReopened;
    over_.erase(std::find(over_.begin(), over_.end(), id));
  }
  open_.insert_or_assign(id, out.incident);
  return out;
}

std::uint64_t IncidentBook::opened(const std::string& job, std::string_view kind) const {
  const auto of_job = opened_.find(job);
  if (of_job == opened_.end()) return 0;
  const auto found = of_job->second.of_kind.find(kind);
  return found == of_job->second.of_kind.end() ? 0 : found->second;
}

std::set<std::string> IncidentBook::counted_jobs() const {
  std::set<std::string> out;
  for (const auto& [job, counts] : opened_)
    out.insert(job);
  return out;
}

void IncidentBook::count_only(const std::set<std::string>& jobs, BootTime now) {
  for (auto one = opened_.begin(); one != opened_.end();) {
    std::optional<BootTime>& gone_since = one->second.gone_since;
    if (jobs.contains(one->first)) {
      gone_since.reset();
    } else if (!gone_since) {
      gone_since = now;
    }
    const bool is_over = gone_since && now - *gone_since >= kCountFor;
    one = is_over ? opened_.erase(one) : std::next(one);
  }
}

void IncidentBook::label(std::string_view id, std::string_view label) {
  for (auto& [own_id, before] : continued_)
    if (before.id == id) before.label = label;
  for (trace::IncidentRecord& before : inherited_)
    if (before.id == id) before.label = label;
  if (const auto one = open_.find(std::string(id)); one != open_.end()) one->second.label = label;
}

std::string IncidentBook::label_before(const std::string& detector_id) const {
  const auto before = continued_.find(detector_id);
  return before == continued_.end() ? std::string() : before->second.label;
}

std::string IncidentBook::detector_id(std::string_view id) const {
  for (const auto& [own_id, before] : continued_)
    if (before.id == id) return own_id;
  return std::string(id);
}

}  // namespace kansoku::agent
