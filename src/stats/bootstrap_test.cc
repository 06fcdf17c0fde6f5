// SPDX-License-Identifier: Apache-2.0
#include "stats/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "stats/summary.h"

namespace kansoku::stats {
namespace {

TEST(BlockBootstrap, EveryDrawHasAllItemsInConsecutiveRuns) {
  for (const std::size_t count : {1U, 2U, 7U, 100U}) {
    BlockBootstrap bootstrap(count, 5, 1);
    for (int i = 0; i < 50; ++i) {
      std::size_t drawn = 0;
      for (const Block& block : bootstrap.draw()) {
        EXPECT_GE(block.count, 1U);
        EXPECT_LE(block.begin + block.count, count);
        drawn += block.count;
      }
      EXPECT_EQ(drawn, count);
    }
  }
}

TEST(BlockBootstrap, NoItemsGiveNoBlocks) {
  BlockBootstrap bootstrap(0, 3, 1);
  EXPECT_TRUE(bootstrap.draw().empty());
}

TEST(BlockBootstrap, SameSeedSameDraws) {
  BlockBootstrap one(40, 4, 9);
  BlockBootstrap two(40, 4, 9);
  for (int i = 0; i < 10; ++i) {
    const auto a = one.draw();
    const auto b = two.draw();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k)
      EXPECT_EQ(a[k].begin, b[k].begin);
  }
}

// Circular blocks: each of n items is drawn with the same chance, so the mean number of draws of
// an item is 1; with 4000 resamples its standard error is below 0.06 for blocks of 10.
TEST(BlockBootstrap, ItemsHaveEqualWeight) {
  constexpr std::size_t kItems = 30;
  constexpr int kDraws = 4000;
  BlockBootstrap bootstrap(kItems, 10, 5);
  std::vector<double> hits(kItems);
  for (int i = 0; i < kDraws; ++i) {
    for (const Block& block : bootstrap.draw()) {
      for (std::size_t k = 0; k < block.count; ++k)
        hits[block.begin + k] += 1;
    }
  }
  for (const double hit : hits)
    EXPECT_NEAR(hit / kDraws, 1.0, 0.1);
}

// For independent items the standard deviation of the resampled mean is sd / sqrt(n).
TEST(BlockBootstrap, SpreadOfTheMeanMatchesTheClosedForm) {
  Rng rng(2);
  std::vector<double> values(400);
  for (double& value : values)
    value = rng.uniform();
  const PrefixSums sums(values);
  BlockBootstrap bootstrap(values.size(), 1, 3);
  std::vector<double> means;
  means.reserve(2000);
  for (int i = 0; i < 2000; ++i)
    means.push_back(sums.mean(bootstrap.draw()));
  const double centre = mean(means);
  double variance = 0;
  for (const double value : means)
    variance += (value - centre) * (value - centre) / 2000;
  const double expected = std::sqrt(1.0 / 12 / 400);  // uniform: variance 1/12
  EXPECT_NEAR(std::sqrt(variance), expected, 0.1 * expected);
}

TEST(PrefixSums, MeanOverBlocks) {
  const std::vector<double> values{1, 2, 3, 4, 5};
  const PrefixSums sums(values);
  const std::vector<Block> blocks{{0, 2}, {3, 2}, {1, 1}};
  EXPECT_DOUBLE_EQ(sums.mean(blocks), (1 + 2 + 4 + 5 + 2) / 5.0);
  EXPECT_EQ(sums.mean({}), 0);
}

TEST(BlockLength, IsTheCubeRootRoundedUp) {
  EXPECT_EQ(default_block_length(0), 1U);
  EXPECT_EQ(default_block_length(1), 1U);
  EXPECT_EQ(default_block_length(8), 2U);
  EXPECT_EQ(default_block_length(9), 3U);
  EXPECT_EQ(default_block_length(1000), 10U);
}

}  // namespace
}  // namespace kansoku::stats
