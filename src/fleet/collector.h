// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/bytes.h"
#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "fleet/report.h"
#include "fleet/summary.h"

namespace kansoku::fleet {

STAT(fleet_missing_messages, kDataLoss, kImport,
     "summaries of hosts got lost between their agents and the collector");
STAT(fleet_out_of_window, kDataLoss, kImport,
     "summaries came too late, or from a host whose clock is off; set it by NTP");
STAT(fleet_above_limits, kDataLoss, kImport,
     "more hosts, jobs, features or incidents than the collector keeps; start one for each part");

struct CollectorOptions {
  Nanos slot{std::chrono::seconds{60}};  // quantiles are kept by slots of the hosts' wall clocks
  std::size_t slots{15};                 // how many
  Nanos lost_after{std::chrono::seconds{180}};  // of silence
  Nanos forget_after{std::chrono::hours{24}};   // hosts that are lost
  Nanos incidents_for{std::chrono::hours{1}};   // after their end or last news
  Nanos group_gap{std::chrono::seconds{60}};    // between incidents of one group
  std::size_t hosts_max{20'000}, jobs_max{20'000}, features_max{1024}, incidents_max{10'000};
  std::size_t counters_max{1024};
  std::size_t sketch_bytes_max{std::size_t{2} << 30};
  std::size_t cluster_jobs_max{64};     // whose modes are learnt, about 1 MB each
  std::size_t cluster_parts_max{2048};  // that are learnt of a slot, about 2.5 ms each
};

/// The collector's two clocks, read together.
struct CollectorTime {
  BootTime boot;            // says for how long a host has been silent
  std::int64_t wall_ns{0};  // says which slot is now
};

/// Many hosts' messages, in any order, twice, late or not at all, become one picture in bounded
/// memory. A message counts once: host, epoch and sequence number are remembered (the last 64
/// numbers of a host's last two epochs). The set of counted messages does not depend on the order
/// of arrival; the modes of a job's windows depend on it a little.
/// Deterministic; not shared between threads.
class Collector {
 public:
  explicit Collector(CollectorOptions options = {});
  Collector(Collector&&) noexcept;
  Collector& operator=(Collector&&) noexcept;
  ~Collector();

  /// Takes a message in. An Error if it is refused as a whole (counted too); a duplicate is none.
  /// `subject`: that it came by, which has to be the host's; empty: by none.
  Result<void> add(ByteSpan untrusted, CollectorTime now, std::string_view subject = {});
  /// The picture at `now`. Forgets data that are too old.
  [[nodiscard]] FleetReport report(CollectorTime now);
  /// Memory of sketches, all the rest grows about as they do.
  [[nodiscard]] std::size_t sketch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::fleet
