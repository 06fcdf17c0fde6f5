// SPDX-License-Identifier: Apache-2.0
#include "stats/sketch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::stats {
namespace {

TEST(LogSketch, KnowsQuantilesWithinOnePercent) {
  RandomStream random(3, "sketch");
  LogSketch sketch;
  std::vector<double> values;
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::exp(20 * random.uniform() - 8);
    values.push_back(value);
    sketch.add(value);
  }
  for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = quantile(values, share);
    EXPECT_NEAR(sketch.quantile(share), exact, 0.0125 * exact) << share;
  }
}

TEST(LogSketch, CountsZerosAndExtremes) {
  LogSketch sketch;
  EXPECT_EQ(sketch.quantile(0.5), 0);
  sketch.add(0, 9);
  sketch.add(5);
  EXPECT_EQ(sketch.count(), 10U);
  EXPECT_EQ(sketch.quantile(0.8), 0);
  EXPECT_NEAR(sketch.quantile(1), 5, 0.05);
  sketch.add(1e300);
  EXPECT_NEAR(sketch.quantile(1), LogSketch::kMost, 0.011 * LogSketch::kMost);
  sketch.add(NAN);
  EXPECT_EQ(sketch.count(), 12U);
}

TEST(LogSketch, MergesExactly) {
  RandomStream random(4, "sketch");
  LogSketch all, left, right;
  for (int i = 0; i < 1000; ++i) {
    const double value = 100 * random.uniform() - 5;
    all.add(value);
    (i % 3 == 0 ? left : right).add(value);
  }
  left.merge(right);
  for (double share = 0; share <= 1; share += 0.05)
    EXPECT_EQ(left.quantile(share), all.quantile(share));
}

}  // namespace
}  // namespace kansoku::stats
