// SPDX-License-Identifier: Apache-2.0
#include "stats/peers.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::stats {
namespace {

TEST(LeaveOneOut, AgreesWithTheDefinition) {
  Rng rng(3, 1);
  for (std::size_t count = 2; count < 40; ++count) {
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i)  // ties too
      values.push_back(i % 3 == 0 ? 1.0 : std::floor(rng.uniform() * 20) / 4);
    const auto peers = leave_one_out(values);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> others = values;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_DOUBLE_EQ(peers[i].centre, median(others)) << count << " " << i;
      EXPECT_DOUBLE_EQ(peers[i].spread, mad(others)) << count << " " << i;
    }
  }
}

TEST(LeaveOneOut, OneHasNoPeers) {
  EXPECT_TRUE(leave_one_out({}).empty());
  const std::vector<double> one{4};
  EXPECT_EQ(leave_one_out(one).front().centre, 0);
}

TEST(ChanceOfShare, IsABinomialTail) {
  EXPECT_DOUBLE_EQ(chance_of_share(0, 5, 4), 1);
  EXPECT_NEAR(chance_of_share(3, 3, 4), 1.0 / 64, 1e-12);
  EXPECT_NEAR(chance_of_share(1, 2, 2), 0.75, 1e-12);
  EXPECT_NEAR(chance_of_share(2, 3, 4), 3 * 3.0 / 64 + 1.0 / 64, 1e-12);
  EXPECT_EQ(chance_of_share(5, 5, 1), 1);
}

TEST(ChancesOfBlocks, AreOfAllMembersAndNoneOfFewSteps) {
  MemberSeries values(4, std::vector<double>(kBlocksMin));
  values[2].assign(kBlocksMin, 1);
  EXPECT_NEAR(chances_of_blocks(values, {2}).at(0), 4 * std::pow(0.25, kBlocksMin), 1e-12);
  EXPECT_NEAR(chances_of_blocks(values, {2, 1}).at(0), 4 * std::pow(1.0 / 3, kBlocksMin), 1e-12);
  EXPECT_EQ(chances_of_blocks(values, {2, 1}).at(1), 4) << "never the greatest";
  for (auto& member : values)
    member.pop_back();
  EXPECT_EQ(chances_of_blocks(values, {2}).at(0), 1);
  EXPECT_TRUE(chances_of_blocks({}, {}).empty());
}

MemberSeries noisy(std::size_t ranks, std::size_t steps, double level, std::uint64_t seed) {
  Rng rng(seed);
  MemberSeries series(ranks);
  for (auto& rank : series) {
    for (std::size_t s = 0; s < steps; ++s)
      rank.push_back(level * (0.8 + 0.4 * rng.uniform()));
  }
  return series;
}

OutlierTest test_of_three() {
  OutlierTest options;
  options.least = 3;
  options.clip_share = 0.05;
  return options;
}

TEST(ExcessOverPeers, IsOwnMinusMedianOfTheOthers) {
  const MemberSeries excess = excess_over_peers({{10}, {1}, {2}, {6}});
  EXPECT_EQ(excess[0][0], 10 - 2);
  EXPECT_EQ(excess[1][0], 1 - 6);
  EXPECT_EQ(excess[3][0], 6 - 2);
  EXPECT_EQ(excess_over_peers({{5, 6}})[0], (std::vector<double>{0, 0}));
}

TEST(FindOutliers, NoneInNoise) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto excess = excess_over_peers(noisy(4, 100, 40, seed));
    EXPECT_TRUE(find_outliers(excess, std::vector<bool>(4), test_of_three()).empty());
  }
}

TEST(FindOutliers, OneLateRankAndItsExcess) {
  for (std::size_t late = 0; late < 4; ++late) {
    MemberSeries series = noisy(4, 200, 40, late + 1);
    for (double& value : series[late])
      value += 8;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_of_three());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].member, late);
    EXPECT_NEAR(found[0].excess, 8, 1.2);
    EXPECT_GE(found[0].confidence, 0.95);
  }
}

// One wild step of many is no finding, however wild: resamples without it do not agree.
TEST(FindOutliers, ASingleWildStepIsChance) {
  MemberSeries series = noisy(4, 100, 40, 3);
  series[1][50] += 5000;
  OutlierTest options = test_of_three();
  options.clip_share = 0;
  EXPECT_TRUE(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).empty());
}

// A scheduler that keeps a rank on a busy processor for seconds: resamples of single steps agree.
TEST(FindOutliers, OneSlowStretchIsChance) {
  MemberSeries series = noisy(4, 160, 40, 3);
  for (std::size_t s = 40; s < 100; ++s)
    series[1][s] += 25;
  OutlierTest options = test_of_three();
  EXPECT_TRUE(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).empty());
  options.asks_blocks = false;
  EXPECT_EQ(find_outliers(excess_over_peers(series), std::vector<bool>(4), options).size(), 1U);
}

// Sixteen blocks of ten steps each; binomial tails of 4 x 0.25 by hand.
TEST(FindOutliers, ARankIsSlowestInMoreBlocksThanChanceMakesIt) {
  for (const std::size_t slow : {9U, 10U}) {
    MemberSeries series(4, std::vector<double>(160, 40));
    for (std::size_t s = 0; s < 160; ++s)
      series[s / 10 < slow ? 1U : std::array{0U, 2U, 3U}[s / 10 % 3]][s] += 20;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_of_three());
    ASSERT_EQ(found.size(), slow == 10 ? 1U : 0U);
    if (slow == 10) {
      EXPECT_NEAR(found[0].confidence, 1 - 4 * 0.00164, 1e-4);
    }
  }
}

