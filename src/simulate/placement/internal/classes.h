// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "simulate/placement/pool.h"

namespace kansoku::simulate::placement::internal {

struct RequestHash {
  std::size_t operator()(const Request& request) const;
};

/// State that a policy keeps for each distinct request (a class): a `State` built with the number
/// of nodes, and the last change of the pool that it reflects. Places are nodes in the order of
/// their names (or of their indices), so that the first of several equals is the one to take.
template <class State>
class Classes {
 public:
  enum class Order { kName, kIndex };
  // Beyond this many all are forgotten and built anew: a bound for workloads without repetition.
  static constexpr std::size_t kClassesMax = 4096;

  explicit Classes(Order order = Order::kName) : order_(order) {}

  [[nodiscard]] std::uint32_t node_at(std::size_t place) const { return node_at_[place]; }

  /// The state of the request's class after `update(state, place, node)` was called once for each
  /// node that changed since the last time, and at the first time for each node.
  template <class Update>
  const State& refresh(const Request& request, const NodePool& pool, Update update) {
    if (node_at_.size() != pool.nodes().size()) renumber(pool);
    Class& kept = class_of(request);
    const std::uint64_t now = pool.change_count();
    const std::uint64_t stale = now - kept.seen;
    if (stale < std::min<std::uint64_t>(pool.nodes().size(), NodePool::kJournal)) {
      for (std::uint64_t number = kept.seen + 1; number <= now; ++number) {
        const std::uint32_t node = pool.changed_node(number);
        // A later entry of the same node will come.
        if (pool.node(node).version != number) continue;
        update(kept.state, std::size_t{place_of_[node]}, node);
      }
    } else {
      for (std::size_t place = 0; place < node_at_.size(); ++place) {
        if (pool.node(node_at_[place]).version > kept.seen)
          update(kept.state, place, node_at_[place]);
      }
    }
    kept.seen = now;
    return kept.state;
  }

 private:
  struct Class {
    State state;
    std::uint64_t seen{0};
  };

  Class& class_of(const Request& request) {
    const auto found = index_.find(request);
    if (found != index_.end()) return classes_[found->second];
    if (classes_.size() >= kClassesMax) {
      classes_.clear();
      index_.clear();
    }
    index_.emplace(request, classes_.size());
    return classes_.emplace_back(Class{State(node_at_.size()), 0});
  }

  void renumber(const NodePool& pool) {
    classes_.clear();
    index_.clear();
    node_at_.resize(pool.nodes().size());
    place_of_.resize(pool.nodes().size());
    std::iota(node_at_.begin(), node_at_.end(), 0U);
    if (order_ == Order::kName) {
      std::stable_sort(node_at_.begin(), node_at_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return pool.node(a).name < pool.node(b).name;
      });
    }
    for (std::uint32_t place = 0; place < node_at_.size(); ++place)
      place_of_[node_at_[place]] = place;
  }

  Order order_;
  std::vector<std::uint32_t> node_at_, place_of_;
  std::vector<Class> classes_;
  std::unordered_map<Request, std::size_t, RequestHash> index_;
};

}  // namespace kansoku::simulate::placement::internal
