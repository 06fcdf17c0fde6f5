// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/profile_incidents.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/incident_recorder.h"
#include "sys/clock.h"
#include "sys/process.h"

namespace kansoku::cli {
namespace {

constexpr double kNsPerS = 1e9;

std::string summary_of(const detect::Incident& incident, const trace::Evidence& iteration) {
  if (incident.kind == detect::Incident::Kind::kBlocked)
    return fmt::format("no iteration for {:.2f} s, usually {:.3f} s", iteration.seen,
                       iteration.normal);
  return fmt::format("iterations take {:.3f} s, usually {:.3f} s", iteration.seen,
                     iteration.normal);
}

}  // namespace

Result<ProfileIncidents> ProfileIncidents::open(const std::string& folder, BootTime now,
                                                std::function<void(const std::string&)> log) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return errno_error(error.value(), "create folder", folder);
  incident::BookOptions options;
  options.host = sys::host_name();
  options.folder = folder;
  options.pause = Nanos{};  // an earlier watch looked into its incidents as they began
  options.log = log;
  // As if it had been opened so long ago that nothing is continued any more.
  TRY(auto book, incident::Book::open(std::move(options), now - incident::Book::kInheritFor,
                                      sys::wall_time_ns()));
  static_cast<void>(book.tick(now));
  return ProfileIncidents(folder, std::move(book), std::move(log));
}

std::string ProfileIncidents::begin(const detect::Incident& incident, const capture::Place& place,
                                    double iteration_ns) {
  seen_ = {};
  seen_.job = place.job;
  seen_.source = incident::Source::kIterations;
  seen_.episode = ++episodes_;
  trace::IncidentFacts& facts = seen_.facts;
  facts.begin_ns = sys::wall_time_ns();
  facts.kind = trace::IncidentKind::kLatencySpike;
  if (place.rank != trace::kNoRank) facts.ranks = {place.rank};
  facts.pids = {incident.member};
  facts.tests = {"iteration"};
  facts.window_count = 1;
  const bool is_blocked = incident.kind == detect::Incident::Kind::kBlocked;
  const double known_s = iteration_ns / kNsPerS, ratio = incident.ratio > 0 ? incident.ratio : 1;
  facts.evidence.push_back({"iteration", "s", "framework", is_blocked ? known_s : known_s / ratio,
                            is_blocked ? known_s * ratio : known_s, 1});
  facts.summary = summary_of(incident, facts.evidence.front());
  facts.suggestion = fmt::format("kansoku diagnose {}/*.pftrace", folder_);
  id_ = book_.observe(seen_).incident.id;
  return id_;
}

void ProfileIncidents::end(const std::string& summary, const std::string& trace) {
  if (id_.empty()) return;
  if (!trace.empty()) {
    const std::string recording = agent::recording_path(folder_, id_);
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(recording).parent_path(), error);
    std::filesystem::create_hard_link(trace, recording, error);
    if (error) log_(fmt::format("link {} to {}: {}", recording, trace, error.message()));
    seen_.facts.suggestion = fmt::format("kansoku diagnose {}", error ? trace : recording);
  }
  if (!summary.empty()) seen_.facts.summary += "; " + summary;
  seen_.facts.end_ns = sys::wall_time_ns();
  static_cast<void>(book_.observe(seen_));
  id_.clear();
}

}  // namespace kansoku::cli
