// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "detect/job_model.h"
#include "trace/incident.h"

namespace kansoku::detect {

/// Sums up what the flagged windows of an incident show, column by column.
class EvidenceSum {
 public:
  /// One flagged window of one rank: its explanation and its values.
  void add(const JobModel::Parts& model, std::span<const double> row,
           std::span<const Contribution> contributions);
  /// Columns by their part of the score, at most `count`.
  [[nodiscard]] std::vector<trace::Evidence> evidence(std::span<const Column> columns,
                                                      std::size_t count) const;
  /// Median deviation of a column from its learnt center, in spreads; 0 if it was not seen.
  [[nodiscard]] double deviation(std::size_t column) const;
  [[nodiscard]] bool has(std::size_t column) const {
    const auto found = deviations_.find(column);
    return found != deviations_.end() && !found->second.empty();
  }
  [[nodiscard]] bool empty() const { return windows_ == 0; }

 private:
  static constexpr std::size_t kKept = 32;  // windows whose values are kept
  struct Sum {
    double share{0};
    std::vector<double> seen;
  };
  std::map<std::size_t, Sum> sums_;
  std::map<std::size_t, std::vector<double>> deviations_;
  std::map<std::size_t, double> usual_;  // the learnt center, in the column's unit
  double windows_{0};
};

/// What a process does itself, not what it suffers while it waits for others: the largest deviation
/// to the worse, in spreads, among input, forward, processor, memory, disk and device features.
[[nodiscard]] double own_cost(const EvidenceSum& sum, std::span<const Column> columns);
/// The kind of incident that deviations of the columns speak for; see docs/detect.md.
[[nodiscard]] std::string kind_of(const EvidenceSum& sum, std::span<const Column> columns);
/// "rank 2: collective p99 4.1 ms -> 38 ms, tcp retransmits 0/s -> 210/s; CPU and GPU normal".
[[nodiscard]] std::string summary_of(const trace::IncidentRecord& incident, const EvidenceSum& sum,
                                     std::span<const Column> columns);
/// A command that looks closer.
[[nodiscard]] std::string suggestion_of(const trace::IncidentRecord& incident);

}  // namespace kansoku::detect
