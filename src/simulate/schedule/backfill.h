// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "simulate/schedule/policy.h"

namespace kansoku::simulate::schedule {

/// EASY backfilling: first come, first served, but when the first request does not fit it gets a
/// reservation at the earliest time at which enough units will be free by the estimates, and later
/// requests may start if they fit now and either end before that time or leave it enough.
/// Looks at `kDepthMax` requests behind the first. Source: Lifka 1995 (EASY), as commonly
/// described.
class Backfill final : public Policy {
 public:
  static constexpr int kDepthMax = 1000;

  void add(const Waiting& waiting) override { queue_.emplace(waiting.ticket, waiting); }
  void remove(const Waiting& waiting) override { queue_.erase(waiting.ticket); }
  [[nodiscard]] bool empty() const override { return queue_.empty(); }
  [[nodiscard]] std::optional<Waiting> pick(View& view) override {
    if (queue_.empty()) return std::nullopt;
    const Waiting& first = queue_.begin()->second;
    if (view.fits(first)) return first;
    Reservation reservation(first.units, view.units_free());
    view.visit_ends(reservation);
    int depth = 0;
    for (auto later = std::next(queue_.begin()); later != queue_.end() && depth < kDepthMax;
         ++later, ++depth) {
      const Waiting& candidate = later->second;
      const bool ends_before = view.now() + candidate.estimate <= reservation.at;
      if ((ends_before || candidate.units <= reservation.spare) && view.fits(candidate))
        return candidate;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Waiting> head(View&) override {
    if (queue_.empty()) return std::nullopt;
    return queue_.begin()->second;
  }

 private:
  /// When the first request can start, and the units left over then.
  class Reservation final : public View::EndVisitor {
   public:
    Reservation(std::int64_t wanted, std::int64_t free) : wanted_(wanted), free_(free) {}
    bool ends(Nanos when, std::int64_t units) override {
      if (free_ >= wanted_ && when > at) return false;  // all that end at the same time count
      free_ += units;
      if (free_ >= wanted_) {
        at = when;
        spare = free_ - wanted_;
      }
      return true;
    }
    Nanos at{Nanos::max()};
    std::int64_t spare{0};

   private:
    std::int64_t wanted_, free_;
  };
  std::map<std::uint64_t, Waiting> queue_;
};

}  // namespace kansoku::simulate::schedule
