// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "stats/cluster_features.h"
#include "stats/mixture_data_for_test.h"

namespace kansoku::stats {
namespace {

constexpr std::size_t kClusterRows = 900;

ClusterFeatures cluster_summary_of(const std::vector<double>& rows, std::size_t clusters) {
  ClusterFeatures features = *ClusterFeatures::make(2, clusters);
  for (std::size_t i = 0; i < rows.size(); i += 2)
    EXPECT_TRUE(features.add(std::span(rows).subspan(i, 2)));
  return features;
}

std::vector<double> rows_of(double distance) {
  std::vector<double> rows = three_clusters(kClusterRows, distance);
  for (double& value : rows)
    value /= distance;
  return rows;
}

TEST(ClusterMixture, OfSingleRowsIsTheEmOfRows) {
  const std::vector<double> rows = rows_of(3);
  const Mixture start{2, {0.5, 0.5}, {0, 0, 2, 3}, {1, 0, 0, 1, 1, 0, 0, 1}};
  MixtureOptions options;
  options.iterations_max = 30;
  const auto exact = refine_mixture(rows, start, options);
  const auto fit = refine_mixture(cluster_summary_of(rows, kClusterRows), start, options);
  ASSERT_TRUE(exact && fit);
  EXPECT_NEAR(fit->log_likelihood, exact->log_likelihood, 1e-9 * std::abs(exact->log_likelihood));
  EXPECT_NEAR(fit->bic, exact->bic, 1e-9 * exact->bic);
  EXPECT_EQ(fit->iterations, exact->iterations);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(fit->mixture.means[i], exact->mixture.means[i], 1e-9);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(fit->mixture.covariances[i], exact->mixture.covariances[i], 1e-9);
}

TEST(ClusterMixture, OneComponentHasTheMomentsOfAllRows) {
  const std::vector<double> rows = rows_of(3);
  const auto exact = fit_mixture(rows, 2, MixtureOptions{});
  const auto fit = fit_mixture(cluster_summary_of(rows, 7), MixtureOptions{});
  ASSERT_TRUE(exact && fit);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(fit->mixture.covariances[i], exact->mixture.covariances[i], 1e-12);
  // With one component the bound is the likelihood itself.
  EXPECT_NEAR(fit->log_likelihood, exact->log_likelihood, 1e-8 * std::abs(exact->log_likelihood));
}

TEST(ClusterMixture, FewClustersGiveTheModes) {
  const std::vector<double> rows = rows_of(8);
  MixtureOptions options;
  options.components = 3;
  options.starts = 5;
  const auto exact = fit_mixture(rows, 2, options);
  const auto fit = fit_mixture(cluster_summary_of(rows, 40), options);
  ASSERT_TRUE(exact && fit);
  EXPECT_LE(fit->log_likelihood, exact->log_likelihood + 1e-6);
  const MixtureDensity a = *MixtureDensity::make(exact->mixture);
  const MixtureDensity b = *MixtureDensity::make(fit->mixture);
  std::vector<double> left(kClusterRows), right(kClusterRows);
  a.log_density(rows, left);
  b.log_density(rows, right);
  double behind = 0;
  for (std::size_t i = 0; i < kClusterRows; ++i)
    behind += (left[i] - right[i]) / kClusterRows;
  EXPECT_LT(behind, 0.01);
}

TEST(ClusterMixture, TheBoundNeverFalls) {
  const ClusterFeatures features = cluster_summary_of(rows_of(3), 60);
  MixtureOptions options;
  options.components = 4;
  double before = -1e300;
  for (int iterations = 0; iterations < 25; ++iterations) {
    options.iterations_max = iterations;
    const auto fit = fit_mixture(features, options);
    ASSERT_TRUE(fit) << fit.error().what;
    EXPECT_GE(fit->log_likelihood, before - 1e-3);  // the ridge takes that much
    before = fit->log_likelihood;
  }
}

TEST(ClusterMixture, ALostComponentIsMoved) {
  const ClusterFeatures features = cluster_summary_of(rows_of(8), 40);
  const Mixture start{2, {0.5, 0.5}, {1, 1, 1e6, 1e6}, {1, 0, 0, 1, 1, 0, 0, 1}};
  MixtureOptions options;
  options.iterations_max = 60;
  const auto fit = refine_mixture(features, start, options);
  ASSERT_TRUE(fit) << fit.error().what;
  EXPECT_LT(std::abs(fit->mixture.means[2]), 10);
  EXPECT_GT(fit->mixture.weights[1], 0.01);
}

TEST(ClusterMixture, EqualRowsNeedTheRidge) {
  ClusterFeatures features = *ClusterFeatures::make(2, 4);
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(features.add(std::vector<double>{3, 4}));
  MixtureOptions options;
  options.components = 2;
  EXPECT_TRUE(fit_mixture(features, options));
  options.ridge = 0;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kCorrupt);
}

TEST(ClusterMixture, Limits) {
  ClusterFeatures features = *ClusterFeatures::make(2, 5);
  MixtureOptions options;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kLimit);
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(features.add(std::vector<double>{1.0 * i, 2.0 * i * i}));
  options.components = 5;
  EXPECT_TRUE(fit_mixture(features, options));
  options.components = 6;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kLimit);
  options.components = 0;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kLimit);
  options.components = 1;
  options.ridge = -1;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kCorrupt);
  options = {};
  options.start = MixtureOptions::Start::kQuantiles;
  EXPECT_EQ(fit_mixture(features, options).error().code, Code::kUnsupported);
  EXPECT_EQ(refine_mixture(features, Mixture{1, {1}, {0}, {1}}, {}).error().code,
            Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::stats
