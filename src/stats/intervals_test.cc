// SPDX-License-Identifier: Apache-2.0
#include "stats/intervals.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/rng.h"

namespace kansoku::stats {
namespace {

std::vector<Interval> random_intervals(Rng& rng, std::size_t count, std::uint64_t end_ns) {
  std::vector<Interval> list;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::int64_t>(rng.below(end_ns));
    list.push_back({begin, begin + static_cast<std::int64_t>(rng.below(12)) - 2});
  }
  return list;
}

bool covers(const std::vector<Interval>& list, std::int64_t time_ns) {
  for (const Interval& i : list) {
    if (i.begin_ns <= time_ns && time_ns < i.end_ns) return true;
  }
  return false;
}

// Every operation against its definition, instant by instant.
TEST(IntervalSet, EqualsTheDefinitionAtEveryInstant) {
  constexpr std::int64_t kEnd = 120;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    const auto list_a = random_intervals(rng, rng.below(14), 100);
    const auto list_b = random_intervals(rng, rng.below(14), 100);
    const IntervalSet a = IntervalSet::of(list_a);
    const IntervalSet b = IntervalSet::of(list_b);
    const IntervalSet both = a.intersect(b);
    const IntervalSet either = a.unite(b);
    const IntervalSet only_a = a.subtract(b);
    std::int64_t measure_ns = 0;
    for (std::int64_t t = -2; t < kEnd; ++t) {
      const bool in_a = covers(list_a, t);
      const bool in_b = covers(list_b, t);
      ASSERT_EQ(a.contains(t), in_a) << "seed " << seed << " at " << t;
      ASSERT_EQ(both.contains(t), in_a && in_b) << "seed " << seed << " at " << t;
      ASSERT_EQ(either.contains(t), in_a || in_b) << "seed " << seed << " at " << t;
      ASSERT_EQ(only_a.contains(t), in_a && !in_b) << "seed " << seed << " at " << t;
      if (t >= 10 && t < 70 && in_a) ++measure_ns;
    }
    ASSERT_EQ(a.measure_ns({10, 70}), measure_ns) << "seed " << seed;
    ASSERT_EQ(a.measure_ns({-5, kEnd}),
              both.measure_ns({-5, kEnd}) + only_a.measure_ns({-5, kEnd}));
  }
}

TEST(IntervalSet, OverlapsAreCountedOnce) {
  const IntervalSet set = IntervalSet::of({{0, 10}, {5, 15}, {2, 3}, {20, 20}, {30, 25}});
  ASSERT_EQ(set.items().size(), 1U);
  EXPECT_EQ(set.measure_ns({0, 100}), 15);
  EXPECT_EQ(set.measure_ns({50, 10}), 0);
  EXPECT_TRUE(IntervalSet().intersect(set).empty());
  EXPECT_EQ(IntervalSet().measure_ns({0, 10}), 0);
}

}  // namespace
}  // namespace kansoku::stats
