// SPDX-License-Identifier: Apache-2.0
#include "detect/incident.h"

namespace kansoku::detect {

std::string_view incident_name(Incident::Kind kind) {
  return kind == Incident::Kind::kSlow ? "slow" : "blocked";
}

std::optional<Incident> IncidentWatch::report(Incident incident) {
  const bool is_worse =
      last_ && last_->kind == Incident::Kind::kSlow && incident.kind == Incident::Kind::kBlocked;
  if (incident.time_ns < quiet_until_ns_ && !is_worse) return std::nullopt;
  quiet_until_ns_ = incident.time_ns + options_.refractory_ns;
  last_ = incident;
  return incident;
}

std::optional<Incident> IncidentWatch::on_event(std::int32_t member, std::uint32_t token,
                                                std::int64_t time_ns) {
  const auto known = detectors_.find(member);
  if (known == detectors_.end() && detectors_.size() >= kMembersMax) return std::nullopt;
  IterationDetector& detector =
      known != detectors_.end() ? known->second
                                : detectors_.try_emplace(member, options_.iteration).first->second;
  const double mean = detector.mean_ns(), baseline = detector.baseline_ns();
  if (detector.on_event(token, time_ns) != IterationSignal::kSlow) return std::nullopt;
  return report({.kind = Incident::Kind::kSlow,
                 .member = member,
                 .time_ns = time_ns,
                 .ratio = baseline > 0 ? mean / baseline : 0});
}

std::optional<Incident> IncidentWatch::on_time(std::int64_t now_ns) {
  std::optional<Incident> out;
  for (auto& [member, detector] : detectors_) {
    if (detector.on_time(now_ns) != IterationSignal::kBlocked) continue;
    const double quiet = static_cast<double>(now_ns - detector.last_event_ns());
    const auto told = report({.kind = Incident::Kind::kBlocked,
                              .member = member,
                              .time_ns = now_ns,
                              .ratio = quiet / detector.expected_ns()});
    if (told) {
      last_blocked_ns_ = now_ns;
      if (!out) out = told;
    } else if (detector.last_event_ns() > last_blocked_ns_) {
      detector.rearm_blocked();  // no part of the last report
    }
  }
  return out;
}

void IncidentWatch::settle(std::int64_t now_ns) {
  for (auto& [member, detector] : detectors_)
    detector.forget_times();
  quiet_until_ns_ = now_ns + options_.refractory_ns;
}

}  // namespace kansoku::detect
