// SPDX-License-Identifier: Apache-2.0
#include "diagnose/diagnose.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "diagnose/synthetic_for_test.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Diagnosis run_job(const SyntheticJob& job, const Options& options = {}) {
  const trace::Trace trace = make_trace(job);
  Result<Diagnosis> result = diagnose(trace, options);
  if (!result) {
    ADD_FAILURE() << result.error().what;
    return {};
  }
  return std::move(*result);
}

SyntheticJob with_fault(Fault::Kind kind, std::int32_t rank, double cost_ms, int every = 1) {
  SyntheticJob job;
  job.faults = {{kind, rank, cost_ms, every}};
  return job;
}

constexpr double kPlainStepMs = 42;  // of SyntheticJob without faults: the pieces plus transfer

struct Labelled {
  Fault::Kind kind;
  const char* finding;
  const char* function;
};
constexpr Labelled kLabelled[] = {
    {Fault::Kind::kInputSleep, "slow_input", "SlowDataset.__getitem__"},
    {Fault::Kind::kForwardBusy, "slow_forward", "slow_block"},
    {Fault::Kind::kBackwardBusy, "slow_backward", "slow_hook"},
    {Fault::Kind::kOptimizerBusy, "slow_optimizer", "slow_update"},
};

class EachRank : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EachRank, IsNamedWithFunctionAndCost) {
  const auto [rank, percent] = GetParam();
  for (const Labelled& label : kLabelled) {
    const double cost_ms = kPlainStepMs * percent / 100;
    SyntheticJob job = with_fault(label.kind, rank, cost_ms);
    job.jitter = 0.1;
    job.queue_mean_ms = 1;
    job.step_count = 300;
    const Diagnosis d = run_job(job);
    SCOPED_TRACE(fmt::format("{} {} %\n{}", label.finding, percent, verdict_text(d)));
    if (percent < 20 && d.findings.empty()) continue;  // 10 % may stay below the threshold
    ASSERT_EQ(d.findings.size(), 1U);
    const Finding& finding = d.findings.front();
    EXPECT_EQ(finding.kind, label.finding);
    EXPECT_THAT(finding.ranks, ElementsAre(rank));
    EXPECT_NEAR(finding.cost_ms_per_step, cost_ms, 0.15 * cost_ms);
    if (percent < 20) continue;  // 70 samples of the excess: a caller may be named instead
    EXPECT_EQ(finding.function, label.function);
    EXPECT_EQ(finding.stack.back(), label.function);
    EXPECT_EQ(finding.file, "/app/train.py");
    EXPECT_GE(finding.rank_confidence, 0.95);
    EXPECT_EQ(d.victims.size(), 3U);
    EXPECT_LT(d.not_explained_share, 0.6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachRank,
                         testing::Combine(testing::Range(0, 4), testing::Values(10, 20, 50, 100)));

TEST(Diagnose, CleanJobsGiveNothing) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SyntheticJob job;
    job.seed = seed;
    job.jitter = 0.2;
    job.queue_mean_ms = 2;
    const Diagnosis d = run_job(job);
    EXPECT_TRUE(d.findings.empty()) << "seed " << seed << "\n" << verdict_text(d);
    EXPECT_GT(d.steps.count, 100U);
    EXPECT_TRUE(d.victims.empty());
  }
}

TEST(Diagnose, PhasesSumToTheStep) {
  for (const bool has_step_slices : {true, false}) {
    SyntheticJob job = with_fault(Fault::Kind::kInputSleep, 1, 10);
    job.has_step_slices = has_step_slices;
    job.queue_mean_ms = 1;
    const Diagnosis d = run_job(job);
    ASSERT_EQ(d.ranks.size(), 4U);
    for (const RankSummary& rank : d.ranks) {
      double sum = 0;
      for (const double ms : rank.phase_ms)
        sum += ms;
      EXPECT_NEAR(sum, rank.step_ms, 1e-6);
      EXPECT_GT(rank.step_ms, 40);
    }
  }
}

TEST(Diagnose, PhasesHaveTheLengthsOfTheSimulation) {
  SyntheticJob job;
  job.jitter = 0;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.ranks.size(), 4U);
  for (const RankSummary& rank : d.ranks) {
    const auto ms = [&](Phase phase) { return rank.phase_ms[static_cast<std::size_t>(phase)]; };
    EXPECT_NEAR(ms(Phase::kInput), 3, 0.01);
    EXPECT_NEAR(ms(Phase::kForward), 12, 0.01);
    EXPECT_NEAR(ms(Phase::kBackward), 20, 0.1);
    EXPECT_NEAR(ms(Phase::kTransfer), 2, 0.2);  // only the last bucket's transfer is exposed
    EXPECT_NEAR(ms(Phase::kWait), 0, 0.01);
    EXPECT_NEAR(ms(Phase::kOptimizer), 4.1, 0.01);
    EXPECT_NEAR(ms(Phase::kOther), 1, 0.01);
  }
}

