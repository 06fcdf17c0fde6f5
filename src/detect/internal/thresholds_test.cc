// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/thresholds.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/rng.h"
#include "detect/internal/watch_state.h"

namespace kansoku::detect {
namespace {

TEST(TailLevel, QuantilesOfAnExponentialAndOfAHeavyTail) {
  RandomStream random(1, "test.tail");
  std::vector<double> light, heavy;
  for (int i = 0; i < 20000; ++i) {
    light.push_back(-std::log(random.uniform()));
    heavy.push_back(std::pow(random.uniform(), -0.25) - 1);  // Pareto, shape 1/4
  }
  // P(X > x) = exp(-x) and (1 + x)^-4
  EXPECT_NEAR(tail_level(light, 1e-3), std::log(1e3), 0.35);
  EXPECT_NEAR(tail_level(heavy, 1e-3), std::pow(1e3, 0.25) - 1, 0.6);
  EXPECT_NEAR(tail_level(light, 0.5), tail_level(light, 0.2), 1e-12);  // no less is known
}

TEST(TailLevel, GrossOutliersAreNoTail) {
  std::vector<double> values;
  RandomStream random(2, "test.gross");
  for (int i = 0; i < 1000; ++i)
    values.push_back(i < 10 ? 1e6 : -std::log(random.uniform()));
  EXPECT_LT(tail_level(values, 0.005), 10);
}

TEST(TailLevel, DegenerateSamples) {
  EXPECT_EQ(tail_level(std::vector<double>{3}, 0.01), 3);
  EXPECT_EQ(tail_level(std::vector<double>(50, 2.0), 0.01), 2);
}

TEST(ChooseCounts, ClearlyOddWindowsAndFlaggedOnesHaveTheirOwn) {
  // A day of one process: alpha = 0.05 / 86400 / 2 = 2.9e-7.
  const auto counts = choose_counts({1000, 10, 0.5}, 0, 1, 86400, 1);
  EXPECT_EQ(counts.of_short, 3U);  // 10 (1/1001)^3 = 1e-8
  EXPECT_EQ(counts.of_long, 7U);   // C(30,6) .0105^6 = 8e-7, C(30,7) .0105^7 = 3e-8
  EXPECT_EQ(choose_counts({1000, 10, 10}, 0, 1, 86400, 1).of_short, 4U);  // 10 .0105^3 = 1.2e-5
  EXPECT_EQ(choose_counts({1000, 10, 10}, 0, 1, 86400, 1e4).of_short, 3U);
  EXPECT_GT(counts.per_day, counts.low);
  EXPECT_LT(counts.per_day, counts.high);
  EXPECT_LT(counts.per_day, 0.1);
}

TEST(SmallestK, OfBinomialAndBetaBinomialFlags) {
  EXPECT_NEAR(upper_share({0.5, 0}, 3, 5), 0.5, 1e-12);
  EXPECT_NEAR(upper_share({0.1, 1.0 / 3}, 2, 2), 0.1 * 0.1 + 0.09 / 3, 1e-9);  // p^2 + rho p (1-p)
  EXPECT_EQ(upper_share({0, 0.5}, 1, 5), 0);
  EXPECT_EQ(upper_share({1, 0.5}, 5, 5), 1);
  EXPECT_EQ(upper_share({0.1, 0}, 6, 5), 0);
  EXPECT_EQ(smallest_k({0.1, 0}, 2, 0.01 + 1e-9), 2U);
  EXPECT_EQ(smallest_k({0.1, 0}, 2, 0.005), 3U);
}

TEST(CorrelationOf, WindowsThatFlagTogether) {
  std::vector<stats::CountWindow> together, even;
  for (int i = 0; i < 40; ++i) {
    together.push_back({i % 4 == 0 ? 20 : 0, 20});
    even.push_back({5, 20});
  }
  EXPECT_GT(correlation_of(together), 0.85);
  EXPECT_EQ(correlation_of(even), 0);
  EXPECT_EQ(correlation_of(std::span(together).first(4)), 0);
}

TEST(WindowCut, AboveEveryHealthyWindow) {
  EXPECT_EQ(window_cut({}, 1e-5, 4), 4);
  EXPECT_EQ(window_cut(std::vector<double>(20, 1.0), 1e-5, 4), 4);
  EXPECT_EQ(window_cut(std::vector<double>(20, 30.0), 1e-5, 4), 45);
}

}  // namespace
}  // namespace kansoku::detect
