// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "export/webhook.h"
#include "trace/incident.h"

namespace kansoku::agent {

/// Which incidents are open, and which are told already: what the detectors of this agent find may
/// be the rest of what the agent before it told, or of what was over a moment ago. One thread.
class IncidentBook {
 public:
  /// What was open, or just over, when the agent before this one ended.
  void inherit(std::vector<trace::IncidentRecord> before) { inherited_ = std::move(before); }
  [[nodiscard]] bool has_inherited() const { return !inherited_.empty(); }
  /// Those that are open and that nobody continued. None is continued from now on.
  std::vector<trace::IncidentRecord> take_unclaimed();

  struct Told {
    trace::IncidentRecord incident;  // under the id by which it was told first
    exporter::IncidentEvent event{exporter::IncidentEvent::kOpened};
    bool is_first{false};  // nobody was told of it before
  };
  /// A state of an incident as a detector tells it.
  Told note(const trace::IncidentRecord& told);

  /// So that the states that follow keep it.
  void label(std::string_view id, std::string_view label);
  /// The label that an incident has of which this one, by the detector's id, is the rest.
  [[nodiscard]] std::string label_before(const std::string& detector_id) const;
  /// The id by which the detector knows the incident that was told as `id`.
  [[nodiscard]] std::string detector_id(std::string_view id) const;

  /// By id.
  [[nodiscard]] const std::map<std::string, trace::IncidentRecord>& open() const { return open_; }
  /// How many a job had of a kind; one that is opened anew is not counted anew.
  [[nodiscard]] std::uint64_t opened(const std::string& job, std::string_view kind) const;
  /// Jobs that are counted for.
  [[nodiscard]] std::set<std::string> counted_jobs() const;
  /// Counts of jobs that were not among `jobs` for five minutes are forgotten: a scrape a minute
  /// sees what was told of one that is over.
  void count_only(const std::set<std::string>& jobs, BootTime now);

 private:
  [[nodiscard]] std::vector<trace::IncidentRecord>::iterator find_inherited(
      const trace::IncidentRecord& incident);
  [[nodiscard]] trace::IncidentRecord as_continued(const trace::IncidentRecord& incident);
  void remember_over(const std::string& id);

  std::map<std::string, trace::IncidentRecord> open_;
  std::deque<std::string> over_;  // ids of the latest; a detector goes on with what just ended
  struct Counts {
    std::map<std::string, std::uint64_t, std::less<>> of_kind;
    std::optional<BootTime> gone_since;
  };
  std::map<std::string, Counts> opened_;  // by job
  std::vector<trace::IncidentRecord> inherited_;
  std::map<std::string, trace::IncidentRecord> continued_;  // by the id that the detector gives
};

}  // namespace kansoku::agent