TEST(Diagnose, StepsAreFoundFromTheEvents) {
  SyntheticJob job;
  job.evaluate_every = 20;
  const Diagnosis d = run_job(job);
  EXPECT_EQ(d.steps.found_by, "optimizer");
  EXPECT_EQ(d.steps.count, 120U - 1 - 3);  // the first only ends, three warm up
  EXPECT_THAT(d.steps.word, Contains("Optimizer.step#AdamW.step"));
  EXPECT_EQ(d.steps.word.back(), "Optimizer.step#AdamW.step");
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
}

TEST(Diagnose, OneRankMayNameItsOptimizerDifferently) {
  SyntheticJob job = with_fault(Fault::Kind::kOptimizerBusy, 0, 15);
  job.has_own_optimizer = true;
  job.step_count = 200;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_optimizer");
  EXPECT_EQ(d.findings[0].function, "slow_update");
}

TEST(Diagnose, GradientAccumulationIsOneStep) {
  for (const bool has_step_slices : {true, false}) {
    SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 3, 10);
    job.accumulation = 4;
    job.step_count = 60;
    job.has_step_slices = has_step_slices;
    const Diagnosis d = run_job(job);
    EXPECT_EQ(d.steps.count, 60U - 1 - 3);
    EXPECT_EQ(d.steps.found_by, has_step_slices ? "optimizer" : "backward");
    ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
    EXPECT_NEAR(d.findings[0].cost_ms_per_step, 40, 4);
  }
}

TEST(Diagnose, WithoutStepSlicesSamplesSplitTheGap) {
  SyntheticJob job = with_fault(Fault::Kind::kInputSleep, 2, 15);
  job.has_step_slices = false;
  job.step_count = 300;
  const Diagnosis d = run_job(job);
  EXPECT_EQ(d.steps.found_by, "backward");
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_input");
  EXPECT_EQ(d.findings[0].function, "SlowDataset.__getitem__");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
}

TEST(Diagnose, TwoRanksGiveAnAsymmetryOnly) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 1, 15);
  job.rank_count = 2;
  job.step_count = 200;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "asymmetry");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(d.findings[0].function, "slow_block");
  EXPECT_THAT(d.victims, ElementsAre(0));
}

TEST(Diagnose, OneRankCannotBeCompared) {
  SyntheticJob job;
  job.rank_count = 1;
  const Diagnosis d = run_job(job);
  EXPECT_TRUE(d.findings.empty());
  EXPECT_EQ(d.verdict(), Verdict::kNotEnoughData);
  EXPECT_THAT(d.missing, ElementsAre(HasSubstr("only one rank: Kansoku cannot compare ranks")));
}

TEST(Diagnose, AnEmptyTraceSaysWhy) {
  const Result<Diagnosis> d = diagnose(trace::Trace{}, {});
  ASSERT_TRUE(d.has_value());
  EXPECT_TRUE(d->findings.empty());
  EXPECT_EQ(d->verdict(), Verdict::kNotEnoughData);
  EXPECT_THAT(d->missing, ElementsAre(HasSubstr("no job in the trace")));
}

TEST(Diagnose, AWorkerStragglerIsNamedInTheWorker) {
  SyntheticJob job = with_fault(Fault::Kind::kWorkerSleep, 1, 20);
  job.step_count = 200;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_input");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(d.findings[0].function, "SlowDataset.__getitem__");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("worker pid 2500")));
}

/// Milliseconds a step that the samples put more into the function of the first finding.
double sampled_ms(const SyntheticJob& job) {
  const Diagnosis d = run_job(job);
  if (d.findings.empty()) return 0;
  for (const std::string& one : d.findings[0].evidence)
    if (double ms = 0; std::sscanf(one.c_str(), "stack samples put %lf ms", &ms) == 1) return ms;
  return 0;
}

TEST(Diagnose, TheTimeOfSeveralWorkersIsNotAdded) {
  SyntheticJob job = with_fault(Fault::Kind::kWorkerSleep, 1, 20);
  job.step_count = 200;
  const double alone_ms = sampled_ms(job);
  job.worker_count = 4;
  EXPECT_GT(alone_ms, 10);
  EXPECT_NEAR(sampled_ms(job), alone_ms, 0.2 * alone_ms);
}

TEST(Diagnose, APeriodicCheckpointIsFoundWithItsRhythm) {
  SyntheticJob job = with_fault(Fault::Kind::kCheckpoint, 0, 200, 20);
  job.step_count = 400;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_other");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0));
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 10, 1.5);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("every 20 steps")));
  EXPECT_THAT(d.findings[0].stack, Contains("save_checkpoint"));
}

TEST(Diagnose, ASlowLoaderOnAllRanksIsCommon) {
  SyntheticJob job = with_fault(Fault::Kind::kInputSleep, -1, 40);
  job.step_count = 200;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "common_input");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(d.findings[0].function, "SlowDataset.__getitem__");
  EXPECT_TRUE(d.victims.empty());
}

