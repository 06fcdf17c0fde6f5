// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "detect/detector.h"
#include "detect/internal/growth_watch.h"
#include "detect/internal/watch_state.h"
#include "detect/thresholds.h"

namespace kansoku::detect {

inline constexpr std::size_t kMembersMax = 1024;
inline constexpr std::size_t kRefreshLast = 8 * kRefreshFirst;
inline constexpr double kNanosOfDay = 86400e9;

/// One job of a detector. Learning is in detector_learning.cc; the tests and the life of incidents
/// are in detector.cc.
struct Detector::Impl {
  std::vector<Column> columns;
  std::vector<int> worse;  // of each column, as in Feature
  DetectorOptions options;
  State state{State::kLearning};
  std::int64_t last_ns{std::numeric_limits<std::int64_t>::min()};
  std::uint64_t windows{0}, flagged{0}, skipped{0}, refreshes{0};

  Table learning;
  std::size_t learnt_windows{0};

  std::optional<Scorer> scorer;
  std::map<MemberKey, Member> members;
  std::map<MemberKey, std::vector<double>> offsets;  // by column
  AlarmCounts counts;
  std::size_t counts_for{0};  // members that they were chosen for
  HealthyFlags healthy_flags;
  double far_flags{0}, far_points{0};  // the same of single windows above the model's far_cut
  std::size_t pace{0};
  std::deque<double> paces;
  double pace_cut{0};
  std::size_t late_windows{0};                  // with steps that the model knows nothing of
  std::map<std::size_t, double> normal_events;  // by column: the most that the operator calls so

  std::uint64_t last_episode{0};
  std::optional<Episode> open;
  std::optional<Episode> ended;  // for the pause
  struct Kept {
    std::uint64_t episode{0};
    bool is_normal{false};  // by the operator's label
    std::vector<double> rows;
    std::map<std::size_t, double> peers;  // how far ranks stood out of their peers, by column
    bool is_taken{false};                 // its cuts and its pace are normal
  };
  std::deque<Kept> kept;
  std::optional<GrowthWatch> growth;
  std::vector<MemberKey> left;  // processes that ended since the last window

  /// All ranks at one time, while it may yet turn out that they were ill.
  struct Pending {
    std::vector<double> rows;
    HealthyFlags seen;
    double far_flags{0};
  };
  std::deque<Pending> pending;
  std::deque<std::vector<double>> healthy;  // rows, spread over the time between two refreshes
  std::size_t healthy_moments{0};
  std::size_t since_refresh{0}, refresh_after{kRefreshFirst};
  std::uint64_t failed_fits{0};
  std::string fit_problem;  // of the last try

  /// Results of the tests on the last window.
  struct Alarms {
    std::set<MemberKey> events;  // that stand out of their own history
    std::map<MemberKey, PeerFinding> peers;
    bool is_job_slow{false};
    [[nodiscard]] bool are_sudden() const { return !events.empty() || !peers.empty(); }
  };

  [[nodiscard]] std::size_t learn_windows() const {
    const auto window = std::max<std::int64_t>(1, options.window.count());
    return static_cast<std::size_t>(
        std::max<std::int64_t>(40, options.learn_time.count() / window));
  }
  void learn(std::span<const Window> taken);
  void finish_learning();
  void forget_learning();
  void start_watching(JobModel model);
  [[nodiscard]] bool begins_late(std::size_t column) const;
  void learn_anew(std::vector<Observation>& out);
  [[nodiscard]] bool sees_unknown_steps(const std::vector<MemberKey>& present);
  void take_offsets(MemberKey key, std::span<const double> all, std::size_t index);
  bool learn_offsets(const std::vector<MemberKey>& present);
  void choose_alarm_counts();
  void note_failed_fit(const Error& error);

  std::vector<Observation> watch(std::int64_t wall_ns, std::span<const Window> taken);
  [[nodiscard]] bool is_another_run(std::span<const Window> taken) const;
  void end_run(std::int64_t wall_ns, std::vector<Observation>& out);
  void score(std::int64_t wall_ns, const Window& window);
  [[nodiscard]] bool has_event(std::span<const double> row) const;
  [[nodiscard]] bool is_for_the_worse(std::span<const double> row) const;
  [[nodiscard]] bool is_beyond_cuts(std::span<const double> row) const;
  [[nodiscard]] std::vector<double> levels_of(std::span<const double> row) const;
  [[nodiscard]] bool is_another(const Episode& incident,
                                const std::vector<MemberKey>& present) const;
  [[nodiscard]] std::optional<SlowPace> slow_from(std::int64_t begin_ns) const;
  [[nodiscard]] bool is_slower(const std::vector<MemberKey>& present,
                               const std::optional<SlowPace>& slow) const;
  [[nodiscard]] bool continues_incident(const Episode& incident, const Alarms& alarms) const;
  [[nodiscard]] double excess_of(const Member::Recent& recent) const {
    return recent.score - scorer->model().parts().threshold;
  }
  [[nodiscard]] bool is_far_out(const Member& member) const;
  std::set<MemberKey> event_alarms(const std::vector<MemberKey>& present) const;
  std::map<MemberKey, PeerFinding> peer_alarms(const std::vector<MemberKey>& present);
  bool job_alarm(const std::vector<MemberKey>& present);
  void apply_operator_label(std::int64_t wall_ns, std::vector<Observation>& out);
  void end_incident_of_another_fault(std::int64_t wall_ns, const std::vector<MemberKey>& present,
                                     const Alarms& alarms, std::vector<Observation>& out);
  bool add_windows_to_incident(const std::vector<MemberKey>& present, const Alarms& alarms);
  void forget_flags();
  [[nodiscard]] std::int64_t begin_of(std::int64_t wall_ns,
                                      const std::set<MemberKey>& alarmed) const;
  void begin_incident(std::int64_t wall_ns, const std::set<MemberKey>& alarmed);
  void end_incident(std::vector<Observation>& out);
  void keep_healthy(const std::vector<MemberKey>& present);
  void forget_gone(std::int64_t wall_ns);
  [[nodiscard]] bool can_learn(std::size_t labelled_values) const;
  void refresh();
  void learn_pace(std::span<const double> rows, JobModel& model);
  void learn_word(const Kept& one, JobModel& model);
  [[nodiscard]] Cube recent_cube(const std::vector<MemberKey>& present, std::size_t length) const;
};

}  // namespace kansoku::detect
