// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "export/metrics.h"

namespace kansoku::exporter {

/// Metrics that always-on watching exports besides the features (feature_metric): the names that
/// dashboards and alerts are built on. Labels are in docs/formats/metrics.md.
namespace watch_metrics {
inline constexpr MetricDef kScore{"kansoku_anomaly_score", "", MetricType::kGauge,
                                  "Negative log-likelihood of the last window, in nats."};
inline constexpr MetricDef kThreshold{"kansoku_anomaly_threshold", "", MetricType::kGauge,
                                      "Score above which a window is flagged, as calibrated."};
inline constexpr MetricDef kIncidentOpen{"kansoku_incident_open", "", MetricType::kGauge,
                                         "Incidents that are open now, by kind."};
inline constexpr MetricDef kIncidents{"kansoku_incidents", "", MetricType::kCounter,
                                      "Incidents of the jobs that run, by kind."};
inline constexpr MetricDef kAgentCpu{"kansoku_agent_cpu_seconds", "seconds", MetricType::kCounter,
                                     "Processor time of the agent."};
inline constexpr MetricDef kAgentResident{"kansoku_agent_resident_bytes", "bytes",
                                          MetricType::kGauge, "Resident memory of the agent."};
inline constexpr MetricDef kProbeHits{"kansoku_agent_probe_hits", "", MetricType::kCounter,
                                      "Calls that probes counted."};
inline constexpr MetricDef kLostRecords{"kansoku_agent_lost_records", "", MetricType::kCounter,
                                        "Records that were lost before the agent read them."};
inline constexpr MetricDef kProcesses{"kansoku_watched_processes", "", MetricType::kGauge,
                                      "Processes that are watched now."};
inline constexpr MetricDef kLoweredProbes{"kansoku_agent_lowered_probes", "", MetricType::kGauge,
                                          "Probes that are off because of their cost."};
inline constexpr MetricDef kLookEvery{"kansoku_agent_look_every_windows", "", MetricType::kGauge,
                                      "Windows between two readings of connections; 1 is normal."};
inline constexpr MetricDef kKernelTime{
    "kansoku_kernel_time_ratio", "ratio", MetricType::kGauge,
    "Device time of a kernel over time, of the eight that took most so far, and of all others."};

struct Labelled {
  MetricDef def;
  std::array<std::string_view, 3> labels;  // their names; "" = none
};
inline constexpr std::array<Labelled, 12> kAll{{{kScore, {"job", "rank"}},
                                                {kThreshold, {"job"}},
                                                {kIncidentOpen, {"job", "kind"}},
                                                {kIncidents, {"job", "kind"}},
                                                {kAgentCpu, {}},
                                                {kAgentResident, {}},
                                                {kProbeHits, {}},
                                                {kLostRecords, {}},
                                                {kProcesses, {}},
                                                {kLoweredProbes, {}},
                                                {kLookEvery, {}},
                                                {kKernelTime, {"job", "rank", "kernel"}}}};
}  // namespace watch_metrics

}  // namespace kansoku::exporter