TEST(Diagnose, LostProcessorTimeIsContentionNotAFunction) {
  SyntheticJob job = with_fault(Fault::Kind::kQueueing, 2, 25);
  job.queue_mean_ms = 0.5;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "cpu_contention");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_EQ(d.findings[0].function, "");
}

// Ten percent of a step stand out where nobody else queues, not where everybody does.
TEST(Diagnose, LittleLostProcessorTimeCountsWhereNobodyElseQueues) {
  for (const double queue_mean_ms : {0.1, 3.0}) {
    SyntheticJob job = with_fault(Fault::Kind::kQueueing, 2, 5);
    job.queue_mean_ms = queue_mean_ms;
    const Diagnosis d = run_job(job);
    ASSERT_EQ(d.findings.size(), queue_mean_ms < 1 ? 1U : 0U) << verdict_text(d);
    for (const Finding& finding : d.findings)
      EXPECT_EQ(finding.kind, "cpu_contention");
  }
}

TEST(Diagnose, QueueingOfASlowRankIsNotASecondCause) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 20);
  job.faults.push_back({Fault::Kind::kQueueing, 2, 30});
  job.step_count = 200;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_forward");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("it also waits")));
}

// Ten stalls in 400 steps: five percent of the time, and the medians are alike.
TEST(Diagnose, ARankThatStallsNowAndThenIsFound) {
  SyntheticJob job = with_fault(Fault::Kind::kCheckpoint, 2, 80, 40);
  job.step_count = 400;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_other");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("every 40 steps")));
  EXPECT_THAT(d.findings[0].stack, Contains("save_checkpoint"));
}

// A slow stretch is one event, however many steps it has.
TEST(Diagnose, ASlowStretchNamesNobodyAndIsNoted) {
  SyntheticJob job;
  job.step_count = 160;
  job.faults = {{.kind = Fault::Kind::kForwardBusy, .rank = 1, .cost_ms = 30, .from = 105}};
  const Diagnosis d = run_job(job);
  for (const Finding& finding : d.findings)
    EXPECT_EQ(finding.kind, "moving_imbalance");
  EXPECT_THAT(d.notes, Contains(HasSubstr("in too few parts of the recording to name it")));
}

// Half of the blocks are too few; its stalls alone name it.
TEST(Diagnose, ARankThatIsNamedHasNoNoteOfASlowStretch) {
  SyntheticJob job;
  job.step_count = 160;
  job.faults = {
      {.kind = Fault::Kind::kCheckpoint, .rank = 1, .cost_ms = 300, .every = 6, .from = 85}};
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(d.notes, testing::Not(Contains(HasSubstr("in too few parts"))));
}

TEST(Diagnose, StallsThatFallOnAnyRankNameNone) {
  SyntheticJob job;
  job.step_count = 400;
  for (std::int32_t rank = 0; rank < 4; ++rank)
    job.faults.push_back({Fault::Kind::kCheckpoint, rank, 80, 38 + rank});
  for (const Finding& finding : run_job(job).findings)
    EXPECT_EQ(finding.kind, "moving_imbalance");
}

TEST(Diagnose, StallsOfLessThanAMillisecondAreNone) {
  SyntheticJob job = with_fault(Fault::Kind::kCheckpoint, 2, 0.8, 20);
  job.step_count = 800;
  job.input_ms = job.other_ms = 0.05;
  job.forward_ms = 0.2;
  job.backward_ms = 0.4;
  job.optimizer_ms = job.transfer_ms = 0.1;
  EXPECT_TRUE(run_job(job).findings.empty()) << verdict_text(run_job(job));
  job.faults[0].cost_ms = 2;
  EXPECT_EQ(run_job(job).findings.size(), 1U);
}

// A slower processor would slow the optimizer as well.
TEST(Diagnose, MoreWorkIsToldFromASlowProcessor) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 12);
  job.faults.push_back({Fault::Kind::kBackwardBusy, 2, 20});
  job.step_count = 200;
  const Diagnosis more = run_job(job);
  ASSERT_EQ(more.findings.size(), 1U) << verdict_text(more);
  EXPECT_EQ(more.findings[0].kind, "uneven_work");
  EXPECT_EQ(more.findings[0].function, "ToyDataset.__getitem__");
  EXPECT_THAT(more.findings[0].evidence, Contains(HasSubstr("as with larger batches")));
  job.faults.push_back({Fault::Kind::kOptimizerBusy, 2, 4});
  const Diagnosis slower = run_job(job);
  ASSERT_EQ(slower.findings.size(), 1U) << verdict_text(slower);
  EXPECT_EQ(slower.findings[0].kind, "slow_backward");
}

