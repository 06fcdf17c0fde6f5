// SPDX-License-Identifier: Apache-2.0
#include "common/rng.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace kansoku {
namespace {

std::vector<std::uint64_t> first(Rng rng, std::size_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(rng.next_u64());
  return numbers;
}

// The first words of Philox4x32-10 for counter 0 and key 0 are 6627e8d5 e169c58d.
// Source: known-answer tests of the Random123 library.
TEST(Rng, IsPhilox) {
  EXPECT_EQ(Rng(0, 0).next_u64(), 0xe169c58d6627e8d5);
}

TEST(Rng, GivesTheSameNumbersForTheSameSeedAndStream) {
  EXPECT_EQ(first(Rng(1, 2), 100), first(Rng(1, 2), 100));
  EXPECT_NE(first(Rng(1, 2), 4), first(Rng(2, 2), 4));
  EXPECT_NE(first(Rng(1, 2), 4), first(Rng(1, 3), 4));
  EXPECT_NE(first(Rng(1ULL << 32), 4), first(Rng(0), 4));        // all of the seed counts
  EXPECT_NE(first(Rng(0, 1ULL << 32), 4), first(Rng(0, 0), 4));  // and of the stream
}

TEST(Rng, GoesOnInACopy) {
  Rng rng(9);
  static_cast<void>(rng.next_u64());
  Rng copy = rng;
  EXPECT_EQ(first(rng, 10), first(copy, 10));
  EXPECT_NE(first(rng, 10), first(Rng(9), 10));
}

TEST(Rng, DoesNotRepeatItself) {
  const auto numbers = first(Rng(3), 100'000);
  EXPECT_EQ(std::set<std::uint64_t>(numbers.begin(), numbers.end()).size(), numbers.size());
}

TEST(Rng, StaysBelowTheBound) {
  Rng rng(4);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                    std::uint64_t{1000}, (std::uint64_t{1} << 63) - 1,
                                    std::uint64_t{1} << 63, (std::uint64_t{1} << 63) + 1, kMost}) {
    for (int i = 0; i < 1000; ++i)
      ASSERT_LT(rng.below(bound), bound);
  }
  EXPECT_EQ(rng.below(1), 0U);
}

// Every remainder equally often: Pearson's statistic of 7 cells has mean 6 and stays below 24.1 in
// 99.95 % of all streams.
TEST(Rng, HitsEveryNumberBelowTheBoundEquallyOften) {
  Rng rng(5);
  constexpr std::size_t kCells = 7;
  constexpr int kDraws = 70'000;
  std::vector<int> hits(kCells, 0);
  for (int i = 0; i < kDraws; ++i)
    ++hits[rng.below(kCells)];
  const double expected = static_cast<double>(kDraws) / kCells;
  double statistic = 0;
  for (const int count : hits)
    statistic += (count - expected) * (count - expected) / expected;
  EXPECT_LT(statistic, 24.1);
}

// With a plain remainder, numbers below 2^62 would come twice as often for this bound.
TEST(Rng, HasNoModuloBias) {
  Rng rng(6);
  constexpr std::uint64_t kBound = 3ULL << 62;
  constexpr int kDraws = 30'000;
  int low = 0;
  for (int i = 0; i < kDraws; ++i)
    low += rng.below(kBound) < (1ULL << 62) ? 1 : 0;
  EXPECT_NEAR(low, kDraws / 3, 500);  // 6 standard deviations; a biased one gives 15,000
}

TEST(Rng, IsUniformFromZeroToOne) {
  Rng rng(7);
  constexpr int kDraws = 100'000;
  double sum = 0;
  double least = 1;
  double most = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = rng.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.006);  // 6 standard deviations of 1/sqrt(12 n)
  EXPECT_LT(least, 0.001);
  EXPECT_GT(most, 0.999);
}

TEST(RngDeathTest, HasNothingBelowZero) {
  Rng rng(1);
  EXPECT_DEATH(static_cast<void>(rng.below(0)), "invariant broken: bound >= 1");
}

TEST(RandomStream, GivesPhiloxOfTheCounterUnderSeedAndName) {
  RandomStream stream(42, "arrivals");
  // numpy.random.Philox(key=[42, FNV-1a of the name]), from counter 0.
  for (const std::uint64_t expected :
       {0x87c5db7b92943692ULL, 0x2427a37d83978d89ULL, 0x488eb2c97e24d7d3ULL, 0xe632368085206922ULL,
        0x45560063e009a536ULL, 0xc95174347708457eULL})
    EXPECT_EQ(stream.next_u64(), expected);
}

TEST(RandomStream, OfAnotherNameOrSeedIsAnother) {
  const auto first = [](std::uint64_t seed, std::string_view name) {
    return RandomStream(seed, name).next_u64();
  };
  EXPECT_NE(first(1, "a"), first(1, "b"));
  EXPECT_NE(first(1, "a"), first(2, "a"));
}

TEST(RandomStream, IsUniformInTheOpenInterval) {
  RandomStream stream(7, "u");
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = stream.uniform();
    ASSERT_GT(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.006);
  int hits = 0;
  for (int i = 0; i < kDraws; ++i)
    hits += stream.below(3) == 0 ? 1 : 0;
  EXPECT_NEAR(hits, kDraws / 3.0, 900);
}

TEST(RandomBlocks, DependOnTheIndexAlone) {
  const RandomBlocks blocks(42, "durations");
  const auto fifth = blocks.at(5);
  EXPECT_NE(blocks.at(6), fifth);
  EXPECT_EQ(blocks.at(5), fifth);
  EXPECT_NE(RandomBlocks(42, "other").at(5), fifth);
  double sum = 0;
  for (std::uint64_t i = 0; i < 25'000; ++i)
    for (const std::uint64_t number : blocks.at(i))
      sum += RandomBlocks::uniform(number);
  EXPECT_NEAR(sum / 100'000, 0.5, 0.006);
}

}  // namespace
}  // namespace kansoku
