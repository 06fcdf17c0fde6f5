// SPDX-License-Identifier: Apache-2.0
#include "diagnose/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/synthetic_for_test.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(StepTimes, AreThoseOfTheDiagnosis) {
  SyntheticJob job;
  job.faults = {{Fault::Kind::kInputSleep, 2, 15, 1}};
  const trace::Trace trace = make_trace(job);
  const auto diagnosis = diagnose(trace, {});
  const auto steps = step_times(trace, {});
  ASSERT_TRUE(diagnosis && steps);
  EXPECT_EQ(steps->durations_ms, diagnosis->steps.durations_ms);
  EXPECT_EQ(steps->found_by, diagnosis->steps.found_by);
  ASSERT_EQ(steps->ranks.size(), diagnosis->ranks.size());
  for (std::size_t r = 0; r < steps->ranks.size(); ++r) {
    const RankStepTimes& rank = steps->ranks[r];
    EXPECT_EQ(rank.rank, diagnosis->ranks[r].rank);
    EXPECT_EQ(stats::mean(rank.step_ms), diagnosis->ranks[r].step_ms);
    for (std::size_t p = 0; p < kPhaseCount; ++p)
      EXPECT_EQ(stats::mean(rank.phase_ms[p]), diagnosis->ranks[r].phase_ms[p]);
  }
}

TEST(StepTimes, PhasesOfAStepSumToItAndStepsFollowEachOther) {
  const auto steps = step_times(make_trace({}), {});
  ASSERT_TRUE(steps);
  ASSERT_THAT(steps->ranks, Not(IsEmpty()));
  for (const RankStepTimes& rank : steps->ranks) {
    ASSERT_EQ(rank.begin_ns.size(), steps->durations_ms.size());
    for (std::size_t s = 0; s < rank.begin_ns.size(); ++s) {
      double sum = 0;
      for (const auto& phase : rank.phase_ms)
        sum += phase[s];
      EXPECT_NEAR(sum, rank.step_ms[s], 1e-6);
      EXPECT_TRUE(s == 0 || rank.begin_ns[s] > rank.begin_ns[s - 1]);
    }
  }
}

TEST(StepTimes, AClosuresPassesAreForwardAndBackward) {
  SyntheticJob job;
  const auto plain = step_times(make_trace(job), {});
  job.has_closure = true;
  const auto closure = step_times(make_trace(job), {});
  ASSERT_TRUE(plain && closure);
  for (std::size_t r = 0; r < plain->ranks.size(); ++r) {
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
      const auto p = static_cast<std::size_t>(phase);
      EXPECT_NEAR(stats::mean(closure->ranks[r].phase_ms[p]),
                  stats::mean(plain->ranks[r].phase_ms[p]), 0.2)
          << phase_name(phase);
    }
  }
}

TEST(StepTimes, ZeroGradBetweenAClosuresPassesIsTheOptimizers) {
  SyntheticJob job;
  job.jitter = 0;
  job.has_closure = true;
  job.closure_zero_ms = 5;
  const auto steps = step_times(make_trace(job), {});
  ASSERT_TRUE(steps);
  for (const RankStepTimes& rank : steps->ranks) {
    const auto ms = [&](Phase phase) {
      return stats::mean(rank.phase_ms[static_cast<std::size_t>(phase)]);
    };
    EXPECT_NEAR(ms(Phase::kForward), 12, 0.01);
    EXPECT_NEAR(ms(Phase::kOptimizer), 5 + 4.1, 0.01);
  }
}

TEST(StepTimes, AreThoseOfTheThreadThatTrains) {
  SyntheticJob job;
  job.trains_beside = true;
  job.faults = {{Fault::Kind::kForwardBusy, 2, 15, 1}};
  const auto diagnosis = diagnose(make_trace(job), {});
  ASSERT_TRUE(diagnosis);
  EXPECT_THAT(kinds_of(*diagnosis), ElementsAre("slow_forward"));
  EXPECT_THAT(diagnosis->findings.at(0).ranks, ElementsAre(2));
}

TEST(StepTimes, OfStepsWithoutCollectivesAreAlignedByCount) {
  SyntheticJob job;
  job.collective_steps = 1;
  job.step_count = 60;
  const auto steps = step_times(make_trace(job), {});
  ASSERT_TRUE(steps);
  EXPECT_GE(steps->durations_ms.size(), 50U);
  EXPECT_THAT(steps->notes, Contains(HasSubstr("by their number since the last one")));
  job.collective_steps = -1;
  job.accumulation = 4;
  const auto accumulated = step_times(make_trace(job), {});
  ASSERT_TRUE(accumulated);
  EXPECT_THAT(accumulated->notes, Not(Contains(HasSubstr("aligned"))));
}

TEST(StepTimes, OfAJobWithoutCollectivesAreAlignedByTime) {
  SyntheticJob job;
  job.collective_steps = 0;
  job.step_count = 60;
  const auto steps = step_times(make_trace(job), {});
  ASSERT_TRUE(steps);
  EXPECT_GE(steps->durations_ms.size(), 50U);
  EXPECT_THAT(steps->notes, Contains(HasSubstr("aligned them by time")));
  job.rank_count = 1;
  const auto alone = step_times(make_trace(job), {});
  ASSERT_TRUE(alone);
  EXPECT_GE(alone->durations_ms.size(), 50U);
  EXPECT_THAT(alone->notes, Not(Contains(HasSubstr("aligned")))) << "with nobody";
}

TEST(StepTimes, OfATraceWithoutRanksAreNone) {
  const auto steps = step_times({}, {});
  ASSERT_TRUE(steps);
  EXPECT_THAT(steps->durations_ms, IsEmpty());
  EXPECT_THAT(steps->ranks, IsEmpty());
  EXPECT_THAT(steps->notes, Not(IsEmpty()));
}

}  // namespace
}  // namespace kansoku::diagnose
