// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "detect/job_model.h"
#include "trace/incident.h"

namespace kansoku::detect {

inline constexpr std::size_t kWindowsKept = 32;  // whose values an incident keeps

/// How far columns are from their learnt centers, over the windows of an incident.
class Deviations {
 public:
  void add(const JobModel::Parts& model, std::int64_t wall_ns, std::span<const double> row);
  /// Median over the windows, in spreads; 0 if the column was not seen.
  [[nodiscard]] double of(std::size_t column) const;
  /// In one window; nothing if the column was not seen in it.
  [[nodiscard]] std::optional<double> at(std::size_t column, std::int64_t wall_ns) const;
  [[nodiscard]] bool has(std::size_t column) const { return kept_.count(column) != 0; }
  /// Times of the windows that it keeps values of.
  void add_times_to(std::set<std::int64_t>& out) const {
    for (const auto& [column, kept] : kept_)
      for (const Kept& one : kept)
        out.insert(one.wall_ns);
  }

 private:
  struct Kept {
    std::int64_t wall_ns{0};
    double value{0};
  };
  std::map<std::size_t, std::vector<Kept>> kept_;  // by column; none is empty
};

/// In which column a rank stands out of its peers.
struct PeerFinding {
  std::size_t column{0};
  double deviation{0};        // from the median of the ranks, in the scales of the peer model
  double others{0}, seen{0};  // medians over the last windows, in the column's unit
};

/// Sums up the flagged windows of an incident, column by column.
class EvidenceSum {
 public:
  /// One flagged window of one rank: its explanation and its values.
  void add(const JobModel::Parts& model, std::int64_t wall_ns, std::span<const double> row,
           std::span<const Contribution> contributions);
  /// The rank stands out of its peers; the last word of a column holds.
  void add(const PeerFinding& finding) { findings_[finding.column] = finding; }
  /// Columns by their part of the score, at most `count`; before them those in which the rank
  /// stands out of its peers, the one that does so most first.
  [[nodiscard]] std::vector<trace::Evidence> evidence(std::span<const Column> columns,
                                                      std::size_t count) const;
  /// From the learnt center or from the peers, whichever is more, in spreads.
  [[nodiscard]] double deviation(std::size_t column) const;
  [[nodiscard]] bool has(std::size_t column) const { return deviations_.has(column); }
  [[nodiscard]] bool empty() const { return windows_ == 0; }
  /// True if memory that grows on as in these windows lasts for long. False if that is not known.
  /// False if that is not known.
  [[nodiscard]] bool has_room() const;

 private:
  struct Sum {
    double share{0};
    std::vector<double> seen;
  };
  void note_room(std::span<const Column> columns, std::span<const double> row);

  std::map<std::size_t, Sum> sums_;
  std::vector<double> room_s_;
  Deviations deviations_;
  std::map<std::size_t, PeerFinding> findings_;
  std::map<std::size_t, double> usual_;  // the learnt center, in the column's unit
  double windows_{0};
};

/// Cost that a process causes itself, beyond its peers' and without its waiting for others:
/// differences from their median, to the worse, in spreads.
struct OwnCost {
  double seen{0};        // the largest among features that kernel and driver count by process
  double work{0};        // the largest among these and the times of its own work
  double waited_for{0};  // by how much less it waits in collectives
};
/// A member's windows of an incident, and those before it. Borrowed.
struct MemberLevels {
  const Deviations* now{nullptr};
  const Deviations* before{nullptr};  // a standing difference from its peers is no cost
};
/// Costs of each member, over all windows or in that of `wall_ns`.
[[nodiscard]] std::vector<OwnCost> own_costs(std::span<const MemberLevels> members,
                                             std::span<const Column> columns,
                                             std::optional<std::int64_t> wall_ns = {});
/// True if the fault lies between the processes, so that none is to blame: all of them wait
/// for each other more than they did, or the connections of at least half suffer.
[[nodiscard]] bool is_between(std::span<const Deviations* const> all,
                              std::span<const Column> columns);
/// The kind of incident that deviations of the columns speak for; see docs/watch-detection.md. If
/// single ranks are to blame, others do not wait for the communication; of one process the phase
/// that deviates most is told, since its peers' waiting does not hide it.
[[nodiscard]] trace::IncidentKind kind_of(const EvidenceSum& sum, std::span<const Column> columns,
                                          bool is_of_single_ranks, bool is_of_one);
/// True if the deviation is harm even to a job that is as fast as ever: hardware that fails, a
/// process that is stopped, memory that runs out.
[[nodiscard]] bool is_harm_by_itself(const EvidenceSum& sum, std::span<const Column> columns);
/// "rank 2: collective p99 4.1 ms -> 38 ms, tcp retransmits 0/s -> 210/s; CPU and GPU normal".
[[nodiscard]] std::string summary_of(const trace::IncidentFacts& facts, const EvidenceSum& sum,
                                     std::span<const Column> columns);
/// A command that looks closer.
[[nodiscard]] std::string suggestion_of(std::string_view job, const trace::IncidentFacts& facts);

}  // namespace kansoku::detect
