// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "simulate/schedule/fifo.h"

namespace kansoku::simulate::schedule {

/// The group that has used least so far goes first (ties: smaller group number); inside a group
/// first come, first served. A group whose first request does not fit is passed over.
class FairShare final : public Policy {
 public:
  void add(const Waiting& waiting) override { groups_[waiting.group].add(waiting); }
  void remove(const Waiting& waiting) override {
    const auto group = groups_.find(waiting.group);
    if (group == groups_.end()) return;
    group->second.remove(waiting);
    if (group->second.empty()) groups_.erase(group);
  }
  [[nodiscard]] bool empty() const override { return groups_.empty(); }
  [[nodiscard]] std::optional<Waiting> pick(View& view) override {
    return least_used(view, [&](Fifo& queue) { return queue.pick(view); });
  }
  [[nodiscard]] std::optional<Waiting> head(View& view) override {
    return least_used(view, [&](Fifo& queue) { return queue.head(view); });
  }

 private:
  template <class Choose>
  [[nodiscard]] std::optional<Waiting> least_used(View& view, const Choose& choose) {
    std::multimap<double, Fifo*> by_usage;  // equal usage: in order of insertion, by group
    for (auto& [group, queue] : groups_)
      by_usage.emplace(view.usage(group), &queue);
    for (auto& [usage, queue] : by_usage)
      if (auto chosen = choose(*queue)) return chosen;
    return std::nullopt;
  }
  std::map<std::uint32_t, Fifo> groups_;
};

}  // namespace kansoku::simulate::schedule
