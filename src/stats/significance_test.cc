// SPDX-License-Identifier: Apache-2.0
#include "stats/significance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "stats/fit.h"

namespace kansoku::stats {
namespace {

constexpr double kUnboundedStatistic = std::numeric_limits<double>::infinity();

TEST(TwoSided, ClosedForms) {
  EXPECT_DOUBLE_EQ(two_sided(0, 5), 1);
  EXPECT_NEAR(two_sided(1, 1), 0.5, 1e-12);  // Cauchy: 1 - 2 atan(1) / pi
  EXPECT_NEAR(two_sided(-std::sqrt(2.0), 2), 1 - std::sqrt(0.5), 1e-12);  // 1 - t / sqrt(2 + t^2)
  EXPECT_NEAR(two_sided(1.959963984540054, kUnboundedStatistic), 0.05, 1e-12);
  EXPECT_EQ(two_sided(kUnboundedStatistic, 3), 0);
  EXPECT_EQ(two_sided(std::nan(""), 3), 1);
}

TEST(TwoSided, IsTheInverseOfTheQuantile) {
  for (const double degrees : {1.5, 4.0, 30.0}) {
    for (const double p : {0.9, 0.99, 0.9999})
      EXPECT_NEAR(two_sided(student_quantile(p, degrees), degrees), 2 * (1 - p), 1e-9);
  }
}

TEST(Holm, StepsDown) {
  // 4 x 0.01, 3 x 0.02, 2 x 0.03 (as the one before), 1 x 0.5
  EXPECT_EQ(holm(std::vector<double>{0.03, 0.5, 0.01, 0.02}),
            (std::vector<double>{0.06, 0.5, 0.04, 0.06}));
  EXPECT_TRUE(holm({}).empty());
  EXPECT_EQ(holm(std::vector<double>{0.6, 0.7}), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace kansoku::stats
