// SPDX-License-Identifier: Apache-2.0
#include "stats/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "stats/mixture_data_for_test.h"

namespace kansoku::stats {
namespace {

// --- density

TEST(MixtureDensity, HandComputed) {
  // Density of N((1,2), [[4,2],[2,3]]) at (3,3): determinant 8, inverse [[3,-2],[-2,4]] / 8,
  // offset (2,1): (12 - 8 + 4) / 8 = 1.
  Mixture mixture{2, {0.25, 0.75}, {1, 2, 0, 0}, {4, 2, 2, 3, 1, 0, 0, 1}};
  const auto density = MixtureDensity::make(mixture);
  ASSERT_TRUE(density);
  const std::vector<double> row{3, 3};
  std::vector<double> terms(2);
  density->component_log_densities(row, terms);
  const double two_pi = 2 * std::numbers::pi;
  const double first = std::log(0.25) - std::log(two_pi) - 0.5 * std::log(8.0) - 0.5;
  const double second = std::log(0.75) - std::log(two_pi) - 9;
  EXPECT_NEAR(terms[0], first, 1e-13);
  EXPECT_NEAR(terms[1], second, 1e-13);
  std::vector<double> out(1);
  density->log_density(row, out);
  EXPECT_NEAR(out[0], std::log(std::exp(first) + std::exp(second)), 1e-13);
}

TEST(MixtureDensity, AgreesWithItsComponentsForEveryCount) {
  for (int d = 1; d <= 11; ++d) {
    const auto size = static_cast<std::size_t>(d);
    RandomStream random(5, "density");
    Mixture mixture{d, {0.2, 0.3, 0.5}, {}, {}};
    for (std::size_t i = 0; i < 3 * size; ++i)
      mixture.means.push_back(3 * gaussian(random));
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t i = 0; i < size * size; ++i)
        mixture.covariances.push_back(i % (size + 1) == 0 ? 1.0 + static_cast<double>(i) : 0.1);
    }
    const auto density = MixtureDensity::make(mixture);
    ASSERT_TRUE(density);
    for (const std::size_t count : std::vector<std::size_t>{1, 15, 16, 17, 255, 256, 257, 600}) {
      std::vector<double> rows(count * size);
      std::generate(rows.begin(), rows.end(), [&] { return 3 * gaussian(random); });
      std::vector<double> out(count);
      density->log_density(rows, out);
      std::vector<double> terms(3);
      for (std::size_t i = 0; i < count; i += 7) {
        density->component_log_densities(std::span(rows).subspan(i * size, size), terms);
        const double highest = *std::max_element(terms.begin(), terms.end());
        double sum = 0;
        for (const double term : terms)
          sum += std::exp(term - highest);
        ASSERT_NEAR(out[i], highest + std::log(sum), 1e-12 * std::abs(highest)) << d << ' ' << i;
      }
    }
  }
}

