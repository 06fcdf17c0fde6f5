// SPDX-License-Identifier: Apache-2.0
#include "diagnose/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/synthetic_for_test.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

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

TEST(StepTimes, OfATraceWithoutRanksAreNone) {
  const auto steps = step_times({}, {});
  ASSERT_TRUE(steps);
  EXPECT_THAT(steps->durations_ms, IsEmpty());
  EXPECT_THAT(steps->ranks, IsEmpty());
  EXPECT_THAT(steps->notes, Not(IsEmpty()));
}

}  // namespace
}  // namespace kansoku::diagnose
