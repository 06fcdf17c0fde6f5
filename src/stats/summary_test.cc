// SPDX-License-Identifier: Apache-2.0
#include "stats/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"

namespace kansoku::stats {
namespace {

std::vector<double> random_values(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  std::vector<double> values(count);
  for (double& value : values)
    value = rng.uniform() * 100 - 50;
  return values;
}

TEST(Summary, ClosedForms) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(median(values), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 1.75);  // 1 + 0.75 * (2 - 1)
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
  EXPECT_DOUBLE_EQ(mad(std::vector<double>{1, 2, 3, 4, 100}), 1);  // |x - 3| = 2 1 0 1 97
}

TEST(Summary, EmptyAndSingle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(mad({}), 0);
  EXPECT_EQ(trimmed_mean({}, 0.1), 0);
  const std::vector<double> one{7};
  EXPECT_EQ(quantile(one, 0.95), 7);
  EXPECT_EQ(trimmed_mean(one, 0.5), 7);
}

TEST(Summary, SharesOutsideTheRangeAreClamped) {
  const std::vector<double> values{1, 2, 3};
  EXPECT_EQ(quantile(values, -1), 1);
  EXPECT_EQ(quantile(values, 2), 3);
}

TEST(Summary, TrimmedMeanDropsBothTails) {
  const std::vector<double> values{-1000, 1, 2, 3, 4, 5, 6, 7, 8, 1000};
  EXPECT_DOUBLE_EQ(trimmed_mean(values, 0.1), 4.5);
  EXPECT_DOUBLE_EQ(trimmed_mean(values, 0.5), median(values));
  EXPECT_DOUBLE_EQ(trimmed_mean(values, 0), mean(values));
}

TEST(Summary, OrderDoesNotMatterAndScaleCarriesOver) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<double> values = random_values(seed, 1 + seed * 7);
    std::vector<double> reversed(values.rbegin(), values.rend());
    std::vector<double> scaled = values;
    for (double& value : scaled)
      value *= 4;  // a power of two: exact
    for (const double share : {0.0, 0.1, 0.37, 0.5, 0.95}) {
      EXPECT_EQ(quantile(values, share), quantile(reversed, share)) << "seed " << seed;
      EXPECT_EQ(quantile(values, share) * 4, quantile(scaled, share)) << "seed " << seed;
      EXPECT_EQ(trimmed_mean(values, share / 2), trimmed_mean(reversed, share / 2));
      EXPECT_EQ(trimmed_mean(values, share / 2) * 4, trimmed_mean(scaled, share / 2));
    }
    EXPECT_EQ(mad(values) * 4, mad(scaled)) << "seed " << seed;
    EXPECT_EQ(mean(values), mean(reversed)) << "seed " << seed;
  }
}

TEST(Summary, QuantileEqualsTheSortedDefinition) {
  std::vector<double> values = random_values(3, 101);
  const double found = quantile(values, 0.25);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(found, values[25]);
}

}  // namespace
}  // namespace kansoku::stats
