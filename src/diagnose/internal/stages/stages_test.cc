// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/stages/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/stages/stages_for_test.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

Diagnosis diagnosed_stages(const StagesJob& job) {
  auto result = diagnose(make_stages_trace(job), {});
  EXPECT_TRUE(result) << result.error().what;
  return std::move(*result);
}

bool notes_say(const Diagnosis& diagnosis, std::string_view text) {
  return std::any_of(diagnosis.notes.begin(), diagnosis.notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST(Stages, AreFoundFromMessages) {
  const Diagnosis found = diagnosed_stages({});
  ASSERT_TRUE(found.pipeline);
  ASSERT_EQ(found.pipeline->stages.size(), 4U);
  for (std::int32_t stage = 0; stage < 4; ++stage)
    EXPECT_EQ(found.pipeline->stages[static_cast<std::size_t>(stage)].ranks, std::vector{stage});
  EXPECT_EQ(found.pipeline->micro_batches, 4U);
  EXPECT_TRUE(found.findings.empty());
  ASSERT_TRUE(found.messages);
  EXPECT_EQ(found.messages->matched, 40U * 2 * 3 * 4);
  EXPECT_EQ(found.messages->sends_alone, 0U);
  EXPECT_EQ(found.messages->receives_alone, 0U);
}

// Nothing is sent yet for most of the time that a stage waits; what is left is the message's way.
TEST(Stages, WaitingForAMessageIsNoTransfer) {
  const Diagnosis found = diagnosed_stages({});
  ASSERT_EQ(found.ranks.size(), 4U);
  for (const RankSummary& rank : found.ranks) {
    EXPECT_GT(rank.phase_ms[static_cast<std::size_t>(Phase::kWait)], 20);
    EXPECT_LT(rank.phase_ms[static_cast<std::size_t>(Phase::kTransfer)], 1);
  }
}

// With equal stages P - 1 of P - 1 + M passes are idle on each rank.
TEST(Stages, BubbleFollowsItsFormula) {
  for (const std::size_t stages : {2U, 3U, 4U, 6U}) {
    for (const std::size_t micro_batches : {2U, 4U, 9U}) {
      StagesJob job;
      job.stages = stages;
      job.micro_batches = micro_batches;
      const Diagnosis found = diagnosed_stages(job);
      ASSERT_TRUE(found.pipeline);
      const auto idle = static_cast<double>(stages - 1);
      EXPECT_NEAR(found.pipeline->bubble_share, idle / (idle + static_cast<double>(micro_batches)),
                  0.02);
      EXPECT_NEAR(found.pipeline->uneven_share, 0, 0.03);
      EXPECT_EQ(found.pipeline->micro_batches, micro_batches);
    }
  }
}

TEST(Stages, UnequalOnesAreANoteThatTellsWhatAnEqualCutSaves) {
  StagesJob job;
  job.uneven = 2;
  const Diagnosis found = diagnosed_stages(job);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_TRUE(notes_say(found, "stage 2, counted from 0, has 2.0 times the work of the others"));
  ASSERT_TRUE(found.pipeline);
  // All forward passes, then all backward ones: the greatest stage sets the pace of all but the
  // first micro-batch. 12 ms a micro-batch and stage; 15 if cut equally.
  EXPECT_NEAR(found.pipeline->passes_ms, 5 * 12 + 3 * 24, 3);
  EXPECT_NEAR(found.pipeline->equal_ms, 7 * 15, 3);
}

TEST(Stages, FunctionOfOneRankThatHoldsUpTheOthersIsNamed) {
  for (std::size_t rank = 0; rank < 4; ++rank) {
    StagesJob job;
    job.slow_rank = rank;
    job.slow_ms = 12;
    const Diagnosis found = diagnosed_stages(job);
    ASSERT_EQ(found.findings.size(), 1U);
    const Finding& finding = found.findings.front();
    EXPECT_EQ(finding.ranks, std::vector{static_cast<std::int32_t>(rank)});
    EXPECT_EQ(finding.kind, "slow_forward");
    EXPECT_EQ(finding.function, "slow_hook");
    EXPECT_NEAR(finding.cost_ms_per_step, 48, 5);
  }
}

TEST(Stages, NobodyIsBlamedForAModuleThatItsStageAloneHas) {
  StagesJob job;
  job.head_ms = 12;
  const Diagnosis found = diagnosed_stages(job);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_TRUE(notes_say(found, "stage 3, counted from 0, has 2.0 times the work of the others"));
}

TEST(Stages, NobodyIsBlamedForAFunctionThatOthersRunToo) {
  StagesJob job;
  job.slow_rank = 1;
  job.slow_ms = 12;
  job.is_everywhere = true;
  EXPECT_TRUE(diagnosed_stages(job).findings.empty());
}

// Its own function takes long, and yet it works no longer than the others.
TEST(Stages, NobodyIsBlamedWhoHoldsUpNobody) {
  StagesJob job;
  job.slow_rank = 2;
  job.slow_ms = 8;
  job.uneven = 0.3;
  EXPECT_TRUE(diagnosed_stages(job).findings.empty());
}

TEST(Stages, RanksOfOneStageAreCompared) {
  StagesJob job;
  job.stages = 2;
  job.pipelines = 4;
  job.slow_rank = 5;
  job.slow_ms = 6;
  job.is_everywhere = true;
  const Diagnosis found = diagnosed_stages(job);
  ASSERT_TRUE(found.pipeline);
  EXPECT_EQ(found.pipeline->stages[1].ranks, (std::vector<std::int32_t>{1, 3, 5, 7}));
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(found.findings.front().ranks, std::vector<std::int32_t>{5});
  EXPECT_EQ(found.findings.front().kind, "slow_forward");
  EXPECT_EQ(found.findings.front().function, "slow_hook");
}

// Its function is told, and that it differs from its peer follows from that.
TEST(Stages, ARankIsToldOnce) {
  StagesJob job;
  job.stages = job.pipelines = 2;
  job.slow_rank = 3;
  job.slow_ms = 12;
  const Diagnosis found = diagnosed_stages(job);
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(found.findings.front().ranks, std::vector<std::int32_t>{3});
  EXPECT_EQ(found.findings.front().function, "slow_hook");
}

TEST(Stages, ARecordingThatBeginsInMidRunMatchesTheRest) {
  StagesJob job;
  job.lost_receives = 5;
  const Diagnosis found = diagnosed_stages(job);
  ASSERT_TRUE(found.messages);
  EXPECT_EQ(found.messages->receives_alone, 0U);
  EXPECT_EQ(found.messages->sends_alone, 5U);
  EXPECT_TRUE(found.pipeline);
}

TEST(Stages, ARankWhoseProbesCameLateIsAStageNevertheless) {
  StagesJob job;
  job.uneven = 2;
  job.lost_steps = 20;
  const Diagnosis found = diagnosed_stages(job);
  ASSERT_TRUE(found.pipeline);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_NEAR(found.pipeline->stages[1].work_ms, found.pipeline->stages[0].work_ms, 1);
}

// Its steps are counted from another one: a message is received in the step that it is sent in.
TEST(Stages, StepsAreAlignedByMessages) {
  StagesJob job;
  job.lost_ends = 12;
  const Diagnosis found = diagnosed_stages(job);
  ASSERT_TRUE(found.pipeline);
  EXPECT_EQ(found.steps.count, 40U - 12 - 1 - 3);
  EXPECT_TRUE(notes_say(found, "aligned them by the messages"));
  EXPECT_NEAR(found.pipeline->bubble_share, 3.0 / 7, 0.03);
}

// One that hands out to two has no stages that pass on.
TEST(Stages, NoneWhereTwoRanksOfAPipelineAreLevel) {
  JobData job;
  job.ranks.resize(3);
  StepTable steps;
  steps.ranks.resize(3);
  for (std::int64_t s = 0; s < 10; ++s) {
    for (auto& rank : steps.ranks)
      rank.push_back({s * 1000, (s + 1) * 1000});
    for (const std::size_t to : {1U, 2U})
      job.messages.push_back({0, to, s * 1000 + 10, s * 1000 + 10, s * 1000 + 20, 0});
  }
  EXPECT_FALSE(find_stages(job, steps));
}

// Two parts of the model on each rank: what comes back from the last stage is no new micro-batch.
TEST(Stages, MicroBatchesOfInterleavedStagesCountOnce) {
  JobData job;
  job.ranks.resize(3);
  StepTable steps;
  steps.ranks.resize(3);
  constexpr std::int64_t kStepNs = 1000;
  for (std::int64_t s = 0; s < 10; ++s) {
    std::int64_t at = s * kStepNs;
    for (auto& rank : steps.ranks)
      rank.push_back({at, at + kStepNs});
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
      for (const auto& [from, to] : std::vector<std::pair<std::size_t, std::size_t>>{
               {0, 1}, {1, 2}, {2, 0}, {0, 1}, {1, 2}, {2, 1}, {1, 0}, {0, 2}, {2, 1}, {1, 0}}) {
        at += 10;
        job.messages.push_back({from, to, at, at, at + 5, 0});
      }
  }
  const auto stages = find_stages(job, steps);
  ASSERT_TRUE(stages);
  EXPECT_EQ(stages->stage, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(stages->micro_batches, 2U);
}

// In a group that has no name a peer is meant as a rank of the job.
TEST(Stages, GroupsWithoutANameAreTheJob) {
  StagesJob job;
  job.has_names = false;
  EXPECT_TRUE(diagnosed_stages(job).pipeline);
}

TEST(Stages, NoneWithoutMessages) {
  const auto found = diagnose(make_trace({}), {});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->pipeline);
  EXPECT_FALSE(found->messages);
}

}  // namespace
}  // namespace kansoku::diagnose
