// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "agent/incident_recorder.h"
#include "agent/job_table.h"
#include "agent/outputs.h"
#include "agent/window_source.h"
#include "capture/watcher.h"
#include "common/json.h"
#include "common/time.h"
#include "trace/incident.h"

namespace kansoku::agent {

/// Everything the agent tells of itself on request: schema "kansoku.watch_status/1".
struct StatusView {
  std::string host, version;
  BootTime started{}, now{};
  capture::Watcher::Status watching;
  std::vector<capture::Watcher::Entry> entries;
  std::vector<std::string> problems;
  AgentFigures figures;
  std::vector<JobTable::JobStatus> jobs;
  std::vector<trace::IncidentRecord> incidents;  // that are open
  const std::vector<FeatureRow>* rows{nullptr};  // of the last window; borrowed; may be null
  std::uint64_t failed_writes{0}, jobs_over_limit{0}, refused_models{0};
  bool is_paused{false};
  std::vector<SourceStatus> sources;
  std::vector<Delivery> deliveries;
  IncidentRecorder::Counters recordings;
};
[[nodiscard]] Json status_json(const StatusView& view);

}  // namespace kansoku::agent