TEST(MixtureDensity, IntegratesToOne) {
  const auto density = MixtureDensity::make({1, {0.4, 0.6}, {-1, 3}, {0.25, 4}});
  ASSERT_TRUE(density);
  std::vector<double> points(40'001);
  for (std::size_t i = 0; i < points.size(); ++i)
    points[i] = -20 + 0.001 * static_cast<double>(i);
  std::vector<double> out(points.size());
  density->log_density(points, out);
  double sum = 0;
  for (const double value : out)
    sum += std::exp(value) * 0.001;
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(MixtureDensity, FarRowsAndBadRowsAreNeverNan) {
  const auto density =
      MixtureDensity::make({2, {0.5, 0.5}, {0, 0, 1, 1}, {1, 0.5, 0.5, 1, 1, 0, 0, 1}});
  ASSERT_TRUE(density);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<double> rows{1e3, 0, 1e200, -1e200, nan, 0, infinite, infinite, 0, -infinite};
  std::vector<double> out(5);
  density->log_density(rows, out);
  for (const double value : out)
    EXPECT_TRUE(std::isfinite(value)) << value;
  EXPECT_NEAR(out[0], -0.5 * (1e3 - 1) * (1e3 - 1), 1e4);
  EXPECT_LT(out[1], -1e299);
  EXPECT_LT(out[2], -1e299);
}

TEST(MixtureDensity, AComponentOfWeightZeroHasAFiniteLog) {
  const auto density = MixtureDensity::make({1, {0, 1}, {0, 0}, {1, 1}});
  ASSERT_TRUE(density);
  std::vector<double> terms(2);
  density->component_log_densities(std::vector<double>{0}, terms);
  EXPECT_TRUE(std::isfinite(terms[0]));
  EXPECT_LT(terms[0], -1e299);
  EXPECT_NEAR(terms[1], -0.5 * std::log(2 * std::numbers::pi), 1e-15);
}

TEST(MixtureDensity, NotPositiveDefiniteIsCorruptAndNamed) {
  const auto density =
      MixtureDensity::make({2, {0.5, 0.5}, {0, 0, 1, 1}, {1, 0, 0, 1, 1, 2, 2, 1}});
  ASSERT_FALSE(density);
  EXPECT_EQ(density.error().code, Code::kCorrupt);
  EXPECT_NE(density.error().what.find("component 1"), std::string::npos);
}

TEST(MixtureDensity, DrawHasTheMomentsOfTheMixture) {
  // Three dimensions: an odd number, so one of a pair of normals is left over.
  const Mixture mixture{3,
                        {0.3, 0.7},
                        {0, 0, 0, 5, -5, 1},
                        {1, 0.5, 0.2, 0.5, 2, 0, 0.2, 0, 1, 4, -1, 0, -1, 1, 0.3, 0, 0.3, 1}};
  const auto density = MixtureDensity::make(mixture);
  ASSERT_TRUE(density);
  constexpr std::size_t kDraws = 200'000;
  RandomStream random(1, "draw");
  std::vector<double> mean(3);
  std::vector<double> second(9);
  std::vector<double> row(3);
  for (std::size_t i = 0; i < kDraws; ++i) {
    density->draw(random, row);
    for (std::size_t a = 0; a < 3; ++a) {
      mean[a] += row[a] / kDraws;
      for (std::size_t b = 0; b < 3; ++b)
        second[a * 3 + b] += row[a] * row[b] / kDraws;
    }
  }
  for (std::size_t a = 0; a < 3; ++a) {
    const double expected = 0.3 * mixture.means[a] + 0.7 * mixture.means[3 + a];
    EXPECT_NEAR(mean[a], expected, 0.03);
    for (std::size_t b = 0; b < 3; ++b) {
      const std::size_t ab = a * 3 + b;
      const double moment =
          0.3 * (mixture.covariances[ab] + mixture.means[a] * mixture.means[b]) +
          0.7 * (mixture.covariances[9 + ab] + mixture.means[3 + a] * mixture.means[3 + b]);
      EXPECT_NEAR(second[ab], moment, 0.15);
    }
  }
}

TEST(MixtureDensity, DrawOfComponentsFollowsWeights) {
  const auto density = MixtureDensity::make({1, {0.1, 0, 0.9}, {-100, 0, 100}, {1, 1, 1}});
  ASSERT_TRUE(density);
  RandomStream random(2, "draw");
  int low = 0;
  std::vector<double> row(1);
  for (int i = 0; i < 100'000; ++i) {
    density->draw(random, row);
    ASSERT_GT(std::abs(row[0]), 50);  // the component of weight 0 never comes
    low += row[0] < 0 ? 1 : 0;
  }
  EXPECT_NEAR(low, 10'000, 4 * 95);  // sd of the count: 95
}

// --- JSON

TEST(MixtureJson, RoundTripKeepsEveryBit) {
  MixtureOptions options;
  options.components = 3;
  const auto fitted = fit_mixture(three_clusters(300), 2, options);
  ASSERT_TRUE(fitted);
  const Mixture& mixture = fitted->mixture;
  const auto parsed = Json::parse(mixture.to_json().dump());
  ASSERT_TRUE(parsed);
  const auto again = Mixture::from_json(*parsed);
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(again->dimensions, 2);
  EXPECT_EQ(again->components(), 3);
  EXPECT_EQ(again->weights, mixture.weights);
  EXPECT_EQ(again->means, mixture.means);
  EXPECT_EQ(again->covariances, mixture.covariances);
}

TEST(MixtureJson, EveryErrorIsCorruptAndSaysWhere) {
  struct Case {
    const char* text;
    const char* what;
  };
  const std::vector<Case> cases{
      {"7", "\"dimensions\""},
      {R"({"dimensions":0,"weights":[1],"means":[],"covariances":[]})", "\"dimensions\""},
      {R"({"dimensions":257,"weights":[1],"means":[],"covariances":[]})", "\"dimensions\""},
      {R"({"dimensions":1,"weights":[],"means":[],"covariances":[]})", "\"weights\""},
      {R"({"dimensions":1,"weights":{"a":1},"means":[0],"covariances":[1]})", "\"weights\""},
      {R"({"dimensions":1,"weights":[1],"means":[0,1],"covariances":[1]})", "\"means\""},
      {R"({"dimensions":1,"weights":[1],"covariances":[1]})", "\"means\""},
      {R"({"dimensions":1,"weights":[1],"means":[0],"covariances":[1,2]})", "\"covariances\""},
      {R"({"dimensions":1,"weights":[1],"means":["0"],"covariances":[1]})", "\"means\"[0]"},
      {R"({"dimensions":1,"weights":[null],"means":[0],"covariances":[1]})", "\"weights\"[0]"},
      {R"({"dimensions":1,"weights":[0.5,0.4],"means":[0,0],"covariances":[1,1]})", "sum to 0.9"},
      {R"({"dimensions":1,"weights":[1.5,-0.5],"means":[0,0],"covariances":[1,1]})",
       "\"weights\"[1] is negative"},
      {R"({"dimensions":1,"weights":[0.5,0.5],"means":[0,0],"covariances":[1,0]})", "component 1"},
      {R"({"dimensions":2,"weights":[1],"means":[0,0],"covariances":[1,2,2,1]})",
       "component 0 is not positive definite"},
      {R"({"dimensions":2,"weights":[1],"means":[0,0],"covariances":[1,0.5,0.4,1]})",
       "component 0 is not symmetric"},
  };
  for (const Case& one : cases) {
    const auto json = Json::parse(one.text);
    ASSERT_TRUE(json) << one.text;
    const auto refused = Mixture::from_json(*json);
    ASSERT_FALSE(refused) << one.text;
    EXPECT_EQ(refused.error().code, Code::kCorrupt);
    EXPECT_NE(refused.error().what.find(one.what), std::string::npos) << refused.error().what;
  }
  EXPECT_TRUE(Mixture::from_json(
      *Json::parse(R"({"dimensions":1,"weights":[1],"means":[0],"covariances":[1]})")));
}

}  // namespace
}  // namespace kansoku::stats
