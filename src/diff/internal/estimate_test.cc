// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/rng.h"

namespace kansoku::diff {
namespace {

constexpr std::size_t kSteps = 200;

std::vector<double> noisy(double mean, double width, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> out;
  for (std::size_t i = 0; i < kSteps; ++i)
    out.push_back(mean * (1 + width * (rng.uniform() - 0.5)));
  return out;
}

const std::vector<double> kOnes(kSteps, 1.0);

TEST(TypicalRatio, HasTheErrorOfAMeanOnPlainNoise) {
  const StepDraws draws(kSteps, 2000, 1);
  const LogRatio ratio = typical_ratio(noisy(2, 0.2, 1), kOnes, kOnes, draws);
  ASSERT_TRUE(ratio.is_known);
  EXPECT_NEAR(ratio.value, std::log(2), 0.01);
  // A uniform width of 0.2 has a standard deviation of 0.2 / sqrt(12).
  const double expected = 0.2 / std::sqrt(12.0 * kSteps);
  EXPECT_NEAR(ratio.error, expected, 0.4 * expected);
  EXPECT_NEAR(std::sqrt(ratio.spread2), 0.2 / std::sqrt(12.0), 0.01);
  EXPECT_LT(ratio.drift2, 1e-4);
}

TEST(TypicalRatio, ThirtyStepsOfOthersLoadDoNotCount) {
  const StepDraws draws(kSteps, 400, 1);
  std::vector<double> values = noisy(2, 0.02, 1);
  for (std::size_t i = 40; i < 70; ++i)
    values[i] *= 3;
  EXPECT_NEAR(typical_ratio(values, kOnes, kOnes, draws).value, std::log(2), 0.005);
  EXPECT_GT(log_ratio(values, kOnes, draws).value, std::log(2.4));
}

TEST(TypicalRatio, WhatTheLaneSharesIsNoDrift) {
  const StepDraws draws(kSteps, 400, 1);
  std::vector<double> values = noisy(2, 0.02, 1), factors(kSteps, 1.0);
  for (std::size_t i = kSteps / 2; i < kSteps; ++i) {
    values[i] *= 1.3;
    factors[i] = 1.3;
  }
  EXPECT_GT(typical_ratio(values, kOnes, kOnes, draws).drift2, 0.005);
  const LogRatio beside = typical_ratio(values, kOnes, factors, draws);
  EXPECT_LT(beside.drift2, 1e-4);
  EXPECT_NEAR(beside.value, std::log(2), 0.005);
}

TEST(TypicalRatio, EqualValuesHaveNoError) {
  const StepDraws draws(kSteps, 400, 1);
  const LogRatio ratio = typical_ratio(std::vector<double>(kSteps, 3.0), kOnes, kOnes, draws);
  EXPECT_DOUBLE_EQ(ratio.value, std::log(3));
  EXPECT_EQ(ratio.error, 0);
  EXPECT_FALSE(ratio.varies);
}

TEST(LogRatio, OfNothingIsUnknown) {
  const StepDraws draws(kSteps, 400, 1);
  EXPECT_FALSE(log_ratio(std::vector<double>(kSteps, 0.0), kOnes, draws).is_known);
  EXPECT_FALSE(typical_ratio({}, {}, {}, StepDraws(0, 10, 1)).is_known);
}

LogRatio run(double value, double error) {
  return {.value = value, .error = error, .degrees = 20, .is_known = true};
}

TEST(Difference, OneRunASideHasThePriorAlone) {
  const std::vector<LogRatio> a{run(0, 0)}, b{run(0.1, 0)};
  const Difference d = difference(a, b, {.sigma = 0.02});
  EXPECT_DOUBLE_EQ(d.value, 0.1);
  EXPECT_NEAR(d.error, 0.02 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(d.degrees, kPriorDegrees, 1e-9);
}

TEST(Difference, SeveralRunsModerateThePrior) {
  const std::vector<LogRatio> a{run(-0.1, 0), run(0.1, 0)}, b{run(0.9, 0), run(1.1, 0)};
  const Difference d = difference(a, b, {.sigma = 0.02});
  // Two variances of 0.02, each of one degree, beside the prior's.
  const double variance = (kPriorDegrees * 0.02 * 0.02 + 0.02 + 0.02) / (kPriorDegrees + 2);
  EXPECT_NEAR(d.error, std::sqrt(variance), 1e-12);
  EXPECT_NEAR(d.degrees, kPriorDegrees + 2, 1e-9);
}

TEST(Difference, EqualRunsNeedNoDegrees) {
  const std::vector<LogRatio> a{run(0, 0)}, b{run(0.02, 0)};
  Change change;
  EXPECT_EQ(put(difference(a, b, {.sigma = 0}), 0, change), 0);
  EXPECT_EQ(put(difference(a, b, {.sigma = 0}), 0.02, change), 1);
  EXPECT_DOUBLE_EQ(*change.low, *change.high);
}

}  // namespace
}  // namespace kansoku::diff
