// SPDX-License-Identifier: Apache-2.0
#include "stats/tail.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "common/rng.h"
#include "stats/internal/pareto.h"

namespace kansoku::stats {
namespace {

using internal::Pareto;

constexpr double kTailInfinity = std::numeric_limits<double>::infinity();

struct Entry {
  double shape, argument, value;
};

// The tables are from tests/stats/tail_reference.py.
TEST(Pareto, SurvivalIsScipys) {
  constexpr std::array<Entry, 20> kTable{{
      {-0.4, 0.01, 0.99334666073876388}, {-0.4, 1, 0.46052537541288319},
      {-0.4, 3, 0.017888543819998319},   {-0.4, 40, 0},
      {-0.1, 0.01, 0.9933532978192261},  {-0.1, 1, 0.50161182525601455},
      {-0.1, 3, 0.1073741824},           {-0.1, 40, 0},
      {0, 0.01, 0.99335550625503444},    {0, 1, 0.51341711903259202},
      {0, 3, 0.1353352832366127},        {0, 40, 2.6230937696692948e-12},
      {0.2, 0.01, 0.99335991725774186},  {0.2, 1, 0.5348249858964671},
      {0.2, 3, 0.18593443208187063},     {0.2, 40, 9.8138240837704788e-05},
      {0.9, 0.01, 0.99337529444971229},  {0.9, 1, 0.59319846598730308},
      {0.9, 3, 0.31853542851006189},     {0.9, 40, 0.027972631470622508},
  }};
  for (const Entry& entry : kTable) {
    const double survival = internal::pareto_survival({entry.shape, 1.5}, entry.argument);
    EXPECT_NEAR(survival, entry.value, 1e-13 * entry.value) << entry.shape << ' ' << entry.argument;
  }
}

TEST(Pareto, ExcessIsScipys) {
  constexpr std::array<Entry, 15> kTable{{
      {-0.4, 0.5, 0.90803143779300322},
      {-0.4, 0.001, 3.5133909958199272},
      {-0.4, 1e-09, 3.7490580425881839},
      {-0.1, 0.5, 1.0045051269478886},
      {-0.1, 0.001, 7.4821914955909161},
      {-0.1, 1e-09, 13.111611882308747},
      {0, 0.5, 1.0397207708399179},
      {0, 0.001, 10.361632918473205},
      {0, 1e-09, 31.084898755419616},
      {0.2, 0.5, 1.1152376624777625},
      {0.2, 0.001, 22.358037791512295},
      {0.2, 1e-09, 465.71800836014472},
      {0.9, 0.5, 1.4434433051226914},
      {0.9, 0.001, 833.64538937878706},
      {0.9, 1e-09, 209820900.29902804},
  }};
  for (const Entry& entry : kTable) {
    const double excess = internal::pareto_excess({entry.shape, 1.5}, entry.argument);
    EXPECT_NEAR(excess, entry.value, 1e-12 * entry.value) << entry.shape << ' ' << entry.argument;
  }
}

TEST(Pareto, IsContinuousAtShapeZero) {
  for (const double shape : {-1e-8, -1e-10, 1e-10, 1e-8}) {
    EXPECT_NEAR(internal::pareto_survival({shape, 2}, 6), std::exp(-3.0), 1e-7 * std::exp(-3.0));
    const std::vector<double> two{1, 5};
    EXPECT_NEAR(internal::pareto_log_likelihood({shape, 2}, two), -2 * std::log(2.0) - 3, 1e-6);
  }
}

/// Quantiles in equal steps with a wobble, as in tail_reference.py.
std::vector<double> wobbling(double shape) {
  std::vector<double> values;
  for (int i = 0; i < 200; ++i) {
    const double share = (i + 0.5) / 200 + 0.002 * std::sin(1.7 * i);
    values.push_back(10 + internal::pareto_excess({shape, 2}, std::clamp(share, 1e-4, 1 - 1e-4)));
  }
  return values;
}

TEST(TailTest, MaximumLikelihoodIsThatOfADirectSearch) {
  struct Reference {
    double from, shape, scale, log_likelihood;
  };
  constexpr std::array<Reference, 3> kTable{
      {{-0.3, -0.315369011998, 2.02716195588, -278.253549817315},
       {0, -0.0128504404284, 2.02089413602, -338.137922770025},
       {0.4, 0.389545719404, 2.01424274406, -417.957803280349}}};
  for (const Reference& reference : kTable) {
    const Result<Tail> tail = Tail::fit(wobbling(reference.from), 10);
    ASSERT_TRUE(tail) << tail.error().what;
    EXPECT_EQ(tail->method(), Tail::Method::kLikelihood);
    EXPECT_NEAR(tail->shape(), reference.shape, 1e-5);
    EXPECT_NEAR(tail->scale(), reference.scale, 1e-5);
    EXPECT_NEAR(tail->log_likelihood(), reference.log_likelihood, 1e-8);
  }
}

std::vector<double> sample(const Pareto& pareto, std::size_t count, std::uint64_t seed) {
  RandomStream random(seed, "tail test");
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(internal::pareto_excess(pareto, random.uniform()));
  return values;
}

TEST(TailTest, RecoversTheShapeAndExtrapolates) {
  for (const double shape : {-0.3, 0.0, 0.3, 1.2}) {
    SCOPED_TRACE(shape);
    const std::vector<double> values = sample({shape, 3}, 100'000, 5);
    const Result<Tail> tail = Tail::fit_above_share(values, 0.9);
    ASSERT_TRUE(tail) << tail.error().what;
    EXPECT_NEAR(tail->exceeding_share(), 0.1, 1e-4);
    EXPECT_NEAR(tail->shape(), shape, 0.05);  // about 4 standard errors
    const double exact = internal::pareto_excess({shape, 3}, 1e-4);
    const TailInterval level = tail->level_interval(1e-4);
    EXPECT_GT(exact, level.low);
    EXPECT_LT(exact, level.high);
    const TailInterval probability = tail->probability_interval(exact);
    EXPECT_GT(1e-4, probability.low);
    EXPECT_LT(1e-4, probability.high);
    EXPECT_NEAR(tail->exceedance_probability(tail->level(1e-6)), 1e-6, 1e-15);
  }
}

TEST(TailTest, UnitsOnlyScaleTheResult) {
  const std::vector<double> values = sample({0.2, 1}, 400, 9);
  std::vector<double> scaled;
  for (const double value : values)
    scaled.push_back(1e-6 * value + 7);
  std::reverse(scaled.begin(), scaled.end());
  const Result<Tail> a = Tail::fit(values, 0.5), b = Tail::fit(scaled, 1e-6 * 0.5 + 7);
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(a->shape(), b->shape(), 1e-6);
  EXPECT_NEAR(a->scale() * 1e-6, b->scale(), 1e-12);
  const TailInterval left = a->level_interval(1e-3), right = b->level_interval(1e-3);
  EXPECT_NEAR(left.low, (right.low - 7) * 1e6, 1e-3);
  EXPECT_NEAR(left.high, (right.high - 7) * 1e6, 1e-3);
}

// --- intervals

struct Coverage {
  double level, probability;
};

/// Shares of 200 samples of 1,000 values whose intervals contain the truth.
Coverage coverage(double shape, double probability) {
  constexpr int kSamples = 200;
  const double exact = internal::pareto_excess({shape, 1}, probability);
  Coverage inside{};
  for (int i = 0; i < kSamples; ++i) {
    const std::vector<double> values =
        sample({shape, 1}, 1000, 1000 + static_cast<std::uint64_t>(i));
    const Result<Tail> tail = Tail::fit_above_share(values, 0.9);
    EXPECT_TRUE(tail) << tail.error().what;
    if (!tail) return {};
    const TailInterval level = tail->level_interval(probability);
    const TailInterval likely = tail->probability_interval(exact);
    EXPECT_LE(level.low, level.estimate);
    EXPECT_LE(level.estimate, level.high);
    EXPECT_LE(likely.low, likely.estimate);
    EXPECT_LE(likely.estimate, likely.high);
    inside.level += (level.low <= exact && exact <= level.high) ? 1.0 / kSamples : 0;
    inside.probability +=
        (likely.low <= probability && probability <= likely.high) ? 1.0 / kSamples : 0;
  }
  return inside;
}

TEST(TailTest, IntervalsCoverTheTruthAsOftenAsTheySay) {
  for (const double shape : {-0.2, 0.0, 0.3}) {
    for (const double probability : {0.02, 1e-4}) {
      const Coverage inside = coverage(shape, probability);
      RecordProperty(fmt::format("of_level_{}_{}", shape, probability),
                     fmt::format("{}", inside.level));
      RecordProperty(fmt::format("of_probability_{}_{}", shape, probability),
                     fmt::format("{}", inside.probability));
      // 200 samples: three standard errors of 95 % are 4.6 %; 100 excesses are few for a profile.
      EXPECT_GE(inside.level, 0.90) << shape << ' ' << probability;
      EXPECT_GE(inside.probability, 0.90) << shape << ' ' << probability;
      EXPECT_LE(inside.level, 0.995) << shape << ' ' << probability;
      EXPECT_LE(inside.probability, 0.995) << shape << ' ' << probability;
    }
  }
}

TEST(TailTest, AtTheThresholdOnlyTheShareIsUncertain) {
  const Result<Tail> tail = Tail::fit_above_share(sample({0, 1}, 1000, 3), 0.9);
  ASSERT_TRUE(tail);
  const TailInterval inside = tail->probability_interval(tail->threshold() - 1);
  EXPECT_DOUBLE_EQ(inside.estimate, 0.1);
  const double error = 1.959963984540054 * std::sqrt(0.9 / 100);
  EXPECT_NEAR(inside.low, 0.1 * std::exp(-error), 1e-12);
  EXPECT_NEAR(inside.high, 0.1 * std::exp(error), 1e-12);
  EXPECT_EQ(tail->level(0.5), tail->threshold());
  const TailInterval near = tail->probability_interval(tail->threshold() + 1e-9);
  EXPECT_NEAR(near.low, inside.low, 1e-4);
  EXPECT_NEAR(near.high, inside.high, 1e-4);
}

TEST(TailTest, BeyondTheUpperEnd) {
  const Result<Tail> tail = Tail::fit(sample({-0.4, 1}, 500, 3), 0);
  ASSERT_TRUE(tail);
  const double end = tail->level(0);
  EXPECT_NEAR(end, 2.5, 0.5);
  EXPECT_EQ(tail->exceedance_probability(end + 1), 0);
  const TailInterval beyond = tail->probability_interval(end * 1.05);
  EXPECT_EQ(beyond.low, 0);
  EXPECT_EQ(beyond.estimate, 0);
  EXPECT_GE(beyond.high, 0);
  EXPECT_LT(beyond.high, 0.01);
  const Result<Tail> open = Tail::fit(sample({0.4, 1}, 500, 3), 0);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->level(0), kTailInfinity);
}

// --- awkward data

TEST(TailTest, TiesAreFitted) {
  std::vector<double> values = sample({0.1, 2}, 2000, 4);
  const Result<Tail> exact = Tail::fit(values, 0);
  for (double& value : values)
    value = std::ceil(value * 4) / 4 - 0.125;  // quarters
  const Result<Tail> tied = Tail::fit(values, 0);
  ASSERT_TRUE(exact && tied);
  EXPECT_NEAR(tied->shape(), exact->shape(), 0.05);
  EXPECT_NEAR(tied->level(1e-3), exact->level(1e-3), 0.1 * exact->level(1e-3));
}

TEST(TailTest, WithoutARegularMaximumMomentsAreTaken) {
  // Values that crowd at their upper end: the likelihood has no maximum at a shape over -1.
  std::vector<double> values;
  for (int i = 0; i < 100; ++i)
    values.push_back(1 - 0.01 * std::pow(i / 100.0, 3));
  const Result<Tail> tail = Tail::fit(values, 0);
  ASSERT_TRUE(tail) << tail.error().what;
  EXPECT_EQ(tail->method(), Tail::Method::kMoments);
  EXPECT_LT(tail->shape(), 0);
  EXPECT_GT(tail->scale(), 0);
  EXPECT_GE(tail->level(0), 1);
  const TailInterval level = tail->level_interval(1e-3);
  EXPECT_TRUE(std::isfinite(level.low));
  EXPECT_LE(level.low, level.estimate);
  EXPECT_GE(level.high, level.estimate);
}

TEST(TailTest, TooFewOrEqualExceedancesAreRefused) {
  std::vector<double> values(19, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1 + static_cast<double>(i);
  const Result<Tail> few = Tail::fit(values, 0);
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, Code::kLimit);
  EXPECT_NE(few.error().what.find("19 of 19 values exceed 0, 20 are needed"), std::string::npos);
  values.push_back(30);
  EXPECT_TRUE(Tail::fit(values, 0));
  const Result<Tail> constant = Tail::fit(std::vector<double>(100, 4.0), 3);
  ASSERT_FALSE(constant);
  EXPECT_EQ(constant.error().code, Code::kLimit);
  EXPECT_EQ(Tail::fit_above_share(std::vector<double>(100, 4.0), 0.9).error().code, Code::kLimit);
}

TEST(TailTest, WhatIsNotFiniteIsRefused) {
  std::vector<double> values = sample({0, 1}, 100, 1);
  EXPECT_EQ(Tail::fit(values, std::nan("")).error().code, Code::kCorrupt);
  values[7] = kTailInfinity;
  EXPECT_EQ(Tail::fit(values, 0).error().code, Code::kCorrupt);
  values[7] = std::nan("");
  EXPECT_EQ(Tail::fit(values, 0).error().code, Code::kCorrupt);
  values[7] = 1.7e308;
  EXPECT_EQ(Tail::fit(values, -1.7e308).error().code, Code::kCorrupt);
  for (const double share : {-1.0, 0.0, 1.0, std::nan("")})
    EXPECT_EQ(Tail::fit_above_share(values, share).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::stats
