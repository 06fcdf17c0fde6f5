// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "stats/mixture.h"
#include "stats/mixture_data_for_test.h"

namespace kansoku::stats {
namespace {

std::vector<double> permuted(const std::vector<double>& rows, std::size_t d) {
  std::vector<std::size_t> order(rows.size() / d);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng random(3);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.below(i)]);
  std::vector<double> out;
  for (const std::size_t row : order)
    out.insert(out.end(), rows.begin() + static_cast<std::ptrdiff_t>(row * d),
               rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * d));
  return out;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * std::max(1.0, std::abs(expected[i]))) << i;
}

bool all_finite(const Mixture& mixture) {
  const auto finite = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  };
  return finite(mixture.weights) && finite(mixture.means) && finite(mixture.covariances);
}

MixtureFit fit(const std::vector<double>& rows, int d, const MixtureOptions& options) {
  Result<MixtureFit> result = fit_mixture(rows, d, options);
  EXPECT_TRUE(result) << result.error().what;
  return result ? *std::move(result) : MixtureFit{};
}

TEST(MixtureFitTest, OneComponentIsMeanAndCovariance) {
  const std::vector<double> rows{1, 2, 3, 6, 5, 10, 7, 14};  // covariance of x: 5, y = 2x
  MixtureOptions options;
  options.ridge = 0.5;
  options.iterations_max = 3;
  const MixtureFit one = fit(rows, 2, options);
  expect_near(one.mixture.means, {4, 8}, 1e-14);
  expect_near(one.mixture.covariances, {5.5, 10, 10, 20.5}, 1e-14);
  // 2 means + 3 covariances, 4 rows
  EXPECT_NEAR(one.bic, 5 * std::log(4.0) - 2 * one.log_likelihood, 1e-12);
}

TEST(MixtureFitTest, LogLikelihoodNeverFalls) {
  const std::vector<double> rows = three_clusters(1500, 2.5);
  MixtureOptions options;
  options.components = 4;
  options.ridge = 0;
  double before = -std::numeric_limits<double>::infinity();
  for (int iterations = 0; iterations < 40; ++iterations) {
    options.iterations_max = iterations;
    const double now = fit(rows, 2, options).log_likelihood;
    EXPECT_GE(now, before - 1e-9 * std::abs(now)) << iterations;
    before = now;
  }
}

