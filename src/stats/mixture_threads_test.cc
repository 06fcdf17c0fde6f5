// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "stats/mixture.h"
#include "stats/mixture_data_for_test.h"

namespace kansoku::stats {
namespace {

constexpr std::size_t kThreadedRows = 60'001;  // several chunks, the last one not full

void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint64_t>(a[i]), std::bit_cast<std::uint64_t>(b[i])) << i;
}

void expect_same_bits(const MixtureFit& a, const MixtureFit& b) {
  expect_same_bits(a.mixture.weights, b.mixture.weights);
  expect_same_bits(a.mixture.means, b.mixture.means);
  expect_same_bits(a.mixture.covariances, b.mixture.covariances);
  expect_same_bits({a.log_likelihood, a.bic}, {b.log_likelihood, b.bic});
  EXPECT_EQ(a.iterations, b.iterations);
}

/// Fits from a start with every number of threads and expects what one thread gives.
MixtureFit expect_equal_for_threads(const std::vector<double>& rows, const Mixture& start,
                                    MixtureOptions options) {
  options.threads = 1;
  const Result<MixtureFit> one = refine_mixture(rows, start, options);
  EXPECT_TRUE(one) << one.error().what;
  if (!one) return {};
  for (const int threads : {2, 3, 7, 64}) {
    SCOPED_TRACE(threads);
    options.threads = threads;
    const Result<MixtureFit> more = refine_mixture(rows, start, options);
    EXPECT_TRUE(more) << more.error().what;
    if (more) expect_same_bits(*one, *more);
  }
  return *one;
}

TEST(MixtureThreads, AnyNumberGivesTheSameBits) {
  const std::vector<double> rows = three_clusters(kThreadedRows, 4);
  MixtureOptions options;
  options.components = 4;
  options.iterations_max = 6;
  const Result<MixtureFit> one = fit_mixture(rows, 2, options);
  ASSERT_TRUE(one) << one.error().what;
  options.threads = 3;
  const Result<MixtureFit> three = fit_mixture(rows, 2, options);
  ASSERT_TRUE(three) << three.error().what;
  expect_same_bits(*one, *three);
  options.tolerance = 1e-3;
  expect_equal_for_threads(rows, one->mixture, options);
}

TEST(MixtureThreads, MeansThatMoveFarToo) {
  std::vector<double> rows = three_clusters(kThreadedRows, 4);
  for (double& value : rows)
    value += 1e6;  // moments about the start's means lose their digits: they are summed again
  MixtureOptions options;
  options.iterations_max = 2;
  const MixtureFit fit =
      expect_equal_for_threads(rows, Mixture{2, {1}, {0, 0}, {1e12, 0, 0, 1e12}}, options);
  ASSERT_EQ(fit.mixture.covariances.size(), 4U);
  EXPECT_NEAR(fit.mixture.means[0], 1e6 + 4, 0.1);
}

TEST(MixtureThreads, ComponentsThatLoseAllWeightToo) {
  std::vector<double> rows = three_clusters(kThreadedRows, 4);
  const std::size_t far = 2 * 41'111;
  rows[far] = -50;
  rows[far + 1] = 50;
  MixtureOptions options;
  options.iterations_max = 1;
  const Mixture start{2, {0.5, 0.5}, {4, 8, 1e5, 1e5}, {30, 0, 0, 90, 1, 0, 0, 1}};
  const MixtureFit fit = expect_equal_for_threads(rows, start, options);
  ASSERT_EQ(fit.mixture.means.size(), 4U);
  EXPECT_EQ(fit.mixture.means[2], -50);
  EXPECT_EQ(fit.mixture.means[3], 50);
}

TEST(MixtureThreads, NumbersOutsideTheLimitsAreRefused) {
  MixtureOptions options;
  for (const int threads : {-1, 0, 257}) {
    options.threads = threads;
    const Result<MixtureFit> fit = fit_mixture(three_clusters(9), 2, options);
    ASSERT_FALSE(fit);
    EXPECT_EQ(fit.error().code, Code::kLimit);
  }
}

}  // namespace
}  // namespace kansoku::stats
