// SPDX-License-Identifier: Apache-2.0
#include "diagnose/localise_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

using ::testing::IsEmpty;

/// One function on as many ranks as there are shares.
PatternMatrix matrix_of(const std::vector<float>& beta, Activity activity = Activity::kPython) {
  PatternMatrix matrix(beta.size(), 1);
  matrix.beta = beta;
  matrix.activities[0] = activity;
  return matrix;
}

std::vector<float> equal(std::size_t ranks, float beta) {
  return std::vector<float>(ranks, beta);
}

auto key(const PatternOutlier& o) {
  return std::tuple(o.rank, o.function, o.differs, o.distance, o.beta, o.peers_beta, o.is_culprit);
}

TEST(Localise, EqualRanksHaveNoOutlier) {
  for (const std::size_t ranks : {1U, 2U, 3U, 8U, 500U}) {
    EXPECT_THAT(localise(matrix_of(equal(ranks, 0.3F)), {}), IsEmpty()) << ranks;
    EXPECT_THAT(localise(matrix_of(equal(ranks, 0)), {}), IsEmpty()) << ranks;
  }
}

// The scaled distance is 1, but the share of the window is not worth a word.
TEST(Localise, SmallSharesAreNotJudged) {
  for (const float beta : {0.009F, 0.0199F}) {
    std::vector<float> betas = equal(8, 0);
    betas[3] = beta;
    EXPECT_THAT(localise(matrix_of(betas), {}), IsEmpty()) << beta;
  }
  std::vector<float> betas = equal(8, 0);
  betas[3] = 0.0201F;
  EXPECT_EQ(localise(matrix_of(betas), {}).size(), 1U);
}

TEST(Localise, TheOneThatDiffersIsNamed) {
  for (const std::size_t ranks : {3U, 4U, 8U, 64U, 101U, 102U, 500U}) {
    std::vector<float> betas = equal(ranks, 0.2F);
    betas[ranks / 2] = 0.6F;
    const auto found = localise(matrix_of(betas), {});
    ASSERT_EQ(found.size(), 1U) << ranks;
    EXPECT_EQ(found[0].rank, ranks / 2);
    EXPECT_EQ(found[0].beta, 0.6F);
    EXPECT_EQ(found[0].peers_beta, 0.2F);
    EXPECT_NEAR(found[0].distance, 1 - 0.2 / 0.6, 1e-6);
    EXPECT_TRUE(found[0].is_culprit);
    EXPECT_GT(found[0].differs, 0.9F);
  }
}

// Less time is a difference, and no fault, but in a collective, where the late one waits least.
TEST(Localise, InCollectivesTheOneWithLessTimeIsTheCulprit) {
  for (const Activity activity : {Activity::kCollective, Activity::kPython}) {
    std::vector<float> less = equal(8, 0.5F), more = equal(8, 0.1F);
    less[2] = 0.1F;
    more[2] = 0.5F;
    const bool is_collective = activity == Activity::kCollective;
    ASSERT_EQ(localise(matrix_of(less, activity), {}).size(), 1U);
    EXPECT_EQ(localise(matrix_of(less, activity), {})[0].is_culprit, is_collective);
    ASSERT_EQ(localise(matrix_of(more, activity), {}).size(), 1U);
    EXPECT_EQ(localise(matrix_of(more, activity), {})[0].is_culprit, !is_collective);
  }
}

TEST(Localise, TwoRanksCannotVote) {
  EXPECT_THAT(localise(matrix_of({0.9F, 0.1F}), {}), IsEmpty());
  EXPECT_THAT(localise(PatternMatrix(0, 0), {}), IsEmpty());
  EXPECT_THAT(localise(PatternMatrix(8, 0), {}), IsEmpty());
  EXPECT_THAT(localise(matrix_of({0.9F, 0.1F, 0.1F}), {.peers_max = 0}), IsEmpty());
}

// Half of the ranks do one thing, half another: two roles, nobody is odd.
TEST(Localise, TwoHalvesAreNoOutliers) {
  std::vector<float> betas = equal(10, 0.1F);
  for (std::size_t r = 0; r < 5; ++r)
    betas[r] = 0.8F;
  EXPECT_THAT(localise(matrix_of(betas), {}), IsEmpty());
}

PatternMatrix random_matrix(std::uint64_t seed, std::size_t ranks, std::size_t functions) {
  Rng rng(seed);
  PatternMatrix matrix(ranks, functions);
  for (std::size_t f = 0; f < functions; ++f) {
    matrix.activities[f] = static_cast<Activity>(f % kActivityCount);
    for (std::size_t r = 0; r < ranks; ++r) {
      const bool is_odd = rng.below(ranks) == 0;
      matrix.beta[f * ranks + r] =
          (is_odd ? 0.7F : 0.3F) + static_cast<float>(rng.below(100)) / 5000;
      matrix.mu[f * ranks + r] = static_cast<float>(rng.below(3)) / 20 + 0.8F;
    }
  }
  return matrix;
}

TEST(Localise, TheNumberOfThreadsDoesNotMatter) {
  for (const std::size_t ranks : {5U, 40U, 300U}) {
    const PatternMatrix matrix = random_matrix(ranks, ranks, 37);
    const auto one = localise(matrix, {.thread_count = 1});
    EXPECT_FALSE(one.empty());
    for (const unsigned threads : {0U, 4U, 64U}) {
      const auto many = localise(matrix, {.thread_count = threads});
      ASSERT_EQ(many.size(), one.size()) << threads;
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_EQ(key(many[i]), key(one[i])) << threads;
    }
  }
}

// With all peers compared, nothing depends on who is which rank.
TEST(Localise, TheOrderOfRanksDoesNotMatter) {
  const PatternMatrix matrix = random_matrix(9, 40, 20);
  PatternMatrix turned(40, 20);
  turned.activities = matrix.activities;
  for (std::size_t f = 0; f < 20; ++f) {
    for (std::size_t r = 0; r < 40; ++r) {
      turned.beta[f * 40 + (r + 13) % 40] = matrix.beta[f * 40 + r];
      turned.mu[f * 40 + (r + 13) % 40] = matrix.mu[f * 40 + r];
    }
  }
  const auto here = localise(matrix, {});
  const auto there = localise(turned, {});
  ASSERT_EQ(here.size(), there.size());
  std::vector<std::tuple<std::uint32_t, std::uint32_t, float>> a, b;
  for (std::size_t i = 0; i < here.size(); ++i) {
    a.emplace_back((here[i].rank + 13) % 40, here[i].function, here[i].beta);
    b.emplace_back(there[i].rank, there[i].function, there[i].beta);
  }
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace kansoku::diagnose
