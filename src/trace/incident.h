// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::trace {

inline constexpr std::array<std::string_view, 7> kIncidentKinds{"latency_spike",
                                                                "hardware_fault",
                                                                "communication_inefficiency",
                                                                "resource_contention",
                                                                "input_starvation",
                                                                "memory_growth",
                                                                "unknown"};

/// One feature that makes an incident one. Values in the feature's unit.
struct Evidence {
  std::string feature, unit, layer;
  double normal{0};  // usual: the median of what was learnt
  double seen{0};
  double share{0};  // of the score, 0 to 1
};

/// What always-on detection tells: something that fits no normal mode of a job, from begin to end.
/// The record that detection makes and that history, export and fleet carry. Times are wall-clock
/// nanoseconds since 1970.
struct IncidentRecord {
  std::string id;  // 16 hex digits, the same whoever computes them: host, job, begin and kind
  std::string host, job;
  std::int64_t begin_ns{0};
  std::int64_t end_ns{0};           // 0: still open
  std::string kind;                 // one of kIncidentKinds
  std::vector<std::int32_t> ranks;  // those that stand out; empty: no single rank, or a job of one
  std::vector<std::int32_t> pids;   // of these ranks
  std::vector<std::string> tests;   // which fired: "job", "rank", "event", "growth"
  double score{0};                 // worst mean negative log-likelihood over the threshold, in nats
  std::uint32_t window_count{0};   // flagged windows so far
  std::vector<Evidence> evidence;  // by share, at most 8
  std::string summary;             // one sentence with units
  std::string suggestion;          // a command to run next
  std::string label;               // the operator's: "", "ack", "false" or "true"

  /// {"schema": "kansoku.watch_incident/1", ...}; times as strings.
  [[nodiscard]] Json to_json() const;
  /// kCorrupt names the member that is missing or of another type; texts are cut to 4,096
  /// characters, lists to 1,024 entries.
  [[nodiscard]] static Result<IncidentRecord> from_json(const Json& untrusted);
};

/// The id of an incident: 64 bits of FNV-1a over its host, job, begin and kind, as hex.
[[nodiscard]] std::string incident_id(std::string_view host, std::string_view job,
                                      std::int64_t begin_ns, std::string_view kind);

}  // namespace kansoku::trace