TEST(FindOutliers, FewerStepsThanBlocksNameNobody) {
  for (const std::size_t steps : {7U, 8U}) {
    MemberSeries series = noisy(4, steps, 40, 2);
    for (double& value : series[2])
      value += 60;
    const auto found =
        find_outliers(excess_over_peers(series), std::vector<bool>(4), test_of_three());
    EXPECT_EQ(found.size(), steps < kBlocksMin ? 0U : 1U);
  }
}

TEST(FindOutliers, KnownRanksAreNeitherReportedNorInTheWay) {
  MemberSeries series = noisy(4, 200, 40, 5);
  for (double& value : series[0])
    value += 60;
  for (double& value : series[2])
    value += 9;
  const auto excess = excess_over_peers(series);
  const auto first = find_outliers(excess, std::vector<bool>(4), test_of_three());
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].member, 0U);
  const auto second = find_outliers(excess, {true, false, false, false}, test_of_three());
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].member, 2U);
}

TEST(FindOutliers, ScaleCarriesOver) {
  MemberSeries series = noisy(4, 100, 40, 6);
  for (double& value : series[3])
    value += 10;
  MemberSeries scaled = series;
  for (auto& rank : scaled) {
    for (double& value : rank)
      value *= 8;
  }
  OutlierTest options = test_of_three();
  const auto plain = find_outliers(excess_over_peers(series), std::vector<bool>(4), options);
  options.least *= 8;
  const auto large = find_outliers(excess_over_peers(scaled), std::vector<bool>(4), options);
  ASSERT_EQ(plain.size(), 1U);
  ASSERT_EQ(large.size(), 1U);
  EXPECT_DOUBLE_EQ(plain[0].excess * 8, large[0].excess);
  EXPECT_EQ(plain[0].confidence, large[0].confidence);
}

TEST(FindOutliers, FewRanksAndNoSteps) {
  EXPECT_TRUE(find_outliers({}, {}, test_of_three()).empty());
  EXPECT_TRUE(find_outliers({{1, 2}}, {false}, test_of_three()).empty());
  EXPECT_TRUE(find_outliers({{}, {}}, {false, false}, test_of_three()).empty());
}

TEST(ExcessOf, IsTheSameForOne) {
  for (std::size_t members = 1; members < 6; ++members) {
    const MemberSeries series = noisy(members, 30, 40, members);
    const MemberSeries all = excess_over_peers(series);
    for (std::size_t m = 0; m < members; ++m)
      EXPECT_EQ(excess_of(series, m), all[m]);
  }
}

// Three times as long, once in 200 steps of 3,000: a mean shows one hundredth.
TEST(FindSeldomLong, OneMemberNowAndThen) {
  MemberSeries series = noisy(4, 3000, 40, 9);
  for (std::size_t s = 50; s < 3000; s += 200)
    series[2][s] += 80;
  for (std::size_t s = 20; s < 3000; s += 900)  // and anybody, more seldom
    series[s % 4][s] += 80;
  const auto excess = excess_over_peers(series);
  EXPECT_TRUE(find_outliers(excess, std::vector<bool>(4), test_of_three()).empty());
  const auto found = find_seldom_long(excess, 20, std::vector<bool>(4));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].member, 2U);
  EXPECT_NEAR(found[0].long_excess, 80, 5);
  EXPECT_NEAR(found[0].excess, 0.4, 0.04);
  EXPECT_LT(found[0].chance, 1e-4);
  EXPECT_TRUE(find_seldom_long(excess, 20, {false, false, true, false}).empty());
}

TEST(FindSeldomLong, AStallOfManyStepsIsOne) {
  MemberSeries series = noisy(4, 200, 40, 9);
  for (const std::size_t begin : {20U, 80U, 140U}) {
    for (std::size_t s = begin; s < begin + 10; ++s)
      series[1][s] += 80;
  }
  // Three of three on one of four members: one group in sixteen.
  EXPECT_TRUE(find_seldom_long(excess_over_peers(series), 20, std::vector<bool>(4)).empty());
  for (std::size_t s = 5; s < 200; s += 40)
    series[1][s] += 80;
  EXPECT_EQ(find_seldom_long(excess_over_peers(series), 20, std::vector<bool>(4)).size(), 1U);
}

TEST(FindSeldomLong, FewStepsAndOneMember) {
  EXPECT_TRUE(
      find_seldom_long({{9, 9, 9, 9, 9, 9, 9}, {0, 0, 0, 0, 0, 0, 0}}, 1, {false, false}).empty());
  EXPECT_TRUE(find_seldom_long({std::vector<double>(100, 9)}, 1, {false}).empty());
  EXPECT_TRUE(find_seldom_long({}, 1, {}).empty());
}

TEST(Concentration, ShareOfTheTopFifth) {
  EXPECT_DOUBLE_EQ(concentration({10, 0, 0, 0, 0, 0, 0, 0, 0, 10}), 1);
  EXPECT_DOUBLE_EQ(concentration({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), 0.2);
  EXPECT_EQ(concentration({-1, -1}), 0);
  EXPECT_EQ(concentration({}), 0);
}

}  // namespace
}  // namespace kansoku::stats