TEST(Diagnose, ALibrarysFunctionIsToldBelowTheOneOfTheJobsOwn) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 25);
  job.step_count = 300;
  trace::Trace trace = make_trace(job);
  const std::string own = diagnose(trace, {}).value().findings.at(0).function;
  split_samples(trace, own, {"gelu"}, "/usr/lib/python3/dist-packages/torch/nn/functional.py");
  const Diagnosis d = diagnose(trace, {}).value();
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].function, own);
  EXPECT_EQ(d.findings[0].stack.back(), own);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("most of it in gelu, which it calls")));
}

// Libraries only pass the data on, whichever function of theirs is seen most.
TEST(Diagnose, DataComeFromAFunctionOfTheJobsOwn) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 12);
  job.faults.push_back({Fault::Kind::kBackwardBusy, 2, 20});
  job.step_count = 200;
  trace::Trace trace = make_trace(job);
  split_samples(trace, "ToyDataset.__getitem__", {"collate_tensor_fn", "decode"},
                "/usr/lib/python3/dist-packages/torch/utils/data/_utils/collate.py");
  // Before the first step the job reads an index of its data, for long.
  const auto source =
      std::find_if(trace.samples.stack.begin(), trace.samples.stack.end(), [&](trace::StackId id) {
        return trace.stacks.at(id).size() > 3 &&
               trace.str(trace.frames[trace.stacks.at(id).back().raw].function) == "decode";
      });
  ASSERT_NE(source, trace.samples.stack.end());
  const auto of_input = trace.stacks.at(*source);
  std::vector<trace::FrameId> frames(of_input.begin(), of_input.end());
  frames.back() = trace::FrameId{static_cast<std::uint32_t>(trace.frames.size())};
  trace.frames.push_back(
      {trace.strings.intern("read_index"), trace.strings.intern("/app/data.py"), 1});
  trace.stacks.frames.insert(trace.stacks.frames.end(), frames.begin(), frames.end());
  const trace::StackId index{static_cast<std::uint32_t>(trace.stacks.size())};
  trace.stacks.begin.push_back(static_cast<std::uint32_t>(trace.stacks.frames.size()));
  for (int i = 0; i < 400; ++i) {
    trace.samples.time_ns.insert(trace.samples.time_ns.begin(), trace.samples.time_ns.front());
    trace.samples.pid.insert(trace.samples.pid.begin(), trace.samples.pid.front());
    trace.samples.tid.insert(trace.samples.tid.begin(), trace.samples.tid.front());
    trace.samples.stack.insert(trace.samples.stack.begin(), index);
    trace.samples.state.insert(trace.samples.state.begin(), trace.samples.state.front());
    trace.samples.holds_gil.insert(trace.samples.holds_gil.begin(), 0);
    trace.samples.is_native.insert(trace.samples.is_native.begin(), 0);
  }
  const Diagnosis d = diagnose(trace, {}).value();
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "uneven_work");
  EXPECT_EQ(d.findings[0].function, "ToyDataset.__getitem__");
}

// Forward has costs that the data do not change: it grows by less than backward, in proportion.
TEST(Diagnose, MoreWorkIsToldWhereForwardHasConstantCosts) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 4.5);
  job.faults.push_back({Fault::Kind::kBackwardBusy, 2, 8.8});
  job.forward_ms = job.backward_ms = 10;
  job.step_count = 200;
  const Diagnosis more = run_job(job);
  ASSERT_EQ(more.findings.size(), 1U) << verdict_text(more);
  EXPECT_EQ(more.findings[0].kind, "uneven_work");
  job.faults[0].cost_ms = 16;
  EXPECT_EQ(run_job(job).findings[0].kind, "slow_forward") << "data cost backward more";
  job.faults[0].cost_ms = 2;
  job.faults[1].cost_ms = 24;
  EXPECT_EQ(run_job(job).findings[0].kind, "slow_backward") << "data cost forward, too";
}

TEST(Diagnose, ALossThatFewStepsCarryIsToldAndBlamesNobody) {
  SyntheticJob job = with_fault(Fault::Kind::kCheckpoint, 2, 1200, 60);
  job.step_count = 130;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "moving_imbalance");
  EXPECT_LT(d.findings[0].confidence, 0.95);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("rank 2 is slowest in")));
}

TEST(Diagnose, AnImbalanceThatMovesIsToldAndBlamesNobody) {
  SyntheticJob job;
  job.data_jitter = 0.5;
  job.step_count = 300;
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "moving_imbalance");
  EXPECT_TRUE(d.findings[0].ranks.empty());
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("100 % of the time that the slowest")));
  EXPECT_TRUE(d.victims.empty());
  EXPECT_GT(d.slowdown_low, kMovingSlowdownMin);
  EXPECT_LT(d.slowdown_low, *d.slowdown);
  job.data_jitter = 0.2;  // a tenth is lost: twice as much as by healthy jobs
  const Diagnosis little = run_job(job);
  EXPECT_LT(*little.slowdown, 1.12);
  ASSERT_EQ(little.findings.size(), 1U) << verdict_text(little);
  EXPECT_EQ(little.findings[0].kind, "moving_imbalance");
  job.data_jitter = 0.05;
  EXPECT_TRUE(run_job(job).findings.empty());
}

