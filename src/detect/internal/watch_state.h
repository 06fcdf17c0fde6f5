// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
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
#include "detect/job_model.h"
#include "detect/rank_tests.h"
#include "detect/thresholds.h"
#include "stats/peers.h"
#include "trace/incident.h"

namespace kansoku::detect {

/// When a job is slower than it was, by the times of its steps or decode calls.
struct SlowPace {
  std::size_t column{0};
  double from{0};  // in the column's unit
};

/// A process by its rank; without one by its pid, which no rank can be.
using MemberKey = std::int64_t;
[[nodiscard]] inline MemberKey key_of(const Window& window) {
  return window.rank >= 0 ? window.rank : -1 - static_cast<MemberKey>(window.pid);
}

/// State kept of one process.
struct Member {
  struct Recent {
    std::int64_t wall_ns{0};
    std::vector<double> row;
    bool is_flagged{false};
    bool is_event{false};   // a Use::kEvent feature counted something
    bool is_beyond{false};  // a single feature goes as far to the worse as it never does in health
    bool is_clear{false};   // flagged, and more than hardly odd
    double score{0};
  };
  std::int32_t rank{-1}, pid{0};
  std::int64_t last_ns{0};
  std::uint64_t windows{0};        // judged so far, from its first step on
  std::uint64_t start_windows{0};  // before its first step
  std::deque<Recent> recent;       // the last kLongWindows
  double score{0};
  bool is_flagged{false};
  std::size_t peer_streak{0};  // windows in a row in which it stood out of its peers
};

/// How many clearly odd windows of five, and flagged ones of thirty, make an alarm within the
/// budget. Five flagged ones of five do anyway.
struct AlarmCounts {
  std::uint32_t of_short{kConfirmWindows}, of_long{kOfLongMin};
  double per_day{0}, low{0}, high{0};  // false alarms that this lets expect
};
/// Flags of healthy windows so far.
struct HealthyFlags {
  double points{0}, flags{0}, clear{0};
};
/// `correlation` is that between neighbours; `members` processes, `windows_per_day` each. Counts
/// such that a tenth of half the budget is met: the rest is left to the other tests and to effects
/// beyond the correlation.
[[nodiscard]] AlarmCounts choose_counts(const HealthyFlags& healthy, double correlation,
                                        double members, double windows_per_day, double budget);

/// Something wrong that goes on, or that ended a moment ago, and the evidence for it.
class Episode {
 public:
  /// `job`: for suggestions. `slow`: none if the job's pace is not known.
  Episode(std::uint64_t number, std::string job, std::int64_t begin_ns,
          std::optional<SlowPace> slow);

  /// Takes one flagged window of a process into the evidence.
  void add(MemberKey key, const Member& member, const Member::Recent& recent, Scorer& scorer);
  /// One window of any process of the job, flagged or not: its peers are compared with it.
  void add_deviations(MemberKey key, const Member& member, const Member::Recent& recent,
                      const JobModel::Parts& model);
  /// A healthy window of a process before it began.
  void add_before(MemberKey key, const Member& member, const Member::Recent& recent,
                  const JobModel::Parts& model) {
    part_of(key, member).before.add(model, recent.wall_ns, recent.row);
  }
  /// The process belongs to it.
  void include(MemberKey key, const Member& member);
  /// It does because it stands out of its peers.
  void include(MemberKey key, const Member& member, const PeerFinding& finding);
  /// True if a flagged window is odd enough to be a sign of this episode: a slight oddity says
  /// nothing of an episode that was far out. `excess`: of the window's score over the threshold.
  [[nodiscard]] bool speaks_for_it(const Member::Recent& recent, double excess) const;
  /// How bad each coordinate of a window was (NaN: not seen): a clearly worse level later is
  /// another fault.
  void raise_worst_levels(MemberKey key, const std::vector<double>& levels) {
    auto& worst = worst_[key];
    worst.resize(levels.size(), std::nan(""));
    for (std::size_t i = 0; i < levels.size(); ++i)
      if (!(worst[i] >= levels[i]) && !std::isnan(levels[i])) worst[i] = levels[i];
  }
  [[nodiscard]] const std::vector<double>* worst_of(MemberKey key) const {
    const auto found = worst_.find(key);
    return found == worst_.end() ? nullptr : &found->second;
  }
  void add_test(const std::string& test) { tests_.insert(test); }
  [[nodiscard]] bool has_test(const std::string& test) const { return tests_.count(test) != 0; }
  /// Single windows or ranks stand out, not only the pace of the job.
  [[nodiscard]] bool is_sudden() const { return has_test("event") || has_test("rank"); }
  [[nodiscard]] bool has(MemberKey key) const {
    const auto found = parts_.find(key);
    return found != parts_.end() && found->second.is_included;
  }

