// SPDX-License-Identifier: Apache-2.0
#include "detect/rank_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/rng.h"
#include "detect/run_score.h"

namespace kansoku::detect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Steps of eight ranks: time of data, compute, step. `change` alters (step, rank, data, compute).
template <class Change>
Cube run_of(std::size_t steps, Change change) {
  RandomStream random(1, "test.ranks");
  Cube cube;
  cube.columns = 3;
  for (std::int32_t r = 0; r < 8; ++r)
    cube.ranks.push_back(r);
  for (std::size_t step = 0; step < steps; ++step) {
    cube.times.push_back(static_cast<double>(step));
    for (std::size_t r = 0; r < 8; ++r) {
      double data = 0.001 * (1 + 0.2 * random.uniform()), compute = 0.07 + 0.001 * random.uniform();
      change(step, r, data, compute);
      cube.values.insert(cube.values.end(), {data, compute, 0.08 + data});
    }
  }
  return cube;
}

std::vector<Column> columns() {
  std::vector<Column> out;
  for (const char* name : {"data_ms", "compute_ms", "step_ms"}) {
    Column column;
    column.name = name;
    column.unit = "s";
    column.floor = 1e-4;
    out.push_back(column);
  }
  return out;
}

RunVerdict verdict_of(const Cube& cube) {
  const auto verdict = score_run(cube, columns(), nullptr, {});
  EXPECT_TRUE(verdict.has_value());
  return *verdict;
}

TEST(RankTests, AHealthyRunIsQuietThoughAllRanksHaveALongStep) {
  const auto cube = run_of(500, [](std::size_t step, std::size_t, double&, double& compute) {
    if (step % 100 == 0) compute += 0.4;
  });
  EXPECT_THAT(verdict_of(cube).incidents, IsEmpty());
}

TEST(RankTests, TheVictimIsTheOneThatDoesNotWait) {
  const auto cube = run_of(500, [](std::size_t step, std::size_t rank, double&, double& compute) {
    if (step >= 100 && step < 300 && rank != 5) compute += 0.02;  // the others wait for rank 5
  });
  const RunVerdict verdict = verdict_of(cube);
  EXPECT_THAT(verdict.named, ElementsAre(5));
  ASSERT_EQ(verdict.incidents.size(), 1U);
  EXPECT_EQ(verdict.incidents[0].evidence.at(0).feature, "compute_ms");
  EXPECT_NEAR(verdict.incidents[0].begin, 98, 20);
  EXPECT_NEAR(verdict.incidents[0].end, 299, 20);
}

// The reference is a fifth of the run behind its warm-up, wherever a fault of some data set begins.
TEST(RankTests, AFaultThatBeginsEarlyInAShortRunIsFound) {
  const auto slow = run_of(160, [](std::size_t step, std::size_t rank, double& data, double&) {
    if (step >= 52 && rank == 3) data += 0.02;
  });
  EXPECT_THAT(verdict_of(slow).named, ElementsAre(3));
}

TEST(RankTests, RareLongStepsOfOneRankAreFoundByTheTail) {
  const auto cube = run_of(500, [](std::size_t step, std::size_t rank, double& data, double&) {
    if (step >= 100 && rank == 2 && step % 6 == 0) data += 0.05;
  });
  EXPECT_THAT(verdict_of(cube).named, ElementsAre(2));
}

TEST(RankTests, StepsThatAreLongOnceInAHundredAreFoundByTheirNumber) {
  for (const std::size_t every : {30U, 100U, 200U}) {
    const auto cube =
        run_of(3000, [&](std::size_t step, std::size_t rank, double&, double& compute) {
          if (rank == 4 && step % every == 7) compute += 0.15;
          if (rank == step / 700 && step % 700 == 9) compute += 0.15;  // and anybody, more seldom
        });
    const RunVerdict verdict = verdict_of(cube);
    EXPECT_THAT(verdict.named, ElementsAre(4)) << every;
    ASSERT_EQ(verdict.incidents.size(), 1U);
    EXPECT_EQ(verdict.incidents[0].evidence.at(0).feature, "compute_ms");
    EXPECT_THAT(verdict.incidents[0].summary, testing::HasSubstr("steps"));
  }
}

TEST(RankTests, ARankWithoutValuesIsNoPeer) {
  Cube cube = run_of(300, [](std::size_t, std::size_t, double&, double&) {});
  for (std::size_t step = 0; step < cube.steps(); ++step)
    for (std::size_t at = 0; at < 21; ++at)  // seven of eight
      cube.values[step * 24 + at] = std::nan("");
  EXPECT_THAT(verdict_of(cube).incidents, IsEmpty());
}

TEST(RankTests, AFaultOfAllRanksNamesNone) {
  const auto cube = run_of(500, [](std::size_t step, std::size_t, double& data, double&) {
    if (step >= 100) data += 0.02;
  });
  const RunVerdict verdict = verdict_of(cube);
  EXPECT_THAT(verdict.named, IsEmpty());
  ASSERT_EQ(verdict.incidents.size(), 1U);
  EXPECT_THAT(verdict.incidents[0].tests, ElementsAre("job"));
}

TEST(RankTests, AnUnsteadyPastIsNotUsedAndSaidSo) {
  const auto cube = run_of(500, [](std::size_t step, std::size_t rank, double& data, double&) {
    if (step % 2 == 0 && rank == 3) data += 0.1;  // every second step: that is how it runs
    if (step % 2 == 0 && rank != 3) data += 0.05;
    if (step >= 100 && step < 300 && rank == 6) data += 0.2;
  });
  const RunVerdict verdict = verdict_of(cube);
  EXPECT_THAT(verdict.named, ElementsAre(6));
  ASSERT_FALSE(verdict.notes.empty());
  EXPECT_THAT(verdict.notes[0], testing::HasSubstr("not steady"));
  EXPECT_EQ(verdict.own_ratio, 0);
}

TEST(RankTests, TwoRanksAreNotToldApart) {
  Cube cube = run_of(300, [](std::size_t, std::size_t, double&, double&) {});
  Cube two;
  two.columns = 3;
  two.times = cube.times;
  two.ranks = {0, 1};
  for (std::size_t step = 0; step < cube.steps(); ++step)
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t c = 0; c < 3; ++c)
        two.values.push_back(cube.at(step, r, c) * (r == 1 && step > 150 ? 3 : 1));
  EXPECT_THAT(verdict_of(two).named, IsEmpty());
}

TEST(RankTests, BoundsOfRuns) {
  const Cube cube = run_of(60, [](std::size_t, std::size_t, double&, double&) {});
  EXPECT_EQ(score_run(cube, columns(), nullptr, {.window_steps = 50}).error().code, Code::kLimit);
  RunOptions outside;
  outside.reference_begin = 900;
  outside.reference_end = 950;
  EXPECT_EQ(score_run(cube, columns(), nullptr, outside).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kansoku::detect