// Processors that vary, as on a machine that others use: the optimizer varies with the rest.
TEST(Diagnose, WhereTheOptimizerVariesAsMuchNoImbalanceMoves) {
  SyntheticJob job;
  job.jitter = 0.9;
  job.step_count = 300;
  const Diagnosis d = run_job(job);
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
  EXPECT_GT(d.slowdown_low, kMovingSlowdownMin);
  EXPECT_THAT(d.notes, Contains(HasSubstr("nothing says that work moves")));
}

// A parameter server beside its workers: their steps are its own time as well, and it is no peer.
TEST(Diagnose, NothingMovesBetweenRanksWithOtherDuties) {
  SyntheticJob job;
  job.rank_count = 5;
  job.data_jitter = 0.5;
  job.step_count = 300;
  EXPECT_THAT(kinds_of(run_job(job)), ElementsAre("moving_imbalance"));
  job.idle_rank = 0;
  const Diagnosis d = run_job(job);
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("duties of their own")));
}

TEST(Diagnose, AFewLongStepsAreToldThoughTheOptimizerVaries) {
  SyntheticJob job = with_fault(Fault::Kind::kCheckpoint, 2, 1200, 60);
  job.step_count = 130;
  job.jitter = 0.9;
  const Diagnosis d = run_job(job);
  ASSERT_THAT(kinds_of(d), ElementsAre("moving_imbalance")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("rank 2 is slowest in")));
}

TEST(Diagnose, AnOptimizerWhoseOwnWorkMovesIsTold) {
  SyntheticJob job;
  job.step_count = 300;
  job.optimizer_ms = 20;
  job.optimizer_jitter = 0.9;
  EXPECT_THAT(kinds_of(run_job(job)), ElementsAre("moving_imbalance"));
}

TEST(Diagnose, AnImbalanceThatMovesIsNoneBelowAMillisecond) {
  SyntheticJob job;
  job.jitter = 0.9;
  job.step_count = 300;
  job.input_ms = job.other_ms = job.optimizer_ms = job.transfer_ms = 0.1;
  job.forward_ms = job.backward_ms = 0.5;
  const Diagnosis d = run_job(job);
  EXPECT_GT(d.slowdown_low, kMovingSlowdownMin);
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
}

TEST(Diagnose, FilesBelowAFolderAreNamedFromThere) {
  const Diagnosis d = run_job(with_fault(Fault::Kind::kInputSleep, 2, 20));
  EXPECT_THAT(verdict_text(d), HasSubstr("(/app/train.py:27)"));
  EXPECT_THAT(verdict_text(d, "/app"), HasSubstr("(train.py:27)"));
  EXPECT_THAT(verdict_text(d, "/ap"), HasSubstr("(/app/train.py:27)"));
}

TEST(Diagnose, EveryJobOfARecordingIsDiagnosed) {
  SyntheticJob job = with_fault(Fault::Kind::kOptimizerBusy, 3, 20);
  job.step_count = 200;
  trace::Trace trace = make_trace(job);
  for (trace::Process& process : trace.processes)
    if (process.rank >= 2) process.job = trace.strings.intern("other");
  const auto d = diagnose(trace, {});
  ASSERT_TRUE(d) << d.error().what;
  EXPECT_EQ(d->job, "other");
  ASSERT_EQ(d->findings.size(), 1U);
  EXPECT_THAT(d->findings[0].ranks, ElementsAre(3));
  ASSERT_EQ(d->other_jobs.size(), 1U);
  EXPECT_EQ(d->other_jobs[0].job, "127.0.0.1:29500");
  EXPECT_EQ(d->other_jobs[0].verdict(), Verdict::kNothingFound);
  EXPECT_THAT(verdict_text(*d), HasSubstr("2 jobs in the recording"));
  EXPECT_THAT(verdict_text(*d), HasSubstr("127.0.0.1:29500: nothing found"));
  EXPECT_EQ(to_json(*d).at("other_jobs").at(0).at("verdict").as_string(), "nothing_found");
}

TEST(Diagnose, AProcessWithoutARankIsAJob) {
  for (const Fault::Kind kind : {Fault::Kind::kInputSleep, Fault::Kind::kWorkerSleep}) {
    SyntheticJob job = with_fault(kind, -1, 40);
    job.rank_count = 1;
    job.tells_ranks = false;
    job.step_count = 200;
    const auto d = diagnose(make_trace(job), {});
    ASSERT_TRUE(d) << d.error().what;
    EXPECT_TRUE(d->is_single);
    EXPECT_EQ(d->job, "python3 (pid 1000)");
    ASSERT_EQ(d->findings.size(), 1U) << verdict_text(*d);
    EXPECT_EQ(d->findings[0].kind, "common_input");
    EXPECT_EQ(d->findings[0].function, "SlowDataset.__getitem__");
    EXPECT_THAT(verdict_text(*d), HasSubstr("the process: common_input"));
  }
  SyntheticJob healthy;
  healthy.rank_count = 1;
  healthy.tells_ranks = false;
  const auto d = diagnose(make_trace(healthy), {});
  EXPECT_EQ(d->verdict(), Verdict::kNothingFound) << verdict_text(*d);
  EXPECT_THAT(d->notes, Contains(HasSubstr("one process has no peers")));
}

