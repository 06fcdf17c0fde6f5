// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>

#include "simulate/schedule/policy.h"

namespace kansoku::simulate::schedule {

/// A strict queue by a key that does not change while a request waits: the first one starts when it
/// fits, and nobody passes it. `Key{}(waiting)` gives the key.
template <class Key>
class Ordered : public Policy {
 public:
  void add(const Waiting& waiting) override { queue_.insert(waiting); }
  void remove(const Waiting& waiting) override { queue_.erase(waiting); }
  [[nodiscard]] bool empty() const override { return queue_.empty(); }
  [[nodiscard]] std::optional<Waiting> pick(View& view) override {
    if (queue_.empty() || !view.fits(*queue_.begin())) return std::nullopt;
    return *queue_.begin();
  }
  [[nodiscard]] std::optional<Waiting> head(View&) override {
    if (queue_.empty()) return std::nullopt;
    return *queue_.begin();
  }

 private:
  struct Less {
    bool operator()(const Waiting& a, const Waiting& b) const {
      const auto left = Key{}(a), right = Key{}(b);
      return left < right || (left == right && a.ticket < b.ticket);
    }
  };
  std::set<Waiting, Less> queue_;
};

}  // namespace kansoku::simulate::schedule
