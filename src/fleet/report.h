// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"

namespace kansoku::fleet {

/// A host as the collector sees it.
struct FleetHost {
  std::string host, boot_id;
  bool is_lost{false};          // said nothing for long
  std::int64_t silent_ns{0};    // since its last message arrived
  std::uint64_t messages{0};    // that counted
  std::uint64_t missing{0};     // sequence numbers that never came
  std::uint64_t duplicates{0};  // that came again, and were not counted again
  std::uint32_t restarts{0};    // of its agent
  std::uint32_t reboots{0};
  std::uint64_t dropped{0};  // parts that its writer left out
};

/// The median of one rank's values in one slot.
struct FleetRank {
  std::int32_t rank{-1};
  std::string host;
  double p50{0};
};

/// A feature of a job, over all hosts, ranks and slots that are kept. In the feature's unit.
struct FleetFeature {
  std::string name;
  std::uint64_t count{0};
  double p10{0}, p50{0}, p90{0}, p99{0};
  std::vector<FleetRank> highest, lowest;  // of the latest whole slot, most extreme first
};

/// A host whose windows are not as those of its job's other hosts.
struct FleetOddHost {
  std::string host;
  std::string feature;  // whose mean is farthest from the median host's
  double spreads{0};    // by so many spreads of the hosts
  double seen{0}, usual{0};
};

/// The normal modes of a job over all its hosts, fitted to their cluster features.
struct FleetModel {
  std::vector<std::string> features;
  std::uint64_t rows{0};  // windows of ranks
  int modes{0};
  std::size_t hosts{0};           // that were compared
  std::size_t odd_count{0};       // the odd ones among them
  std::vector<FleetOddHost> odd;  // the worst three, most first
};

struct FleetJob {
  std::string key, name;
  std::int32_t world_size{0};
  std::uint32_t host_count{0}, rank_count{0};  // of hosts that are not lost
  std::vector<FleetFeature> features;          // most telling first, as hosts order them
  std::optional<FleetModel> model{};           // none while no host sent cluster features
};

/// Incidents of one job on any hosts that overlap or follow closely.
struct FleetGroup {
  std::string job;                        // key, or its name where an incident came without
  std::int64_t begin_ns{0}, end_ns{0};    // end 0: one of them is open
  std::vector<std::string> kinds, hosts;  // ascending
  std::vector<Json> incidents;            // kansoku.watch_incident/1, by begin
  std::string summary;                    // of the one with the highest score
};

/// Messages that the collector did not take in, or took in only once. All counts are since it
/// began.
struct FleetLoss {
  std::uint64_t refused{0};        // messages that are none, or of another version
  std::uint64_t out_of_window{0};  // too old, or of a clock far ahead: their values are lost
  std::uint64_t stale{0};          // of writers before the last two, or too far behind
  std::uint64_t above_limits{0};   // hosts, jobs, features, sketches, incidents
  std::uint64_t bad_parts{0};      // parts that cannot be read
  std::uint64_t unlike{0};  // cluster features of other features than the rest of their job sends
};

/// The whole picture at one moment. A value type; everything is sorted, so that the order in which
/// messages arrived does not show.
struct FleetReport {
  std::int64_t time_ns{0};    // wall clock
  std::int64_t window_ns{0};  // how far back the quantiles reach
  std::uint64_t messages{0}, bytes{0};
  FleetLoss loss;
  std::uint64_t unlearnt_parts{0};  // cluster features above the collector's limit of learning
  std::vector<FleetHost> hosts;     // by name
  std::vector<FleetJob> jobs;       // by key
  std::vector<FleetGroup> groups;   // by begin, then job
  std::vector<std::pair<std::string, std::uint64_t>> counters;  // sums over the window, by name

  /// {"schema": "kansoku.collect/1", ...}, docs/formats/fleet.md; times as strings.
  [[nodiscard]] Json to_json() const;
};

}  // namespace kansoku::fleet
