// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detect/detector.h"
#include "detect/internal/growth.h"
#include "detect/internal/watch_state.h"
#include "trace/incident.h"

namespace kansoku::detect {

/// Incidents of steady growth in the processes of a job: one a feature of Use::kGrowth, from the
/// first process that grows to the last one that stops. Not shared between threads.
class GrowthWatch {
 public:
  GrowthWatch(std::vector<Column> columns, const DetectorOptions& options)
      : columns_(std::move(columns)), options_(options) {}

  /// One window of a process; `out` gets what begins, changes or ends by it.
  void look(std::int64_t wall_ns, const Window& window, std::vector<trace::IncidentRecord>& out);
  /// The process has ended: it grows no more.
  void forget(std::int64_t wall_ns, MemberKey key, std::vector<trace::IncidentRecord>& out);
  /// Ends all.
  void finish(std::int64_t wall_ns, std::vector<trace::IncidentRecord>& out);
  /// True if there is such an incident, or was not long ago.
  bool label(std::string_view incident_id, std::string_view label);
  /// Ends what is labelled false: growth of that speed is normal from now on.
  void take_operators_word(std::int64_t wall_ns, std::vector<trace::IncidentRecord>& out);
  [[nodiscard]] std::vector<trace::IncidentRecord> open() const;

 private:
  struct Growing {
    trace::IncidentRecord record;
    std::map<MemberKey, int> members;  // that still grow; blocks without growth in a row
    double bytes_per_second{0};        // the fastest of them
  };
  struct Ended {
    std::string id;
    std::size_t column{0};
    double bytes_per_second{0};
  };
  /// A block of a process in which it did not grow: whether that may be chance.
  [[nodiscard]] bool goes_on_without(std::size_t column, MemberKey key);
  void take_word(std::size_t column, double bytes_per_second);
  void close(std::int64_t wall_ns, std::size_t column, std::vector<trace::IncidentRecord>& out);

  void tell(std::size_t column, const Window& window, const Growth& found,
            std::vector<trace::IncidentRecord>& out);
  void end(std::int64_t wall_ns, std::size_t column, MemberKey key,
           std::vector<trace::IncidentRecord>& out);

  std::vector<Column> columns_;
  DetectorOptions options_;
  std::map<MemberKey, std::map<std::size_t, GrowthTest>> tests_;  // by process and column
  std::map<std::size_t, Growing> growing_;                        // by column
  std::deque<Ended> ended_;               // the latest, for the operator's word
  std::map<std::size_t, double> normal_;  // bytes a second that the operator calls so, by column
};

}  // namespace kansoku::detect