TEST(MixtureFitTest, RecoversKnownComponents) {
  const std::vector<double> rows = three_clusters(30'000);
  MixtureOptions options;
  options.components = 3;
  for (options.seed = 1; options.seed <= 10; ++options.seed) {
    const MixtureFit three = fit(rows, 2, options);
    for (std::size_t cluster = 0; cluster < 3; ++cluster) {
      const auto x = static_cast<double>(cluster) * 10;
      std::size_t k = 0;
      while (k < 2 && std::abs(three.mixture.means[2 * k] - x) > 1)
        ++k;
      EXPECT_NEAR(three.mixture.weights[k], 1.0 / 3, 1e-3);
      EXPECT_NEAR(three.mixture.means[2 * k], x, 0.05);
      EXPECT_NEAR(three.mixture.means[2 * k + 1], x * x / 10, 0.05);
      const double* covariance = three.mixture.covariances.data() + 4 * k;
      EXPECT_NEAR(covariance[0], 1, 0.05);
      EXPECT_NEAR(covariance[1], 0.5, 0.05);
      EXPECT_EQ(covariance[1], covariance[2]);
      EXPECT_NEAR(covariance[3], 1.25, 0.05);
    }
  }
}

TEST(MixtureFitTest, BicPrefersTheTrueNumber) {
  const std::vector<double> rows = three_clusters(3000);
  std::vector<double> bic;
  for (int components = 1; components <= 5; ++components) {
    MixtureOptions options;
    options.components = components;
    options.starts = 2;
    bic.push_back(fit(rows, 2, options).bic);
  }
  EXPECT_EQ(std::min_element(bic.begin(), bic.end()) - bic.begin(), 2);
}

TEST(MixtureFitTest, QuantileStartInOneDimension) {
  const std::vector<double> rows{4, 1, 3, 2};  // sd^2 = 1.25
  MixtureOptions options;
  options.components = 2;
  options.start = MixtureOptions::Start::kQuantiles;
  options.iterations_max = 0;
  options.ridge = 0.01;
  const MixtureFit start = fit(rows, 1, options);
  expect_near(start.mixture.weights, {0.5, 0.5}, 1e-15);
  expect_near(start.mixture.means, {1.75, 3.25}, 1e-15);
  expect_near(start.mixture.covariances, {1.25 / 4 + 0.01, 1.25 / 4 + 0.01}, 1e-15);
  EXPECT_EQ(start.iterations, 0);
  const auto refused = fit_mixture(rows, 2, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

TEST(MixtureFitTest, ToleranceStopsEarlyAtTheSameAnswer) {
  const std::vector<double> rows = three_clusters(3000);
  MixtureOptions options;
  options.components = 3;
  const MixtureFit all = fit(rows, 2, options);
  EXPECT_EQ(all.iterations, 150);
  options.tolerance = 1e-9;
  const MixtureFit early = fit(rows, 2, options);
  EXPECT_LT(early.iterations, 50);
  EXPECT_GE(early.iterations, 2);
  EXPECT_NEAR(early.log_likelihood, all.log_likelihood, 1e-3);
  // The log-likelihood belongs to the mixture that is returned, not to the one before.
  const auto density = MixtureDensity::make(early.mixture);
  ASSERT_TRUE(density);
  std::vector<double> out(rows.size() / 2);
  density->log_density(rows, out);
  EXPECT_NEAR(std::accumulate(out.begin(), out.end(), 0.0), early.log_likelihood,
              1e-12 * std::abs(early.log_likelihood));
}

TEST(MixtureFitTest, LogLikelihoodIsThatOfTheReturnedMixture) {
  const std::vector<double> rows = three_clusters(3000, 2);
  MixtureOptions options;
  options.components = 3;
  options.tolerance = 1e-3;  // stops while a step still changes it
  const MixtureFit early = fit(rows, 2, options);
  EXPECT_LT(early.iterations, 150);
  const auto density = MixtureDensity::make(early.mixture);
  ASSERT_TRUE(density);
  std::vector<double> out(rows.size() / 2);
  density->log_density(rows, out);
  EXPECT_NEAR(std::accumulate(out.begin(), out.end(), 0.0), early.log_likelihood,
              1e-11 * std::abs(early.log_likelihood));
}

TEST(MixtureFitTest, StartsAtTheMeansOfClusters) {
  MixtureOptions options;
  options.components = 3;
  options.iterations_max = 0;
  MixtureFit start = fit(three_clusters(3000), 2, options);
  std::vector<double> x{start.mixture.means[0], start.mixture.means[2], start.mixture.means[4]};
  std::sort(x.begin(), x.end());
  for (std::size_t k = 0; k < 3; ++k)
    EXPECT_NEAR(x[k], 10 * static_cast<double>(k), 0.15);  // a picked row is off by about 1
}

TEST(MixtureFitTest, OrderOfRowsWithEqualFirstFeaturesDoesNotMatter) {
  std::vector<double> rows = three_clusters(900, 2);
  for (std::size_t i = 0; i < rows.size(); i += 2)
    rows[i] = std::floor(rows[i]);
  MixtureOptions options;
  options.components = 6;
  options.iterations_max = 0;
  const MixtureFit one = fit(rows, 2, options);
  const MixtureFit other = fit(permuted(rows, 2), 2, options);
  EXPECT_EQ(one.mixture.means, other.mixture.means);
}

TEST(MixtureFitTest, MoreStartsAreNoWorseAndTheSeedDecides) {
  const std::vector<double> rows = three_clusters(600, 2);
  MixtureOptions options;
  options.components = 6;
  options.iterations_max = 20;
  double best = -std::numeric_limits<double>::infinity();
  bool differ = false;
  for (options.seed = 1; options.seed <= 4; ++options.seed) {
    const double one = fit(rows, 2, options).log_likelihood;
    differ = differ || (options.seed > 1 && one != best);
    best = std::max(best, one);
  }
  EXPECT_TRUE(differ);
  options.seed = 1;
  options.starts = 4;
  const MixtureFit four = fit(rows, 2, options);
  EXPECT_EQ(four.log_likelihood, best);
  const MixtureFit again = fit(rows, 2, options);
  EXPECT_EQ(four.mixture.means, again.mixture.means);
  EXPECT_EQ(four.mixture.covariances, again.mixture.covariances);
}

TEST(MixtureFitTest, OrderOfRowsDoesNotMatter) {
  for (const double distance : {10.0, 2.0}) {
    const std::vector<double> rows = three_clusters(3000, distance);
    MixtureOptions options;
    options.components = 3;
    const MixtureFit one = fit(rows, 2, options);
    const MixtureFit other = fit(permuted(rows, 2), 2, options);
    EXPECT_NEAR(one.log_likelihood, other.log_likelihood, 1e-9 * std::abs(one.log_likelihood));
    expect_near(other.mixture.weights, one.mixture.weights, 1e-9);
    expect_near(other.mixture.means, one.mixture.means, 1e-9);
    expect_near(other.mixture.covariances, one.mixture.covariances, 1e-9);
  }
}

TEST(MixtureFitTest, ScalesOfFeaturesDoNotMatter) {
  const std::vector<double> rows = three_clusters(3000);
  std::vector<double> scaled = rows;
  for (std::size_t i = 0; i < rows.size(); ++i)
    scaled[i] *= i % 2 == 0 ? 1e6 : 1e-6;
  MixtureOptions options;
  options.components = 3;
  options.ridge = 0;
  options.iterations_max = 30;
  const MixtureFit one = fit(rows, 2, options);
  MixtureFit other = fit(scaled, 2, options);
  EXPECT_NEAR(one.log_likelihood, other.log_likelihood, 1e-9 * std::abs(one.log_likelihood));
  for (std::size_t k = 0; k < 3; ++k) {
    other.mixture.means[2 * k] *= 1e-6;
    other.mixture.means[2 * k + 1] *= 1e6;
    other.mixture.covariances[4 * k] *= 1e-12;
    other.mixture.covariances[4 * k + 3] *= 1e12;
  }
  expect_near(other.mixture.means, one.mixture.means, 1e-9);
  expect_near(other.mixture.covariances, one.mixture.covariances, 1e-9);
}

TEST(MixtureFitTest, FarFromTheOriginLosesNoDigits) {
  // One step from a start 1e8 standard deviations away: moments about the old mean alone would
  // leave nothing of the covariance.
  std::vector<double> rows = three_clusters(999);
  for (double& value : rows)
    value += 1e8;
  MixtureOptions options;
  options.iterations_max = 1;
  options.ridge = 0;
  const auto far = refine_mixture(rows, {2, {1}, {0, 0}, {1, 0, 0, 1}}, options);
  ASSERT_TRUE(far) << far.error().what;
  const auto near = refine_mixture(three_clusters(999), {2, {1}, {5, 5}, {1, 0, 0, 1}}, options);
  ASSERT_TRUE(near);
  expect_near(far->mixture.covariances, near->mixture.covariances, 1e-7);
}

// --- awkward data

TEST(MixtureFitTest, ALostComponentIsMovedToTheRowWithTheLeastDensity) {
  std::vector<double> rows;
  rows.reserve(300);
  RandomStream random(9, "lost");
  for (int i = 0; i < 200; ++i)
    rows.push_back(gaussian(random));
  for (int i = 0; i < 50; ++i)
    rows.push_back(30 + gaussian(random));
  rows.push_back(33.9);
  // The second component is so far away that no row gives it any weight.
  const Mixture start{1, {0.5, 0.5}, {0, 1e6}, {1, 1}};
  MixtureOptions options;
  options.iterations_max = 1;
  const auto moved = refine_mixture(rows, start, options);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->mixture.means[1], *std::max_element(rows.begin(), rows.end()));
  EXPECT_NEAR(moved->mixture.weights[1], 1.0 / 252, 1e-12);
  EXPECT_NEAR(moved->mixture.weights[0] + moved->mixture.weights[1], 1, 1e-12);
  options.iterations_max = 100;
  const auto settled = refine_mixture(rows, start, options);
  ASSERT_TRUE(settled);
  EXPECT_NEAR(settled->mixture.weights[1], 51.0 / 251, 1e-6);
  EXPECT_NEAR(settled->mixture.means[0], 0, 0.2);
}

TEST(MixtureFitTest, TwoLostComponentsAreBothMoved) {
  std::vector<double> rows;
  rows.reserve(300);
  RandomStream random(9, "lost");
  for (int i = 0; i < 300; ++i)
    rows.push_back(gaussian(random) + 40 * (i % 3));
  const Mixture start{1, {0.4, 0.3, 0.3}, {0, 1e6, -1e6}, {1, 1, 1}};
  MixtureOptions options;
  options.iterations_max = 200;
  const auto fitted = refine_mixture(rows, start, options);
  ASSERT_TRUE(fitted);
  std::vector<double> means = fitted->mixture.means;
  std::sort(means.begin(), means.end());
  for (std::size_t k = 0; k < 3; ++k)  // means of 100 rows
    EXPECT_NEAR(means[k], 40 * static_cast<double>(k), 0.4);
}

TEST(MixtureFitTest, SingularDataStaysFinite) {
  std::vector<double> rows;
  RandomStream random(4, "singular");
  for (int i = 0; i < 500; ++i) {
    const double x = gaussian(random);
    rows.insert(rows.end(), {x, 2 * x + 1, 7});  // rank 1 and a constant
  }
  for (const double scale : {1.0, 1e6, 1e-3}) {
    std::vector<double> scaled = rows;
    for (double& value : scaled)
      value *= scale;
    MixtureOptions options;
    options.components = 3;
    const MixtureFit fitted = fit(scaled, 3, options);
    EXPECT_TRUE(all_finite(fitted.mixture));
    EXPECT_TRUE(std::isfinite(fitted.log_likelihood));
    EXPECT_TRUE(MixtureDensity::make(fitted.mixture));
  }
  MixtureOptions options;
  options.ridge = 0;
  const auto refused = fit_mixture(rows, 3, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
  EXPECT_NE(refused.error().hint.find("ridge"), std::string::npos);
}

TEST(MixtureFitTest, ACovarianceThatCannotBeMendedStaysAsItWas) {
  const std::vector<double> rows{1, 5, 2, 5, 4, 5, 7, 5};  // the second feature is constant
  MixtureOptions options;
  options.ridge = 0;
  options.iterations_max = 5;
  const auto fitted = refine_mixture(rows, {2, {1}, {0, 5}, {2, 0.5, 0.5, 3}}, options);
  ASSERT_TRUE(fitted) << fitted.error().what;
  EXPECT_EQ(fitted->mixture.means, (std::vector<double>{3.5, 5}));
  EXPECT_EQ(fitted->mixture.covariances, (std::vector<double>{2, 0.5, 0.5, 3}));
}

TEST(MixtureFitTest, EqualRows) {
  const std::vector<double> rows(800, 3.5);
  for (const int components : {1, 3}) {
    MixtureOptions options;
    options.components = components;
    const MixtureFit fitted = fit(rows, 2, options);
    for (const double value : fitted.mixture.means)
      EXPECT_DOUBLE_EQ(value, 3.5);
    EXPECT_NEAR(fitted.log_likelihood, 400 * (-std::log(2 * std::numbers::pi) - std::log(1e-6)),
                1e-6);
  }
  MixtureOptions options;
  options.components = 3;
  options.iterations_max = 0;  // EM would move a component that starts at NaN
  EXPECT_EQ(fit(rows, 2, options).mixture.means, std::vector<double>(6, 3.5));
  options.iterations_max = 10;
  options.start = MixtureOptions::Start::kQuantiles;
  options.components = 5;
  EXPECT_TRUE(all_finite(fit(rows, 1, options).mixture));
}

TEST(MixtureFitTest, AsManyRowsAsComponents) {
  const std::vector<double> rows{1, 5, 20};
  MixtureOptions options;
  options.components = 3;
  options.ridge = 1e-4;
  const MixtureFit fitted = fit(rows, 1, options);
  EXPECT_TRUE(all_finite(fitted.mixture));
  options.components = 4;
  const auto refused = fit_mixture(rows, 1, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kLimit);
}

TEST(MixtureFitTest, Limits) {
  const std::vector<double> rows(514'000, 1.0);
  MixtureOptions options;
  options.iterations_max = 0;
  EXPECT_EQ(fit_mixture(rows, 257, options).error().code, Code::kLimit);
  EXPECT_EQ(fit_mixture(rows, 0, options).error().code, Code::kLimit);
  options.components = 1025;
  EXPECT_EQ(fit_mixture(rows, 1, options).error().code, Code::kLimit);
  options.components = 0;
  EXPECT_EQ(fit_mixture(rows, 1, options).error().code, Code::kLimit);
  EXPECT_EQ(fit_mixture({}, 1, MixtureOptions{}).error().code, Code::kLimit);
  options.components = 1024;
  EXPECT_TRUE(fit_mixture(std::span(rows).first(2048), 1, options));
  options.components = 1;
  EXPECT_TRUE(fit_mixture(std::span(rows).first(76'800), 256, options));
}

TEST(MixtureFitTest, ValuesThatAreNotFiniteAreRefused) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    std::vector<double> rows = three_clusters(30);
    rows[2 * 17 + 1] = bad;
    const auto refused = fit_mixture(rows, 2, MixtureOptions{});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kCorrupt);
    EXPECT_EQ(refused.error().what, "fit mixture: row 17, feature 1 is not finite");
    EXPECT_FALSE(refine_mixture(rows, {2, {1}, {0, 0}, {1, 0, 0, 1}}, MixtureOptions{}));
  }
  MixtureOptions options;
  options.ridge = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(fit_mixture(three_clusters(30), 2, options).error().code, Code::kCorrupt);
  options.ridge = -1e-9;
  EXPECT_EQ(fit_mixture(three_clusters(30), 2, options).error().code, Code::kCorrupt);
  // Finite, but their squares are not.
  const std::vector<double> huge{0, -1e300, 5e299, 0};
  EXPECT_EQ(fit_mixture(huge, 1, MixtureOptions{}).error().what,
            "fit mixture: row 1, feature 0 is over 1e140");
  const std::vector<double> large{1e140, -1e140, 5e139, 0};
  EXPECT_TRUE(all_finite(fit(large, 1, MixtureOptions{}).mixture));
}

}  // namespace
}  // namespace kansoku::stats
