// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>

#include "simulate/schedule/policy.h"

namespace kansoku::simulate::schedule {

/// First come, first served, strictly: a gang that does not fit yet holds up all behind it.
class Fifo final : public Policy {
 public:
  void add(const Waiting& waiting) override { queue_.push_back(waiting); }
  void remove(const Waiting& waiting) override {
    if (!queue_.empty() && queue_.front().ticket == waiting.ticket) return queue_.pop_front();
    const auto found =
        std::lower_bound(queue_.begin(), queue_.end(), waiting.ticket,
                         [](const Waiting& a, std::uint64_t ticket) { return a.ticket < ticket; });
    if (found != queue_.end() && found->ticket == waiting.ticket) queue_.erase(found);
  }
  [[nodiscard]] bool empty() const override { return queue_.empty(); }
  [[nodiscard]] std::optional<Waiting> pick(View& view) override {
    if (queue_.empty() || !view.fits(queue_.front())) return std::nullopt;
    return queue_.front();
  }
  [[nodiscard]] std::optional<Waiting> head(View&) override {
    if (queue_.empty()) return std::nullopt;
    return queue_.front();
  }

 private:
  std::deque<Waiting> queue_;  // by rising ticket
};

}  // namespace kansoku::simulate::schedule