TEST(Diagnose, AHangNamesTheMissingRankAndItsStack) {
  for (const bool has_seq : {true, false}) {
    SyntheticJob job = with_fault(Fault::Kind::kHang, 3, 0, 50);
    job.has_seq = has_seq;
    const Diagnosis d = run_job(job);
    ASSERT_FALSE(d.findings.empty()) << verdict_text(d);
    EXPECT_EQ(d.findings[0].kind, "hang");
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
    EXPECT_EQ(d.findings[0].function, "wait_for_lock");
    EXPECT_THAT(d.victims, ElementsAre(0, 1, 2));
  }
}

TEST(Diagnose, ACollectiveOfAPackIsOneWhateverItsName) {
  trace::Trace trace = make_trace(with_fault(Fault::Kind::kHang, 3, 0, 50));
  const trace::StringId own = trace.strings.intern("vendor_exchange");
  for (std::size_t i = 0; i < trace.slices.size(); ++i)
    if (trace.strings.view(trace.slices.category[i]) == "collective") trace.slices.name[i] = own;
  const Diagnosis d = diagnose(trace, {}).value();
  ASSERT_FALSE(d.findings.empty()) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "hang");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
  EXPECT_EQ(d.findings[0].verdict, "missing_rank");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("vendor_exchange"))) << verdict_text(d);
}

// A call whose end was not seen must not make a standstill of a job that is over.
TEST(Diagnose, AJobThatEndedWellIsNoHang) {
  for (const bool has_seq : {true, false}) {
    for (const std::uint64_t status : {0U, 1U}) {
      SyntheticJob job = with_fault(Fault::Kind::kHang, 3, 0, 50);
      job.has_seq = has_seq;
      trace::Trace trace = make_trace(job);
      trace::InstantTable& instants = trace.instants;
      for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
        const trace::Track& track = trace.tracks[i];
        if (track.kind != trace::TrackKind::kThread || track.pid != track.tid) continue;
        instants.time_ns.push_back(trace.end_ns);
        instants.track.push_back({static_cast<std::uint32_t>(i)});
        instants.name.push_back(trace.strings.intern("process exit"));
        instants.category.push_back(trace.strings.intern("process"));
        instants.arg_begin.push_back(static_cast<std::uint32_t>(trace.args.size()));
        instants.arg_count.push_back(1);
        trace::ArgValue arg;
        arg.kind = trace::ArgValue::Kind::kUint;
        arg.key = trace.strings.intern("status");
        arg.u64 = status;
        trace.args.push_back(arg);
      }
      const Diagnosis d = diagnose(trace, {}).value();
      EXPECT_EQ(d.findings.empty(), status == 0) << verdict_text(d);
    }
  }
}

TEST(Diagnose, AHangInTheFirstStepNeedsNoSteps) {
  const Diagnosis d = run_job(with_fault(Fault::Kind::kHang, 1, 0, 0 + 1));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(d.steps.count, 0U);
}

TEST(Diagnose, TwoCulpritsWithOneCauseAreOneFinding) {
  SyntheticJob job;
  job.step_count = 300;
  job.faults = {{Fault::Kind::kForwardBusy, 1, 20}, {Fault::Kind::kForwardBusy, 3, 20}};
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1, 3));
  EXPECT_EQ(d.findings[0].function, "slow_block");
  EXPECT_THAT(d.victims, ElementsAre(0, 2));
}

TEST(Diagnose, TwoCulpritsWithTwoCausesAreTwoFindings) {
  SyntheticJob job;
  job.step_count = 400;
  job.faults = {{Fault::Kind::kForwardBusy, 1, 40}, {Fault::Kind::kInputSleep, 3, 15}};
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 2U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].function, "slow_block");
  EXPECT_EQ(d.findings[1].function, "SlowDataset.__getitem__");
}

