// SPDX-License-Identifier: Apache-2.0
#include "stats/sketch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/rng.h"
#include "common/varint.h"
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

std::string encoded(const LogSketch& sketch) {
  std::string text;
  sketch.encode(text);
  return text;
}

TEST(LogSketch, ComesBackFromBytes) {
  RandomStream random(5, "sketch");
  LogSketch sketch;
  EXPECT_EQ(encoded(sketch), std::string(1, '\0'));
  for (int i = 0; i < 500; ++i)
    sketch.add(i % 50 == 0 ? 0 : std::exp(3 * random.uniform() - 20));
  const std::string text = encoded(sketch);
  const auto again = LogSketch::decode(as_bytes(text));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->count(), sketch.count());
  for (double share = 0; share <= 1; share += 0.05)
    EXPECT_EQ(again->quantile(share), sketch.quantile(share));
  EXPECT_EQ(encoded(*again), text);
  EXPECT_FALSE(LogSketch::decode(as_bytes(text).first(text.size() - 1)).has_value());
}

TEST(LogSketch, EqualCountsGiveEqualBytes) {
  LogSketch up, down;
  for (int i = 0; i <= 100; ++i) {
    up.add(1e-3 * i * i);
    down.add(1e-3 * (100 - i) * (100 - i));
  }
  EXPECT_EQ(encoded(up), encoded(down));
}

TEST(LogSketch, SixtyWindowsOfASteadyValueAreSmall) {
  RandomStream random(6, "sketch");
  LogSketch sketch;
  for (int i = 0; i < 60; ++i)
    sketch.add(0.2 * (1 + 0.1 * random.uniform()));
  EXPECT_LT(encoded(sketch).size(), 20U);  // five buckets of 2 %, and where they begin
  EXPECT_LT(sketch.memory_bytes(), 200U);
}

TEST(LogSketch, RefusesBytesThatNobodyWrote) {
  const auto fails = [](std::initializer_list<std::uint64_t> numbers) {
    std::string text;
    for (const std::uint64_t number : numbers)
      append_varint(text, number);
    return !LogSketch::decode(as_bytes(text)).has_value();
  };
  constexpr std::uint64_t kMany = LogSketch::kEncodedCountMax;
  EXPECT_FALSE(fails({3, 100, 0}));
  EXPECT_TRUE(fails({3, 100}));
  EXPECT_TRUE(fails({kMany + 1}));
  EXPECT_TRUE(fails({0, 5000, 0}));
  EXPECT_TRUE(fails({0, 2000, 0, 2000, 0}));
  EXPECT_TRUE(fails({0, ~std::uint64_t{0}, 0}));
  EXPECT_FALSE(fails({0, 1, kMany - 1}));
  EXPECT_TRUE(fails({0, 1, kMany}));
  EXPECT_TRUE(fails({1, 1, kMany - 1}));
}

}  // namespace
}  // namespace kansoku::stats
