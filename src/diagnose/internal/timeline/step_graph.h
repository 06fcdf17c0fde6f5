// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::diagnose {

/// Which operation of a step must wait for which, the same for every step and data-parallel rank.
/// A "lane" is one (step, data-parallel rank); the lanes of a step are `lanes_per_step` in a row.
/// Every operation has one duration a lane, so simulating is a few array operations a node.
class StepGraph {
 public:
  using Node = std::uint32_t;

  /// Adds an operation that starts when everything it depends on has ended and takes its duration.
  Node add();
  /// `node` must wait for `before`.
  void depend(Node node, Node before);
  /// The nodes of a group are one communication: it begins when all have started, in every lane of
  /// the step if `over_lanes`, and each ends its own duration after that. A node has at most one
  /// group.
  void communicate(std::span<const Node> nodes, bool over_lanes);
  /// Orders the nodes. kCorrupt if they wait for each other in a circle.
  [[nodiscard]] Result<void> finish();
  [[nodiscard]] std::size_t size() const { return before_.size(); }

  /// When each node of one step ran, and whether the step would have been shorter without waiting
  /// for it: [node][lane of the step]. Same arguments as simulate().
  struct Times {
    double start_s{0}, end_s{0};
    bool is_critical{false};
  };
  [[nodiscard]] std::vector<Times> schedule(std::span<const double> durations_s,
                                            std::size_t lane_count, std::size_t lanes_per_step,
                                            std::size_t step) const;

  /// Step times: for each step the latest end over its lanes and nodes, with every step starting at
  /// 0. `durations_s`: [node][lane], end to end, in seconds; lanes a multiple of `lanes_per_step`.
  /// After finish().
  [[nodiscard]] std::vector<double> simulate(std::span<const double> durations_s,
                                             std::size_t lane_count,
                                             std::size_t lanes_per_step) const;

 private:
  static constexpr std::uint32_t kNoGroup = 0xffffffff;
  struct Group {
    std::vector<Node> nodes;
    bool over_lanes{false};
  };
  void mark_critical(std::vector<Times>& times, std::size_t lanes) const;

  std::vector<std::vector<Node>> before_;
  std::vector<std::uint32_t> group_of_;
  std::vector<Group> groups_;
  std::vector<Node> order_;  // a group's nodes stand together, its last one ends the group
};

}  // namespace kansoku::diagnose