// Whatever part of the recording is missing, the rank is named and the rest is said in a note.
TEST(Diagnose, MissingPartsDegradeGracefully) {
  struct Case {
    const char* name;
    void (*strip)(SyntheticJob&);
    const char* note;
    bool has_function;
  };
  const Case cases[] = {
      {"seq", [](SyntheticJob& j) { j.has_seq = false; }, "no sequence numbers", true},
      {"sched", [](SyntheticJob& j) { j.has_sched = false; }, "no scheduler events", true},
      {"samples", [](SyntheticJob& j) { j.has_samples = false; }, "", false},
      {"finalize", [](SyntheticJob& j) { j.has_finalize = false; }, "", true},
      {"both", [](SyntheticJob& j) { j.has_finalize = j.has_sched = false; }, "no scheduler", true},
      {"cut", [](SyntheticJob& j) { j.cut_first_collectives = 31; }, "not seen whole", true},
      {"cut seq",
       [](SyntheticJob& j) {
         j.cut_first_collectives = 31;
         j.has_seq = false;
       },
       "no sequence numbers", true},
  };
  for (const Case& c : cases) {
    SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 2, 20);
    job.step_count = 200;
    c.strip(job);
    const Diagnosis d = run_job(job);
    SCOPED_TRACE(fmt::format("without {}\n{}", c.name, verdict_text(d)));
    ASSERT_EQ(d.findings.size(), 1U);
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
    EXPECT_EQ(d.findings[0].kind, "slow_forward");
    EXPECT_EQ(d.findings[0].function, c.has_function ? "slow_block" : "");
    EXPECT_NEAR(d.findings[0].cost_ms_per_step, 20, 3);
    EXPECT_THAT(verdict_text(d), HasSubstr(c.note));
    EXPECT_EQ(verdict_text(d).find("asleep in") != std::string::npos, !job.has_sched);
  }
}

TEST(Diagnose, CleanWithoutSchedulerDataGivesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SyntheticJob job;
    job.seed = seed;
    job.jitter = 0.2;
    job.queue_mean_ms = 1;
    job.has_sched = false;
    job.has_step_slices = seed % 2 == 0;
    job.has_finalize = seed % 3 != 0;
    const Diagnosis d = run_job(job);
    EXPECT_TRUE(d.findings.empty()) << "seed " << seed << "\n" << verdict_text(d);
  }
}

TEST(Diagnose, RenumberedRanksGiveTheRenumberedAnswer) {
  SyntheticJob job = with_fault(Fault::Kind::kOptimizerBusy, 2, 15);
  job.step_count = 200;
  const Diagnosis plain = run_job(job);
  job.rank_numbers = {3, 0, 1, 2};  // the third process, once rank 2, is now rank 1
  job.faults[0].rank = 1;
  const Diagnosis renumbered = run_job(job);
  ASSERT_EQ(plain.findings.size(), 1U);
  ASSERT_EQ(renumbered.findings.size(), 1U);
  EXPECT_THAT(plain.findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(renumbered.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(plain.findings[0].function, renumbered.findings[0].function);
  EXPECT_NEAR(plain.findings[0].cost_ms_per_step, renumbered.findings[0].cost_ms_per_step, 1e-9);
}

TEST(Diagnose, SameInputSameText) {
  const SyntheticJob job = with_fault(Fault::Kind::kInputSleep, 1, 15);
  EXPECT_EQ(to_json(run_job(job)).dump(2), to_json(run_job(job)).dump(2));
}

/// Everything but the patterns, which show every operator.
std::string text_without_patterns(const Diagnosis& diagnosis) {
  const Json all = to_json(diagnosis);
  Json out = Json::object();
  for (const std::string& key : all.keys()) {
    if (key != "patterns") out.set(key, all.at(key));
  }
  return out.dump();
}

TEST(Diagnose, OtherCategoriesDoNotMatter) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 0, 15);
  const Diagnosis plain = run_job(job);
  job.noise_slices = 20'000;
  const Diagnosis noisy = run_job(job);
  EXPECT_EQ(text_without_patterns(plain), text_without_patterns(noisy));
  EXPECT_NE(to_json(plain).at("patterns").dump(), to_json(noisy).at("patterns").dump());
}

TEST(Diagnose, ShortRecordingsAnswerWithLimitedConfidence) {
  SyntheticJob job = with_fault(Fault::Kind::kForwardBusy, 0, 40);
  job.step_count = 13;  // the first do not count
  const Diagnosis d = run_job(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_LE(d.findings[0].confidence, 0.95);
  EXPECT_THAT(d.notes, Contains(HasSubstr("confidence is limited")));
  job.step_count = 11;
  const Diagnosis shorter = run_job(job);
  EXPECT_TRUE(shorter.findings.empty()) << verdict_text(shorter);
  EXPECT_THAT(shorter.notes, Contains(HasSubstr("only 7 steps: no rank is called slow")));
  job.step_count = 5;
  EXPECT_EQ(run_job(job).steps.count, 0U);
}

TEST(Diagnose, RefusesTablesOfUnequalLengthAndOddOptions) {
  trace::Trace trace = make_trace({});
  trace.slices.name.pop_back();
  const Result<Diagnosis> torn = diagnose(trace, {});
  ASSERT_FALSE(torn.has_value());
  EXPECT_EQ(torn.error().code, Code::kCorrupt);
  Options options;
  options.resample_count = 0;
  const Result<Diagnosis> odd = diagnose(make_trace({}), options);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().code, Code::kUnsupported);
}

