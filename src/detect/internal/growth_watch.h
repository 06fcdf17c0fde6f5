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

namespace kansoku::detect {

/// Episodes of steady growth in the processes of a job: one a feature of Use::kGrowth, from the
/// first process that grows to the last one that stops. Not shared between threads.
class GrowthWatch {
 public:
  /// `job`: for suggestions. `last_episode`: the number of the last one of the detector; it
  /// outlives this.
  GrowthWatch(std::vector<Column> columns, std::string job, std::uint64_t& last_episode)
      : columns_(std::move(columns)), job_(std::move(job)), last_episode_(last_episode) {}

  /// One window of a process; `out` gets the incidents that begin, change or end by it.
  void on_window(std::int64_t wall_ns, const Window& window, std::vector<Observation>& out);
  /// The process has ended: it grows no more.
  void forget(std::int64_t wall_ns, MemberKey key, std::vector<Observation>& out);
  /// Ends all.
  void finish(std::int64_t wall_ns, std::vector<Observation>& out);
  /// Growth of the speed of that episode is normal from now on, or is not. False if there is no
  /// such episode, and was none not long ago.
  bool take_label(std::uint64_t episode, bool is_normal);
  /// Ends incidents that are normal by the operator's label.
  void end_normal(std::int64_t wall_ns, std::vector<Observation>& out);

 private:
  struct Growing {
    std::uint64_t episode{0};
    trace::IncidentFacts facts;
    std::map<MemberKey, int> members;  // that still grow; blocks without growth in a row
    double bytes_per_second{0};        // the fastest of them
    bool is_normal{false};             // by the operator's label
  };
  struct Ended {
    std::uint64_t episode{0};
    std::size_t column{0};
    double bytes_per_second{0};
  };
  /// A block of a process in which it did not grow: whether that may be chance.
  [[nodiscard]] bool may_still_grow(std::size_t column, MemberKey key);
  void learn_speed(std::size_t column, double bytes_per_second);
  void close(std::int64_t wall_ns, std::size_t column, std::vector<Observation>& out);

  void report_growth(std::size_t column, const Window& window, const Growth& found,
                     std::vector<Observation>& out);
  void end(std::int64_t wall_ns, std::size_t column, MemberKey key, std::vector<Observation>& out);

  std::vector<Column> columns_;
  std::string job_;
  std::uint64_t& last_episode_;
  std::map<MemberKey, std::map<std::size_t, GrowthTest>> tests_;  // by process and column
  std::map<std::size_t, Growing> growing_;                        // by column
  std::deque<Ended> ended_;               // the latest, for the operator's label
  std::map<std::size_t, double> normal_;  // bytes a second that the operator calls so, by column
};

}  // namespace kansoku::detect
