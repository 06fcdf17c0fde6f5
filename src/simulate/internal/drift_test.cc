// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/drift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kansoku::simulate {
namespace {

constexpr double kDay = 86400, kHorizon = 365 * kDay;

DriftSpec spec_of(DriftKind kind) {
  DriftSpec spec;
  spec.kind = kind;
  spec.floor = 0.3;
  spec.rate_per_s = 0.1 / kDay;
  spec.inflection_s = 40 * kDay;
  spec.shape = 1.7;
  spec.q = 0.8;
  spec.jump_gap_s = 20 * kDay;
  spec.jump = stats::Distribution::exponential(0.04);
  spec.amplitude = 0.2;
  spec.period_s = 90 * kDay;
  spec.points = {{0, 0}, {10 * kDay, 0.1}, {20 * kDay, 0.05}, {40 * kDay, 0.25}};
  return spec;
}

class EveryDrift : public ::testing::TestWithParam<DriftKind> {
 protected:
  Drift drift_{spec_of(GetParam()), kHorizon, RandomStream(5, "drift")};
};

TEST_P(EveryDrift, StartsAtNothing) {
  for (const double trained : {0.0, 3 * kDay, 100 * kDay})
    EXPECT_NEAR(drift_.loss(trained, trained), 0, 1e-12);
}

/// The integral against small steps.
TEST_P(EveryDrift, IntegralIsTheSumOfItsParts) {
  const double trained = 7 * kDay, from = 9 * kDay, to = 137 * kDay;
  constexpr int kSteps = 200'000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i)
    sum += drift_.loss(trained, from + (i + 0.5) * (to - from) / kSteps) * (to - from) / kSteps;
  EXPECT_NEAR(drift_.integral(trained, from, to), sum, 1e-5 * sum);
  EXPECT_EQ(drift_.integral(trained, to, from), 0);
}

/// Crossings by inversion are where a search by steps finds them.
TEST_P(EveryDrift, CrossesWhereAPollWouldSee) {
  for (const double level : {0.01, 0.05, 0.12, 0.199, 0.28}) {
    for (const double from : {0.0, 15 * kDay, 33 * kDay, 61 * kDay}) {
      const double at = drift_.crossing(0, from, level);
      double polled = INFINITY;
      for (double when = from; when <= kHorizon && std::isinf(polled); when += 60)
        if (drift_.loss(0, when) >= level - 1e-12) polled = when;
      if (std::isinf(at) || std::isinf(polled)) {
        EXPECT_EQ(at, polled) << level << " from " << from / kDay;
        continue;
      }
      EXPECT_NEAR(at, polled, 61) << level << " from " << from / kDay;
      EXPECT_GE(at, from);
    }
  }
}

TEST_P(EveryDrift, AreaCrossesWhereTheIntegralReachesIt) {
  const double trained = 2 * kDay;
  for (const double days : {0.5, 3.0, 9.0}) {
    const double at = drift_.area_crossing(trained, 11 * kDay, days * kDay);
    ASSERT_TRUE(std::isfinite(at));
    EXPECT_NEAR(drift_.integral(trained, 11 * kDay, at), days * kDay, 1e-6 * kDay);
  }
  EXPECT_TRUE(std::isinf(drift_.area_crossing(trained, 11 * kDay, 1e9 * kDay)));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryDrift,
                         ::testing::Values(DriftKind::kGradual, DriftKind::kSudden,
                                           DriftKind::kRecurring, DriftKind::kReplayed));

TEST(Drift, GradualFollowsTheRichardsCurve) {
  DriftSpec spec;
  spec.kind = DriftKind::kGradual;
  spec.floor = 0.4;
  spec.rate_per_s = 1;
  spec.inflection_s = 10;
  // Plain logistic: half of the floor at the inflection.
  const Drift drift(spec, 1e6, RandomStream(1, "x"));
  const double at_zero = 0.4 / (1 + std::exp(10.0));
  EXPECT_NEAR(drift.loss(0, 10), 0.2 - at_zero, 1e-12);
  EXPECT_NEAR(drift.crossing(0, 0, 0.2 - at_zero), 10, 1e-9);
  EXPECT_TRUE(std::isinf(drift.crossing(0, 0, 0.41)));
}

TEST(Drift, TrainingLearnsTheJumpsBefore) {
  DriftSpec spec;
  spec.kind = DriftKind::kSudden;
  spec.jump_gap_s = 10;
  spec.jump = stats::Distribution::constant(0.1);
  const Drift drift(spec, 1000, RandomStream(1, "x"));
  const double first = drift.crossing(0, 0, 0.1), second = drift.crossing(0, 0, 0.2);
  EXPECT_GT(second, first);
  EXPECT_NEAR(drift.loss(0, second), 0.2, 1e-12);
  EXPECT_NEAR(drift.loss((first + second) / 2, second), 0.1, 1e-12);
  EXPECT_NEAR(drift.crossing((first + second) / 2, second, 0.1), second, 1e-9);
}

TEST(Drift, NoneNeverLoses) {
  const Drift drift(DriftSpec{}, 1000, RandomStream(1, "x"));
  EXPECT_EQ(drift.loss(0, 500), 0);
  EXPECT_EQ(drift.integral(0, 0, 500), 0);
  EXPECT_TRUE(std::isinf(drift.crossing(0, 0, 0.1)));
  EXPECT_TRUE(std::isinf(drift.area_crossing(0, 0, 0.1)));
}

}  // namespace
}  // namespace kansoku::simulate