TEST(Diagnose, HostileValuesAreLeftOut) {
  trace::Trace trace = make_trace(with_fault(Fault::Kind::kForwardBusy, 2, 20));
  for (std::size_t i = 0; i < trace.slices.size(); i += 97) {
    constexpr std::int64_t kOdd[] = {std::numeric_limits<std::int64_t>::min(), -5,
                                     std::numeric_limits<std::int64_t>::max()};
    trace.slices.start_ns[i] = kOdd[i % 3];
    trace.slices.duration_ns[i] = kOdd[(i + 1) % 3];
  }
  trace.slices.track[5] = trace::kNoTrack;
  trace.slices.name[7] = {0xfffffff0};
  trace.slices.arg_begin[11] = 0xfffffff0;
  trace.samples.stack[3] = {0xfffffff0};
  const Result<Diagnosis> d = diagnose(trace, {});
  ASSERT_TRUE(d.has_value());
  EXPECT_THAT(d->notes, Contains(HasSubstr("times are impossible")));
}

TEST(DiagnoseJson, HasTheSchema) {
  const Diagnosis d = run_job(with_fault(Fault::Kind::kInputSleep, 1, 15));
  const Json json = to_json(d);
  EXPECT_EQ(json.at("schema").as_string(), "kansoku.diagnosis/3");
  EXPECT_EQ(json.at("verdict").as_string(), "findings");
  EXPECT_EQ(json.at("steps").at("count").as_int(), static_cast<std::int64_t>(d.steps.count));
  EXPECT_EQ(json.at("steps").at("phases").size(), 4U);
  const Json finding = json.at("findings").at(std::size_t{0});
  EXPECT_EQ(finding.at("kind").as_string(), "slow_input");
  EXPECT_EQ(finding.at("ranks").at(std::size_t{0}).as_int(), 1);
  EXPECT_EQ(finding.at("line").as_int(), 27);
  EXPECT_EQ(json.at("victims").size(), 3U);
  EXPECT_EQ(to_json(Diagnosis{}).at("verdict").as_string(), "nothing_found");
}

TEST(DiagnoseJson, ViewHoldsThePictures) {
  const SyntheticJob job = with_fault(Fault::Kind::kInputSleep, 1, 15);
  const trace::Trace trace = make_trace(job);
  Options options;
  options.heat_column_count_max = 40;
  const Result<Diagnosis> d = diagnose(trace, options);
  ASSERT_TRUE(d.has_value());
  const Json view = view_json(trace, *d);
  EXPECT_EQ(view.at("schema").as_string(), "kansoku.view/2");
  ASSERT_EQ(view.at("heat").size(), 4U);
  EXPECT_EQ(view.at("heat").at(std::size_t{0}).size(), 40U);
  EXPECT_NEAR(view.at("heat").at(std::size_t{1}).at(std::size_t{3}).as_double(), 55, 6);
  EXPECT_GT(view.at("wait_heat").at(std::size_t{0}).at(std::size_t{3}).as_double(), 10);
  EXPECT_EQ(view.at("function_rank").as_int(), 1);
  EXPECT_GT(view.at("facts").at("duration_s").as_double(), 1);
  const Json row = view.at("functions").at(std::size_t{0});
  EXPECT_EQ(row.at("function").as_string(), "SlowDataset.__getitem__");
  EXPECT_NEAR(row.at("difference_ms").as_double(), 15, 4);
  const Json spans = view.at("worst_step").at("ranks").at(std::size_t{0}).at("spans");
  double sum = 0;
  for (std::size_t i = 0; i < spans.size(); ++i)
    sum += spans.at(i).at("duration_ms").as_double();
  EXPECT_NEAR(sum, d->steps.p95_ms, 6);
}

TEST(DiagnoseText, NamesRankFunctionAndCost) {
  const auto found = run_job(with_fault(Fault::Kind::kForwardBusy, 2, 20));
  const std::string text = verdict_text(found);
  EXPECT_THAT(text, HasSubstr("rank 2: slow_forward"));
  EXPECT_THAT(text, HasSubstr("slow_block (/app/train.py:33)"));
  EXPECT_THAT(text, HasSubstr("held up: rank 0, 1, 3"));
  EXPECT_EQ(headline(found).find("rank 2: slow_forward"), 0U);
  EXPECT_THAT(text, HasSubstr("\n" + headline(found) + "\n"));
  EXPECT_THAT(text, HasSubstr("the thread computes"));
  EXPECT_THAT(verdict_text(run_job({})), HasSubstr("nothing found"));
  EXPECT_EQ(headline(run_job({})), "");
  SyntheticJob alone;
  alone.rank_count = 1;
  const std::string unknown = verdict_text(run_job(alone));
  EXPECT_THAT(unknown, HasSubstr("\nnot enough data\nmissing: only one rank"));
  EXPECT_THAT(unknown, testing::Not(HasSubstr("nothing found")));
}

}  // namespace
}  // namespace kansoku::diagnose
