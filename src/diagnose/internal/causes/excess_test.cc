// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/excess.h"

#include <gtest/gtest.h>

#include <array>

#include "common/rng.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

RankSeries noisy(std::size_t ranks, std::size_t steps, double level, std::uint64_t seed) {
  Rng rng(seed);
  RankSeries series(ranks);
  for (auto& rank : series) {
    for (std::size_t s = 0; s < steps; ++s)
      rank.push_back(level * (0.8 + 0.4 * rng.uniform()));
  }
  return series;
}

ExcessOptions test_options() {
  ExcessOptions options;
  options.threshold_ms = 3;
  options.clip_share = 0.05;
  return options;
}

TEST(ExcessOverPeers, IsOwnMinusMedianOfTheOthers) {
  const RankSeries excess = excess_over_peers({{10}, {1}, {2}, {6}});
  EXPECT_EQ(excess[0][0], 10 - 2);
  EXPECT_EQ(excess[1][0], 1 - 6);
  EXPECT_EQ(excess[3][0], 6 - 2);
  EXPECT_EQ(excess_over_peers({{5, 6}})[0], (std::vector<double>{0, 0}));
}

TEST(FindOutliers, NoneInNoise) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto excess = excess_over_peers(noisy(4, 100, 40, seed));
    EXPECT_TRUE(find_outliers(excess, std::vector<bool>(4), test_options()).empty());
  }
}

TEST(FindOutliers, OneLateRankAndItsExcess) {
  for (std::size_t late = 0; late < 4; ++late) {
    RankSeries series = noisy(4, 200, 40, late + 1);
    for (double& value : series[late])
      value += 8;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_options());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rank_index, late);
    EXPECT_NEAR(found[0].excess_ms, 8, 1.2);
    EXPECT_GE(found[0].confidence, 0.95);
  }
}

// One wild step of many is no finding, however wild: resamples without it do not agree.
TEST(FindOutliers, ASingleWildStepIsChance) {
  RankSeries series = noisy(4, 100, 40, 3);
  series[1][50] += 5000;
  ExcessOptions options = test_options();
  options.clip_share = 0;
  EXPECT_TRUE(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).empty());
}

// A scheduler that keeps a rank on a busy processor for seconds: resamples of single steps agree.
TEST(FindOutliers, OneSlowStretchIsChance) {
  RankSeries series = noisy(4, 160, 40, 3);
  for (std::size_t s = 40; s < 100; ++s)
    series[1][s] += 25;
  ExcessOptions options = test_options();
  EXPECT_TRUE(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).empty());
  options.asks_blocks = false;
  EXPECT_EQ(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).size(), 1U);
}

// Sixteen blocks of ten steps each; binomial tails of 4 x 0.25 by hand.
TEST(FindOutliers, ARankIsSlowestInMoreBlocksThanChanceMakesIt) {
  for (const std::size_t slow : {9U, 10U}) {
    RankSeries series(4, std::vector<double>(160, 40));
    for (std::size_t s = 0; s < 160; ++s)
      series[s / 10 < slow ? 1 : std::array{0, 2, 3}[s / 10 % 3]][s] += 20;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_options());
    ASSERT_EQ(found.size(), slow == 10 ? 1U : 0U);
    if (slow == 10) {
      EXPECT_NEAR(found[0].confidence, 1 - 4 * 0.00164, 1e-4);
    }
  }
}

TEST(FindOutliers, FewerStepsThanBlocksNameNobody) {
  for (const std::size_t steps : {7U, 8U}) {
    RankSeries series = noisy(4, steps, 40, 2);
    for (double& value : series[2])
      value += 60;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_options());
    EXPECT_EQ(found.size(), steps < kBlocksMin ? 0U : 1U);
  }
}

TEST(FindOutliers, KnownRanksAreNeitherReportedNorInTheWay) {
  RankSeries series = noisy(4, 200, 40, 5);
  for (double& value : series[0])
    value += 60;
  for (double& value : series[2])
    value += 9;
  const auto excess = excess_over_peers(series);
  const auto first = find_outliers(excess, std::vector<bool>(4), test_options());
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].rank_index, 0U);
  const auto second = find_outliers(excess, {true, false, false, false}, test_options());
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].rank_index, 2U);
}

TEST(FindOutliers, ScaleCarriesOver) {
  RankSeries series = noisy(4, 100, 40, 6);
  for (double& value : series[3])
    value += 10;
  RankSeries scaled = series;
  for (auto& rank : scaled) {
    for (double& value : rank)
      value *= 8;
  }
  ExcessOptions options = test_options();
  const auto plain = find_outliers(excess_over_peers(series), std::vector<bool>(4), options);
  options.threshold_ms *= 8;
  const auto large = find_outliers(excess_over_peers(scaled), std::vector<bool>(4), options);
  ASSERT_EQ(plain.size(), 1U);
  ASSERT_EQ(large.size(), 1U);
  EXPECT_DOUBLE_EQ(plain[0].excess_ms * 8, large[0].excess_ms);
  EXPECT_EQ(plain[0].confidence, large[0].confidence);
}

TEST(FindOutliers, FewRanksAndNoSteps) {
  EXPECT_TRUE(find_outliers({}, {}, test_options()).empty());
  EXPECT_TRUE(find_outliers({{1, 2}}, {false}, test_options()).empty());
  EXPECT_TRUE(find_outliers({{}, {}}, {false, false}, test_options()).empty());
}

TEST(Concentration, ShareOfTheTopFifth) {
  EXPECT_DOUBLE_EQ(concentration({10, 0, 0, 0, 0, 0, 0, 0, 0, 10}), 1);
  EXPECT_DOUBLE_EQ(concentration({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), 0.2);
  EXPECT_EQ(concentration({-1, -1}), 0);
  EXPECT_EQ(concentration({}), 0);
}

}  // namespace
}  // namespace kansoku::diagnose
