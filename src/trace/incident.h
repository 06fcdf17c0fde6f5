// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::trace {

/// Kind of trouble of an incident: the first place to look at.
enum class IncidentKind : std::uint8_t {
  kLatencySpike,
  kSlowForward,
  kSlowBackward,
  kSlowOptimizer,
  kGarbageCollection,
  kHardwareFault,
  kCommunicationInefficiency,
  kResourceContention,
  kInputStarvation,
  kMemoryGrowth,
  kStuckKernel,
  kPageFaults,
  kKernelTime,
  kUnknown,
};
/// The operator's word on an incident.
enum class IncidentLabel : std::uint8_t { kNone, kAcknowledged, kFalse, kTrue };
/// Event in the life of an incident. kNoted: it costs its job nothing, so nobody is paged;
/// kReopened: it is back so soon after it was closed that it is the same one.
enum class IncidentEvent : std::uint8_t {
  kNoted,
  kOpened,
  kChanged,
  kClosed,
  kReopened,
  kLabelled
};

/// The words of files, of the command line and of metrics, in the order of the enumerators.
inline constexpr std::array<std::string_view, 14> kIncidentKinds{"latency_spike",
                                                                 "slow_forward",
                                                                 "slow_backward",
                                                                 "slow_optimizer",
                                                                 "garbage_collection",
                                                                 "hardware_fault",
                                                                 "communication_inefficiency",
                                                                 "resource_contention",
                                                                 "input_starvation",
                                                                 "memory_growth",
                                                                 "stuck_kernel",
                                                                 "page_faults",
                                                                 "kernel_time",
                                                                 "unknown"};
inline constexpr std::array<std::string_view, 4> kIncidentLabels{"", "ack", "false", "true"};
inline constexpr std::array<std::string_view, 6> kIncidentEvents{"noted",  "opened",   "changed",
                                                                 "closed", "reopened", "labelled"};

[[nodiscard]] constexpr std::string_view word_of(IncidentKind kind) {
  return kIncidentKinds[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr std::string_view word_of(IncidentLabel label) {
  return kIncidentLabels[static_cast<std::size_t>(label)];
}
[[nodiscard]] constexpr std::string_view word_of(IncidentEvent event) {
  return kIncidentEvents[static_cast<std::size_t>(event)];
}
/// A word that is not in the table, a later version's, is kUnknown.
[[nodiscard]] IncidentKind incident_kind(std::string_view untrusted);
/// None for a word that is no label.
[[nodiscard]] std::optional<IncidentLabel> incident_label(std::string_view untrusted);

/// One feature that makes an incident one. Values in the feature's unit.
struct Evidence {
  std::string feature, unit, layer;
  double normal{0};  // usual: the median of the learnt values
  double seen{0};
  double share{0};  // of the score, 0 to 1
};

/// Observed facts of an incident: all that its finder can say. Times are wall-clock nanoseconds
/// since 1970.
struct IncidentFacts {
  std::int64_t begin_ns{0};
  std::int64_t end_ns{0};  // 0: still open
  IncidentKind kind{IncidentKind::kUnknown};
  /// False: it differs from the learnt state and costs the job nothing, as far as can be seen.
  bool has_effect{true};
  std::vector<std::int32_t> ranks;  // those that stand out; empty: no single rank, or a job of one
  std::vector<std::int32_t> pids;   // of these ranks
  std::vector<std::string> tests;   // which fired: "job", "rank", "event", "growth"
  double score{0};                 // worst mean negative log-likelihood over the threshold, in nats
  std::uint32_t window_count{0};   // flagged windows so far
  std::vector<Evidence> evidence;  // by share, at most 8
  std::string summary;             // one sentence with units
  std::string suggestion;          // a command to run next
};

/// An incident with its place, its name and the operator's word: the record that history, export
/// and fleet carry. Only `incident::Book` gives ids and labels.
struct IncidentRecord : IncidentFacts {
  std::string id;  // 16 hex digits
  std::string host, job;
  IncidentLabel label{IncidentLabel::kNone};

  /// {"schema": "kansoku.watch_incident/1", ...}; times as strings.
  [[nodiscard]] Json to_json() const;
  /// kCorrupt names the member that is missing or of another type; texts are cut to 4,096
  /// characters, lists to 1,024 entries.
  [[nodiscard]] static Result<IncidentRecord> from_json(const Json& untrusted);
};

/// The id of an incident: 64 bits of FNV-1a over its host, job, begin and `what` (its kind, and its
/// difference from others of that kind), as hex.
[[nodiscard]] std::string incident_id(std::string_view host, std::string_view job,
                                      std::int64_t begin_ns, std::string_view what);

}  // namespace kansoku::trace
