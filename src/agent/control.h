// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/job_table.h"
#include "agent/outputs.h"
#include "capture/nvml/counters.h"
#include "capture/watcher.h"
#include "common/json.h"
#include "common/result.h"
#include "common/time.h"

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
  const std::vector<FeatureRow>* rows{nullptr};  // of the last window; borrowed; may be null
  std::uint64_t failed_writes{0}, jobs_over_limit{0}, refused_models{0};
  std::string devices;  // "1 device" or why there is none
  bool is_paused{false};
  capture::nvml::DeviceCounterStats device_stats;
  std::vector<Delivery> deliveries;
};
[[nodiscard]] Json status_json(const StatusView& view);

/// What a request can do to the agent.
struct ControlActions {
  std::function<StatusView()> status;
  std::function<Result<std::vector<trace::IncidentRecord>>(const store::IncidentFilter&)> incidents;
  /// True if the job that the incident is of learns from it; false: it is over, the label is kept.
  std::function<Result<bool>(std::string_view id, std::string_view label)> label;
  std::function<void(bool paused)> pause;  // takes all probes off, or puts them back
};

/// Answers one request, a line of JSON: {"do": "status"}, {"do": "incidents", "since_ns": "...",
/// "job": ..., "kind": ..., "open": true, "count": 100}, {"do": "label", "id": ..., "label": ...},
/// {"do": "pause"}, {"do": "resume"}. The answer is JSON too: {"ok": true, ...} or {"ok": false,
/// "error": ..., "hint": ...}. Never fails.
[[nodiscard]] std::string answer(std::string_view untrusted_line, const ControlActions& actions);

}  // namespace kansoku::agent