  /// Brings the facts up to date; true if they are worth telling again: more ranks, another kind or
  /// another test, an effect on the job, or other ranks than were told for some windows.
  bool update(std::span<const Column> columns, std::size_t member_count);
  [[nodiscard]] Observation observed() const { return {number_, false, facts_}; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] bool is_told() const { return is_told_; }
  [[nodiscard]] bool has_effect() const { return facts_.has_effect; }
  [[nodiscard]] const std::optional<SlowPace>& slow() const { return slow_; }
  [[nodiscard]] std::int64_t begin_ns() const { return facts_.begin_ns; }
  void set_end(std::int64_t wall_ns) { facts_.end_ns = wall_ns; }

  std::size_t windows{0};  // it has been open
  std::size_t quiet_windows{0};
  bool has_event{false};     // a Use::kEvent feature counted something in it
  std::int64_t last_ns{0};   // of the last flagged window
  std::vector<double> rows;  // of flagged windows, for the case that they were normal
  bool is_normal{false};     // by the operator's label
  std::map<std::size_t, double> peer_deviations;  // the largest, by column, in scales

 private:
  /// A window in which a process stood out of itself or of its peers, and how far.
  struct Mark {
    std::int64_t wall_ns{0};
    double excess{0};  // of a flagged window, its score above the threshold, 1 at least; else 0
    double vote{0};    // 1: it stood out of its peers
  };
  struct Part {
    std::int32_t rank{-1}, pid{0};
    std::vector<Mark> marks;  // the first ones
    Deviations before;        // of the healthy windows before
    bool has_event{false};
    Deviations level;           // of all windows
    std::vector<double> paces;  // of the first ones, in the unit of the pace's column
    EvidenceSum sum;            // of the windows that speak for it
    double excess{0}, windows{0};
    int peer_votes{0};
    bool is_included{false}, is_alarmed{false};
  };
  Part& part_of(MemberKey key, const Member& member);
  /// The mark of that window, the last one; null beyond kMarksMax.
  [[nodiscard]] static Mark* mark_of(Part& part, std::int64_t wall_ns);
  [[nodiscard]] bool has_effect_on_job(std::span<const Column> columns,
                                       const EvidenceSum& sum) const;
  [[nodiscard]] std::vector<MemberKey> named(std::span<const Column> columns,
                                             std::size_t member_count) const;
  /// Nothing: own cost gives no answer.
  [[nodiscard]] std::optional<std::vector<MemberKey>> by_own_cost(std::span<const Column> columns,
                                                                  std::size_t member_count) const;
  /// Those whose hardware reported an error.
  [[nodiscard]] std::vector<MemberKey> by_event(std::size_t member_count) const;
  [[nodiscard]] std::vector<MemberKey> by_votes() const;
  [[nodiscard]] std::vector<MemberKey> by_score(std::size_t member_count) const;
  /// Marks in the order of parts_, without the windows in which nobody stood out.
  [[nodiscard]] stats::MemberSeries by_window(double Mark::*strength) const;
  /// Those of `keys` that are above all other processes in more windows than chance allows.
  /// `values`: in the order of parts_, by window in which one stood out. `known` processes are
  /// named already, and not compared with.
  [[nodiscard]] std::vector<MemberKey> beyond_chance(
      const std::vector<MemberKey>& keys, stats::MemberSeries values,
      const std::vector<MemberKey>& known = {}) const;

  std::uint64_t number_;
  std::string job_;
  std::optional<SlowPace> slow_;
  trace::IncidentFacts facts_;
  bool is_told_{false};              // at least once
  std::map<MemberKey, Part> parts_;  // of all processes of the job that were looked at
  EvidenceSum all_;
  std::map<MemberKey, std::vector<double>> worst_;
  std::set<std::string> tests_;
  std::vector<double> excesses_;  // of flagged windows over the threshold, the first ones
  std::vector<std::int32_t> told_ranks_, told_pids_;
  std::size_t windows_since_named_{0};  // that name others than those
};

}  // namespace kansoku::detect
