// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/tail.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/rng.h"

namespace kansoku::detect {
namespace {

TEST(Tail, QuantilesOfAnExponentialAndOfAHeavyTail) {
  RandomStream random(1, "test.tail");
  std::vector<double> light, heavy;
  for (int i = 0; i < 20000; ++i) {
    light.push_back(-std::log(random.uniform()));
    heavy.push_back(std::pow(random.uniform(), -0.25) - 1);  // Pareto, shape 1/4
  }
  // P(X > x) = exp(-x) and (1 + x)^-4
  EXPECT_NEAR(fit_tail(light).quantile(1e-3), std::log(1e3), 0.35);
  EXPECT_NEAR(fit_tail(heavy).quantile(1e-3), std::pow(1e3, 0.25) - 1, 0.6);
  EXPECT_NEAR(fit_tail(light).quantile(0.5), fit_tail(light).from, 1e-12);
}

TEST(Tail, GrossOutliersAreNoTail) {
  std::vector<double> values;
  RandomStream random(2, "test.gross");
  for (int i = 0; i < 1000; ++i)
    values.push_back(i < 10 ? 1e6 : -std::log(random.uniform()));
  EXPECT_LT(fit_tail(values).quantile(0.005), 10);
}

TEST(Tail, DegenerateSamples) {
  EXPECT_EQ(fit_tail(std::vector<double>{3}).quantile(0.01), 3);
  EXPECT_EQ(fit_tail(std::vector<double>(50, 2.0)).quantile(0.01), 2);
}

TEST(UpperShare, BinomialByHandAndBetaBinomialAbove) {
  EXPECT_NEAR(upper_share(3, 5, 0.5, 0), 0.5, 1e-12);
  EXPECT_NEAR(upper_share(2, 2, 0.1, 0), 0.01, 1e-12);
  EXPECT_NEAR(upper_share(2, 2, 0.1, 1.0 / 3), 0.1 * 0.1 + 0.09 / 3, 1e-9);  // p^2 + rho p (1-p)
  EXPECT_EQ(upper_share(0, 5, 0.1, 0), 1);
  EXPECT_EQ(upper_share(6, 5, 0.1, 0), 0);
  EXPECT_EQ(smallest_k(2, 0.1, 0, 0.01 + 1e-9), 2U);
  EXPECT_EQ(smallest_k(2, 0.1, 0, 0.005), 3U);
}

TEST(FlagRate, CorrelationOfWindowsThatFlagTogether) {
  const std::vector<double> together{20, 0, 0, 0, 20, 0, 0, 0}, even(8, 5.0);
  EXPECT_DOUBLE_EQ(fit_flags(together, 20).share, 0.25);
  EXPECT_GT(fit_flags(together, 20).correlation, 0.85);
  EXPECT_EQ(fit_flags(even, 20).correlation, 0);
}

TEST(WindowCut, AboveEveryHealthyWindow) {
  EXPECT_EQ(window_cut({}, 1e-5, 4), 4);
  EXPECT_EQ(window_cut(std::vector<double>(20, 1.0), 1e-5, 4), 4);
  EXPECT_EQ(window_cut(std::vector<double>(20, 30.0), 1e-5, 4), 45);
}

}  // namespace
}  // namespace kansoku::detect
