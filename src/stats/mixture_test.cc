// SPDX-License-Identifier: Apache-2.0
#include "stats/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace kansoku::stats {
namespace {

double gaussian(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// Three correlated clusters in two dimensions, row i from cluster i % 3.
std::vector<double> three_clusters(std::size_t count, double distance = 10) {
  RandomStream random(7, "three clusters");
  std::vector<double> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = gaussian(random);
    const double b = gaussian(random);
    const auto cluster = static_cast<double>(i % 3);
    rows.push_back(distance * cluster + a);
    rows.push_back(distance * cluster * cluster + 0.5 * a + b);
  }
  return rows;
}

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

std::vector<double> numbers(const Json& array) {
  std::vector<double> values;
  for (std::size_t i = 0; i < array.size(); ++i)
    values.push_back(array.at(i).as_double());
  return values;
}

Json reference() {
  std::ifstream file(KANSOKU_SOURCE_DIR "/tests/data/stats/mixture_reference.json");
  std::ostringstream text;
  text << file.rdbuf();
  Result<Json> json = Json::parse(text.str());
  EXPECT_TRUE(json) << json.error().what;
  return json ? *json : Json();
}

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
    for (const std::size_t count : {1, 15, 16, 17, 255, 256, 257, 600}) {
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

// --- against scikit-learn

TEST(MixtureReference, EqualsScikitLearn) {
  const Json sets = reference().at("sets");
  ASSERT_EQ(sets.size(), 5U);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const Json set = sets.at(s);
    SCOPED_TRACE(set.at("name").as_string());
    const std::vector<double> rows = numbers(set.at("rows"));
    const Result<Mixture> start = Mixture::from_json(set.at("start"));
    ASSERT_TRUE(start) << start.error().what;
    const Json fits = set.at("fits");
    ASSERT_EQ(fits.size(), 4U);
    MixtureFit last;
    for (std::size_t i = 0; i < fits.size(); ++i) {
      MixtureOptions options;
      options.iterations_max = static_cast<int>(fits.at(i).at("iterations").as_int());
      options.ridge = set.at("ridge").as_double();
      const Result<MixtureFit> refined = refine_mixture(rows, *start, options);
      ASSERT_TRUE(refined) << refined.error().what;
      const double expected = fits.at(i).at("log_likelihood").as_double();
      EXPECT_NEAR(refined->log_likelihood, expected, 1e-8 * std::abs(expected)) << i;
      EXPECT_EQ(refined->iterations, options.iterations_max);
      last = *refined;
    }
    EXPECT_NEAR(last.bic, set.at("bic").as_double(), 1e-8 * std::abs(last.bic));
    expect_near(last.mixture.weights, numbers(set.at("weights")), 1e-7);
    const std::vector<double> means = numbers(set.at("means"));
    const std::vector<double> covariances = numbers(set.at("covariances"));
    ASSERT_EQ(means.size(), last.mixture.means.size());
    ASSERT_EQ(covariances.size(), last.mixture.covariances.size());
    const auto d = static_cast<std::size_t>(last.mixture.dimensions);
    for (std::size_t i = 0; i < means.size(); ++i) {  // in standard deviations: scales differ
      const double sigma = std::sqrt(covariances[i / d * d * d + i % d * (d + 1)]);
      EXPECT_NEAR(last.mixture.means[i], means[i], 1e-6 * sigma) << i;
    }
    for (std::size_t i = 0; i < covariances.size(); ++i) {
      const double* matrix = covariances.data() + i / (d * d) * d * d;
      const double scale = std::sqrt(matrix[i % (d * d) / d * (d + 1)] * matrix[i % d * (d + 1)]);
      EXPECT_NEAR(last.mixture.covariances[i], covariances[i], 1e-6 * scale) << i;
    }
  }
}

// --- fits

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

TEST(MixtureFitTest, EqualRows) {
  const std::vector<double> rows(2 * 400, 3.5);
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
  const std::vector<double> rows(257 * 2000, 1.0);
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
  EXPECT_TRUE(fit_mixture(std::span(rows).first(256 * 300), 256, options));
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
  // Finite, but their squares are not.
  const std::vector<double> huge{1e300, -1e300, 5e299, 0};
  EXPECT_EQ(fit_mixture(huge, 1, MixtureOptions{}).error().code, Code::kCorrupt);
}

// --- JSON

TEST(MixtureJson, RoundTripKeepsEveryBit) {
  MixtureOptions options;
  options.components = 3;
  const Mixture mixture = fit(three_clusters(300), 2, options).mixture;
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
