// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fleet/collector.h"
#include "fleet/internal/arrivals.h"
#include "fleet/report.h"

namespace kansoku::fleet::internal {

/// Incidents of all hosts, each once in its latest form.
class IncidentStore {
 public:
  IncidentStore(const CollectorOptions& options, FleetLoss& loss)
      : options_(options), loss_(loss) {}

  /// `json`: report in a message of `host` at `position` on an incident of `job_key` ("": it does
  /// not say which), as its `index`th part.
  void add(std::string_view json, const Summary& summary, std::string_view job_key,
           std::uint32_t index);
  void forget_before(std::int64_t wall_ns);
  [[nodiscard]] std::vector<FleetGroup> groups() const;

 private:
  struct Incident {
    std::string host, job, kind, summary, json;
    bool is_job_told{
        false};  // `job` is the key of a job of the host, not the incident's name of it
    std::int64_t begin_ns{0}, end_ns{0};  // end 0: open
    double score{0};
    std::int64_t news_ns{0};  // end of the message that said it last
    std::tuple<Arrivals::Position, std::uint32_t> version;
  };
  using Key = std::pair<std::string, std::string>;  // host, id: no host speaks for another

  void forget(const Key& key);
  /// The oldest of those hosts that have the most: no host drives out the others' incidents.
  void make_room();

  const CollectorOptions& options_;
  FleetLoss& loss_;
  std::map<Key, Incident> incidents_;
  std::set<std::pair<std::int64_t, Key>> by_begin_;
  std::map<std::string, std::size_t, std::less<>> of_host_;  // how many
};

}  // namespace kansoku::fleet::internal
