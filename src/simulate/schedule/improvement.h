// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "simulate/schedule/policy.h"

namespace kansoku::simulate::schedule {

/// Retrainings first that promise most: the expected gain of model performance, then the staleness
/// of the model that would be renewed, then arrival. Strict. Retrainings that promise nothing (gain
/// 0) go by staleness and arrival. Source: the idea of PipeSim's example strategy; the order is
/// ours.
class Improvement final : public Policy {
 public:
  void add(const Waiting& waiting) override { queue_.emplace(waiting.ticket, waiting); }
  void remove(const Waiting& waiting) override { queue_.erase(waiting.ticket); }
  [[nodiscard]] bool empty() const override { return queue_.empty(); }
  [[nodiscard]] std::optional<Waiting> pick(View& view) override {
    const auto best = head(view);
    if (!best || !view.fits(*best)) return std::nullopt;
    return best;
  }
  [[nodiscard]] std::optional<Waiting> head(View&) override {
    const Waiting* best = nullptr;
    for (const auto& [ticket, waiting] : queue_)
      if (best == nullptr || better(waiting, *best)) best = &waiting;
    if (best == nullptr) return std::nullopt;
    return *best;
  }

 private:
  static bool better(const Waiting& a, const Waiting& b) {
    if (a.potential != b.potential) return a.potential > b.potential;
    if (a.trained != b.trained) return a.trained < b.trained;
    return a.ticket < b.ticket;
  }
  std::map<std::uint64_t, Waiting> queue_;
};

}  // namespace kansoku::simulate::schedule
