// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kansoku::stats {

struct Interval {
  std::int64_t begin_ns{0};
  std::int64_t end_ns{0};
  [[nodiscard]] constexpr std::int64_t ns() const { return end_ns - begin_ns; }
};

/// A set of instants as sorted, disjoint, non-empty half-open intervals. Times lie in
/// 0 .. 2^61 (the extraction clamps them), so differences never overflow.
class IntervalSet {
 public:
  IntervalSet() = default;
  /// The union of `intervals`, in any order, overlapping or empty ones allowed.
  [[nodiscard]] static IntervalSet of(std::vector<Interval> intervals);

  [[nodiscard]] IntervalSet unite(const IntervalSet& other) const;
  [[nodiscard]] IntervalSet intersect(const IntervalSet& other) const;
  [[nodiscard]] IntervalSet subtract(const IntervalSet& other) const;
  /// The part of the set inside `window`. O(log n + size of the result).
  [[nodiscard]] IntervalSet within(Interval window) const;

  /// Nanoseconds of the set inside `window`. O(log n).
  [[nodiscard]] std::int64_t measure_ns(Interval window) const;
  [[nodiscard]] bool contains(std::int64_t time_ns) const;
  /// Borrowed: never of a temporary set.
  [[nodiscard]] std::span<const Interval> items() const& { return items_; }
  std::span<const Interval> items() && = delete;
  [[nodiscard]] bool empty() const { return items_.empty(); }

 private:
  explicit IntervalSet(std::vector<Interval> sorted_disjoint);
  /// Nanoseconds of the set before `time_ns`.
  [[nodiscard]] std::int64_t before_ns(std::int64_t time_ns) const;

  std::vector<Interval> items_;
  std::vector<std::int64_t> sums_ns_;  // total length of items_[0 .. i)
};

}  // namespace kansoku::stats
