// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/timeline/step_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"

namespace kansoku::diagnose {

StepGraph::Node StepGraph::add() {
  before_.emplace_back();
  group_of_.push_back(kNoGroup);
  return static_cast<Node>(before_.size() - 1);
}

void StepGraph::depend(Node node, Node before) {
  CHECK(node < before_.size() && before < before_.size());
  before_[node].push_back(before);
}

void StepGraph::communicate(std::span<const Node> nodes, bool over_lanes) {
  for (const Node node : nodes) {
    CHECK(group_of_[node] == kNoGroup);
    group_of_[node] = static_cast<std::uint32_t>(groups_.size());
  }
  groups_.push_back({.nodes = {nodes.begin(), nodes.end()}, .over_lanes = over_lanes});
}

Result<void> StepGraph::finish() {
  // A group ends as one: everything that any of its nodes waits for comes before it.
  const std::size_t unit_count = before_.size() + groups_.size();
  const auto unit_of = [&](Node node) {
    return group_of_[node] == kNoGroup ? node : before_.size() + group_of_[node];
  };
  std::vector<std::vector<std::size_t>> after(unit_count);
  std::vector<std::size_t> waits(unit_count, 0);
  for (Node node = 0; node < before_.size(); ++node) {
    for (const Node before : before_[node]) {
      if (unit_of(before) == unit_of(node)) {
        return Error{Code::kCorrupt, "order the operations of a step: one waits for itself"};
      }
      after[unit_of(before)].push_back(unit_of(node));
      ++waits[unit_of(node)];
    }
  }
  std::vector<std::size_t> ready;
  for (std::size_t unit = 0; unit < unit_count; ++unit) {
    const bool exists = unit >= before_.size() || group_of_[unit] == kNoGroup;
    if (exists && waits[unit] == 0) ready.push_back(unit);
  }
  order_.clear();
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const std::size_t unit = ready[i];
    if (unit < before_.size()) {
      order_.push_back(static_cast<Node>(unit));
    } else {
      const auto& nodes = groups_[unit - before_.size()].nodes;
      order_.insert(order_.end(), nodes.begin(), nodes.end());
    }
    for (const std::size_t next : after[unit]) {
      if (--waits[next] == 0) ready.push_back(next);
    }
  }
  if (order_.size() == before_.size()) return {};
  return Error{
      Code::kCorrupt,
      fmt::format("order the operations of a step: {} of {} wait for each other in a circle",
                  before_.size() - order_.size(), before_.size())};
}

std::vector<double> StepGraph::simulate(std::span<const double> durations_s, std::size_t lane_count,
                                        std::size_t lanes_per_step) const {
  CHECK(order_.size() == before_.size() && durations_s.size() == before_.size() * lane_count);
  CHECK(lanes_per_step > 0 && lane_count % lanes_per_step == 0);
  std::vector<double> ends(before_.size() * lane_count, 0.0);
  std::vector<double> start(lane_count);
  std::vector<double> step_s(lane_count / lanes_per_step, 0.0);
  const auto wait_for = [&](Node node) {
    for (const Node before : before_[node]) {
      const double* const end = ends.data() + before * lane_count;
      for (std::size_t lane = 0; lane < lane_count; ++lane)
        start[lane] = std::max(start[lane], end[lane]);
    }
  };
  const auto end_node = [&](Node node) {
    const double* const duration = durations_s.data() + node * lane_count;
    double* const end = ends.data() + node * lane_count;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      end[lane] = start[lane] + duration[lane];
      double& step = step_s[lane / lanes_per_step];
      step = std::max(step, end[lane]);
    }
  };
  for (std::size_t i = 0; i < order_.size();) {
    const std::uint32_t group_index = group_of_[order_[i]];
    std::fill(start.begin(), start.end(), 0.0);
    if (group_index == kNoGroup) {
      wait_for(order_[i]);
      end_node(order_[i]);
      ++i;
      continue;
    }
    const Group& group = groups_[group_index];
    for (const Node node : group.nodes)
      wait_for(node);
    if (group.over_lanes) {
      for (std::size_t first = 0; first < lane_count; first += lanes_per_step) {
        const auto begin = start.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end = begin + static_cast<std::ptrdiff_t>(lanes_per_step);
        std::fill(begin, end, *std::max_element(begin, end));
      }
    }
    for (const Node node : group.nodes)
      end_node(node);
    i += group.nodes.size();
  }
  return step_s;
}

/// From the latest end back to the start: before a node comes the one whose end let it start;
/// before a communication the node of its group that started last.
void StepGraph::mark_critical(std::vector<Times>& times, std::size_t lanes) const {
  constexpr double kSame = 1e-9;
  std::size_t at = 0;
  for (std::size_t cell = 0; cell < times.size(); ++cell) {
    if (times[cell].end_s > times[at].end_s) at = cell;
  }
  for (std::size_t hops = 0; hops < times.size() && !times.empty(); ++hops) {
    times[at].is_critical = true;
    Node node = static_cast<Node>(at / lanes);
    std::size_t lane = at % lanes;
    if (group_of_[node] != kNoGroup) {
      const Group& group = groups_[group_of_[node]];
      for (const Node other : group.nodes) {
        for (std::size_t l = 0; l < lanes; ++l) {
          if (!group.over_lanes && l != lane) continue;
          if (times[other * lanes + l].start_s <= times[node * lanes + lane].start_s + kSame)
            continue;
          node = other;
          lane = l;
        }
      }
      times[node * lanes + lane].is_critical = true;
    }
    const Node* last = nullptr;
    for (const Node& before : before_[node]) {
      if (last == nullptr || times[before * lanes + lane].end_s > times[*last * lanes + lane].end_s)
        last = &before;
    }
    if (last == nullptr) return;
    at = *last * lanes + lane;
  }
}

std::vector<StepGraph::Times> StepGraph::schedule(std::span<const double> durations_s,
                                                  std::size_t lane_count,
                                                  std::size_t lanes_per_step,
                                                  std::size_t step) const {
  CHECK(order_.size() == before_.size() && durations_s.size() == before_.size() * lane_count);
  CHECK((step + 1) * lanes_per_step <= lane_count);
  const std::size_t lanes = lanes_per_step;
  std::vector<Times> times(before_.size() * lanes);
  const auto start_of = [&](Node node, std::size_t lane) {
    double start = 0;
    for (const Node before : before_[node])
      start = std::max(start, times[before * lanes + lane].end_s);
    return start;
  };
  const auto duration_of = [&](Node node, std::size_t lane) {
    return durations_s[node * lane_count + step * lanes + lane];
  };
  for (std::size_t i = 0; i < order_.size();) {
    const std::uint32_t group_index = group_of_[order_[i]];
    const std::size_t count = group_index == kNoGroup ? 1 : groups_[group_index].nodes.size();
    const std::span<const Node> nodes(order_.data() + i, count);
    std::vector<double> begin(lanes, 0.0);  // of the communication, when all have started
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (const Node node : nodes) {
        Times& at = times[node * lanes + lane];
        at.start_s = start_of(node, lane);
        begin[lane] = std::max(begin[lane], at.start_s);
      }
    }
    if (group_index != kNoGroup && groups_[group_index].over_lanes)
      std::fill(begin.begin(), begin.end(), *std::max_element(begin.begin(), begin.end()));
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (const Node node : nodes)
        times[node * lanes + lane].end_s = begin[lane] + duration_of(node, lane);
    }
    i += count;
  }
  mark_critical(times, lanes);
  return times;
}

}  // namespace kansoku::diagnose
