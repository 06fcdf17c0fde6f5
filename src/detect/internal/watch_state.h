// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "detect/detector.h"
#include "detect/internal/evidence.h"
#include "detect/internal/growth.h"
#include "detect/job_model.h"
#include "detect/rank_tests.h"
#include "trace/incident.h"

namespace kansoku::detect {

/// A process by its rank; without one by its pid, which no rank can be.
using MemberKey = std::int64_t;
[[nodiscard]] inline MemberKey key_of(const Window& window) {
  return window.rank >= 0 ? window.rank : -1 - static_cast<MemberKey>(window.pid);
}

/// What is kept of one process.
struct Member {
  struct Recent {
    std::int64_t wall_ns{0};
    std::vector<double> row;
    bool is_flagged{false};
    bool is_event{false};  // a Use::kEvent feature counted something
    double score{0};
  };
  std::int32_t rank{-1}, pid{0};
  std::int64_t last_ns{0};
  std::deque<Recent> recent;                 // the last kLongWindows
  std::map<std::size_t, GrowthTest> growth;  // by column
  double score{0};
  bool is_flagged{false};
  int peer_streak{0};  // windows in a row in which it stood out of its peers
};

inline constexpr std::size_t kShortWindows = 5, kLongWindows = 30;

/// How many flagged windows of five and of thirty make an alarm, within the budget.
struct AlarmCounts {
  std::uint32_t of_short{3}, of_long{6};
  double per_day{0}, low{0}, high{0};  // false alarms that this lets expect
};
/// `share`: of healthy windows flagged so far, with `correlation` between neighbours; `members`
/// processes, `windows_per_day` each. Counts such that a tenth of half the budget is met: the rest
/// is left to the other tests and to what the correlation does not tell.
[[nodiscard]] AlarmCounts choose_counts(double flags, double points, double correlation,
                                        double members, double windows_per_day, double budget);

/// The incident that is open, or that ended a moment ago.
class OpenIncident {
 public:
  OpenIncident(const DetectorOptions& options, std::int64_t begin_ns);

  /// Takes one flagged window of a process into the evidence.
  void add(MemberKey key, const Member& member, const Member::Recent& recent, Scorer& scorer);
  /// The process belongs to it; `is_peer`: because it stands out of its peers.
  void include(MemberKey key, const Member& member, bool is_peer);
  void add_test(const std::string& test) { tests_.insert(test); }
  [[nodiscard]] bool has_test(const std::string& test) const { return tests_.count(test) != 0; }
  [[nodiscard]] bool has(MemberKey key) const { return members_.count(key) != 0; }

  /// Brings the record up to date; true if it is worth telling again: more ranks,
  /// another kind or another test.
  bool update(std::span<const Column> columns, std::size_t member_count);
  [[nodiscard]] trace::IncidentRecord& record() { return record_; }
  [[nodiscard]] const trace::IncidentRecord& record() const { return record_; }

  std::size_t quiet_windows{0};
  std::int64_t last_ns{0};   // of the last flagged window
  std::vector<double> rows;  // of flagged windows, for the case that they were normal

 private:
  struct Part {
    std::int32_t rank{-1}, pid{0};
    EvidenceSum sum;
    double excess{0}, windows{0};
    int peer_votes{0};
    bool is_alarmed{false};
  };
  [[nodiscard]] std::vector<MemberKey> named(std::span<const Column> columns,
                                             std::size_t member_count) const;
  [[nodiscard]] std::vector<MemberKey> by_own_cost(std::span<const Column> columns,
                                                   std::size_t member_count) const;

  trace::IncidentRecord record_;
  std::map<MemberKey, Part> members_;
  std::map<MemberKey, Part> seen_;
  EvidenceSum all_;
  std::set<std::string> tests_;
};

}  // namespace kansoku::detect
