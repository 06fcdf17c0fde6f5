// SPDX-License-Identifier: Apache-2.0
#include "trace/internal/sequence.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "common/rng.h"

namespace kansoku::trace {
namespace {

TEST(IidMap, FindsWhatWasSetLast) {
  IidMap<int> map;
  EXPECT_EQ(map.find(0), nullptr);
  for (const std::uint64_t iid : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 20,
                                  std::numeric_limits<std::uint64_t>::max()}) {
    map.set(iid, 1);
    map.set(iid, 2);
    ASSERT_NE(map.find(iid), nullptr);
    EXPECT_EQ(*map.find(iid), 2);
  }
  EXPECT_EQ(map.find(2), nullptr);
  map.clear();
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_EQ(map.find(std::uint64_t{1} << 20), nullptr);
}

TEST(IidMap, PrefersTheDensePartOnceItReachesAnOldId) {
  IidMap<int> map;
  map.set(200, 1);  // too far away for now
  for (int i = 0; i < 100; ++i)
    map.set(static_cast<std::uint64_t>(i), i);
  EXPECT_EQ(*map.find(200), 1);
  map.set(300, 3);
  EXPECT_EQ(*map.find(200), 1);
  map.set(200, 2);
  EXPECT_EQ(*map.find(200), 2);
}

TEST(IidMap, CostsNoMemoryForHostileIds) {
  IidMap<int> map;
  map.set((1U << 18) - 1, 1);
  map.set(1ULL << 40, 1);
  EXPECT_EQ(map.dense_slots_for_test(), 0U);
  // The worst there is: always the largest id that is still taken in.
  IidMap<int> greedy;
  std::uint64_t count = 0;
  for (std::uint64_t iid = 63; count < 10'000; iid = 63 + 4 * ++count) {
    greedy.set(iid, 1);
    greedy.set(iid, 2);  // the same again buys nothing
  }
  EXPECT_LE(greedy.dense_slots_for_test(), 64 + 4 * count);
}

TEST(IidMap, IsDenseForIdsThatCountUp) {
  IidMap<int> map;
  for (int i = 1; i <= 1000; ++i)
    map.set(static_cast<std::uint64_t>(i), i);
  EXPECT_EQ(map.dense_slots_for_test(), 1001U);
}

TEST(IidMap, DoesWhatAMapDoes) {
  Rng rng(7);
  IidMap<std::uint64_t> map;
  std::map<std::uint64_t, std::uint64_t> model;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t iid = rng.below(rng.below(3) == 0 ? 100'000 : 300);
    const std::uint64_t value = rng.next_u64();
    if (rng.below(5000) == 0) {
      map.clear();
      model.clear();
    }
    map.set(iid, value);
    model[iid] = value;
    const std::uint64_t other = rng.below(400);
    const auto found = model.find(other);
    const std::uint64_t* got = map.find(other);
    ASSERT_EQ(got != nullptr, found != model.end());
    ASSERT_TRUE(got == nullptr || *got == found->second);
  }
}

}  // namespace
}  // namespace kansoku::trace
