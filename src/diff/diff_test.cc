// SPDX-License-Identifier: Apache-2.0
#include "diff/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "diff/synthetic_for_test.h"

namespace kansoku::diff {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kSeeds = 10;

TEST(Diff, TenNullPairsShowNothing) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Job after{.seed = seed + 100};
    after.renumbers = seed % 3 == 0;
    after.reorders = seed % 2 == 0;
    const Comparison comparison = compared({.seed = seed}, after);
    EXPECT_EQ(found(comparison), "") << "seed " << seed;
    EXPECT_FALSE(comparison.has_findings()) << "seed " << seed;
    EXPECT_GT(comparison.comparisons, 30U);
  }
}

TEST(Diff, FindsAKernelTenPercentSlower) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Job after{.seed = seed + 100};
    after.slower["rope"] = 1.1;
    const Comparison comparison = compared({.seed = seed}, after);
    EXPECT_EQ(found(comparison), "rope slower") << "seed " << seed;
    const Row* rope = row_named(comparison, "rope");
    ASSERT_NE(rope, nullptr);
    EXPECT_THAT(rope->before_ms / comparison.step.before, DoubleNear(0.04, 0.015));
    EXPECT_LT(*rope->call.low, 1.11);
    EXPECT_GT(*rope->call.high, 1.09);
  }
}

TEST(Diff, FindsTwoPercentOnAnExactClock) {
  Job before{.seed = 1}, after{.seed = 2};
  before.is_exact = after.is_exact = true;
  EXPECT_FALSE(compared(before, after).has_findings());
  after.slower["rope"] = 1.02;
  const Comparison comparison = compared(before, after);
  EXPECT_TRUE(comparison.device_clock_exact);
  EXPECT_TRUE(comparison.device_clock_apart);
  EXPECT_EQ(found(comparison), "rope slower");
  EXPECT_NEAR(*row_named(comparison, "rope")->call.ratio, 1.02, 1e-6);
  EXPECT_FALSE(comparison.lanes[0].uncovered_ms.has_value());  // its idle time is not known
}

TEST(Diff, SaysABatchOnce) {
  Job after{.seed = 2};
  after.batch = 2;
  const Comparison comparison = compared({.seed = 1}, after);
  ASSERT_TRUE(comparison.batch.has_value());
  EXPECT_NEAR(comparison.batch->factor, 2, 0.01);
  EXPECT_EQ(comparison.batch->scaled, 11U);
  EXPECT_EQ(comparison.batch->unchanged, 1U);                    // adamw
  EXPECT_EQ(found(comparison), "forward (train.py) more time");  // the host waits for longer
  EXPECT_THAT(to_text(comparison), HasSubstr("batch or shape changed: grids x2 in 11 rows"));
}

TEST(Diff, ABatchHidesNoKernelThatIsSlowerForItsWork) {
  Job after{.seed = 2};
  after.batch = 2;
  after.slower["rope"] = 1.6;
  const Comparison comparison = compared({.seed = 1}, after);
  EXPECT_THAT(found(comparison), HasSubstr("rope larger, slower"));
  EXPECT_NEAR(*row_named(comparison, "rope")->call.ratio, 1.6, 0.1);
}

// The grid of a persistent kernel says nothing of its work: the shapes of its operator do.
TEST(Diff, TheWorkOfAKernelIsThatOfItsOperator) {
  Job before{.seed = 1}, after{.seed = 2};
  before.persistent = after.persistent = "rope";
  before.has_dims = after.has_dims = true;
  after.batch = 2;
  const Comparison comparison = compared(before, after);
  ASSERT_TRUE(comparison.batch.has_value());
  EXPECT_EQ(comparison.batch->unit, "work");
  EXPECT_EQ(comparison.batch->scaled, 11U);
  EXPECT_THAT(found(comparison), Not(HasSubstr("rope")));
  EXPECT_NEAR(*row_named(comparison, "rope")->call.ratio, 1, 0.05);
}

// An optimizer's operator takes lists of tensors: its kernel's grid is left.
TEST(Diff, AListOfTensorsHasNoSize) {
  Job before{.seed = 1}, after{.seed = 2};
  before.has_dims = after.has_dims = before.has_lists = after.has_lists = true;
  after.batch = 1.5;
  const Comparison comparison = compared(before, after);
  ASSERT_TRUE(comparison.batch.has_value());
  EXPECT_EQ(comparison.batch->unit, "grids");
  EXPECT_THAT(found(comparison), Not(HasSubstr("slower")));
}

// A host that launches takes as long for any batch.
TEST(Diff, AnOperatorOnTheHostIsNotSlowerForLessWork) {
  Job before{.seed = 1}, after{.seed = 2};
  before.has_dims = after.has_dims = true;
  before.operator_us = after.operator_us = 15;
  before.without = after.without = "adamw";  // no shape is on both sides
  before.batch = 8;
  EXPECT_THAT(found(compared(before, after)), Not(HasSubstr("slower")));
  after.operator_us = 30;
  EXPECT_THAT(found(compared(before, after)), HasSubstr("slower"));
}

// The host runs ahead and waits in each fourth step alone: these are no stalls.
TEST(Diff, StepsThatWaitInTurnAllCount) {
  Job before{.seed = 1}, after{.seed = 2};
  after.waits_every = 4;
  after.python_ms = before.python_ms = 0;
  const Comparison comparison = compared(before, after);
  EXPECT_NEAR(comparison.step.after / comparison.step.before, 1, 0.1);
  EXPECT_EQ(comparison.after.stalls, 0U);
}

// Shapes were recorded on one side alone.
TEST(Diff, WorkIsNotComparedWithBlocks) {
  Job before{.seed = 1}, after{.seed = 2};
  before.has_dims = true;
  EXPECT_THAT(found(compared(before, after)), Not(HasSubstr("slower")));
  EXPECT_THAT(found(compared(after, before)), Not(HasSubstr("slower")));
  after.slower["rope"] = 1.5;
  EXPECT_THAT(found(compared(before, after)), HasSubstr("rope slower"));
}

TEST(Diff, TellsAChangedBuild) {
  Job after{.seed = 2};
  after.without = "softmax";
  after.added = "flash_attention";
  after.names["gemm_out"] = "void gemm<float, 32, 64>(float const*, float*, int)";
  const Comparison comparison = compared({.seed = 1}, after);
  EXPECT_THAT(found(comparison),
              AllOf(HasSubstr("softmax<__half> removed"), HasSubstr("fused_add new")));
  const Row* gemm = row_named(comparison, "gemm<float, 32, 64>");
  ASSERT_NE(gemm, nullptr);
  EXPECT_EQ(gemm->match, Match::kTemplate);
  EXPECT_EQ(gemm->before_name, "gemm<float,64,64>");
  EXPECT_FALSE(gemm->is_significant);
  EXPECT_THAT(to_text(comparison),
              HasSubstr("kernels changed: 1 new, 1 removed, 1 under another name"));
}

TEST(Diff, TakesWhatAllKernelsShareForTheMachine) {
  Job after{.seed = 2};
  after.machine = 1.25;
  after.slower["loss"] = 1.5;
  const Comparison comparison = compared({.seed = 1}, after);
  ASSERT_EQ(comparison.commons.size(), 1U);
  EXPECT_NEAR(comparison.commons[0].factor.after, 1.25, 0.02);
  EXPECT_EQ(found(comparison), "cross_entropy slower");
  after.slower.clear();
  const Comparison machine = compared({.seed = 1}, after);
  EXPECT_EQ(found(machine), "");
  EXPECT_FALSE(machine.has_findings());
  EXPECT_THAT(to_text(machine), HasSubstr("nothing significant beside the machine"));
}

// Beside kernels that take twice as long one that stood still is not faster.
TEST(Diff, ARowThatDidNotChangeIsNotTold) {
  Job after{.seed = 2};
  after.machine = 2;
  after.slower["adamw"] = 0.5;
  const Comparison comparison = compared({.seed = 1}, after);
  ASSERT_EQ(comparison.commons.size(), 1U);
  EXPECT_NEAR(*row_named(comparison, "adamw<float>")->call.ratio, 1, 0.03);
  EXPECT_THAT(found(comparison), Not(HasSubstr("adamw")));
  after.slower["adamw"] = 0.3;
  EXPECT_THAT(found(compared({.seed = 1}, after)), HasSubstr("adamw<float> faster"));
}

TEST(Diff, FindsMoreLaunches) {
  Job after{.seed = 2};
  after.more_launches["layer_norm"] = 2;
  const Comparison comparison = compared({.seed = 1}, after);
  EXPECT_THAT(found(comparison), HasSubstr("layer_norm<float, 4> more calls"));
  const Row* row = row_named(comparison, "layer_norm<float, 4>");
  EXPECT_DOUBLE_EQ(row->calls.before, 8);
  EXPECT_DOUBLE_EQ(row->calls.after, 10);
}

TEST(Diff, FindsTheRankThatChangedAlone) {
  Job before{.seed = 1}, after{.seed = 2};
  before.ranks = after.ranks = 4;
  after.slower["gemm_mlp"] = 1.2;
  after.only_rank = 2;
  const Comparison comparison = compared(before, after);
  const Row* row = row_named(comparison, "gemm<float, 256, 64>");
  ASSERT_NE(row, nullptr);
  EXPECT_TRUE(row->is_significant);
  EXPECT_EQ(row->rank, 2);
  EXPECT_NEAR(*row->call.ratio, 1.2, 0.03);
}

TEST(Diff, FindsAFunctionBySamples) {
  Job before{.seed = 1}, after{.seed = 2};
  after.python_ms = 8;
  const Comparison comparison = compared(before, after);
  EXPECT_THAT(found(comparison), HasSubstr("augment (train.py) more time"));
}

TEST(Diff, TheDeviceLaneAddsUpToTheStep) {
  Job after{.seed = 2};
  after.slower["gemm_mlp"] = 1.3;
  const Comparison comparison = compared({.seed = 1}, after);
  const LaneSum& device = comparison.lanes[0];
  ASSERT_TRUE(device.uncovered_ms.has_value());
  const double step = comparison.step.after - comparison.step.before;
  EXPECT_NEAR(device.explained_ms + device.others_ms + *device.uncovered_ms, step, 1e-9);
  EXPECT_NEAR(device.explained_ms, 0.3 * 4 * 1.1, 0.1);
  EXPECT_LT(std::abs(*device.uncovered_ms), 0.1);
}

TEST(Diff, SaysWhatNothingExplains) {
  Job after{.seed = 2};
  after.idle_ms = 15;
  const Comparison comparison = compared({.seed = 1}, after);
  EXPECT_TRUE(comparison.step.is_significant);
  EXPECT_NEAR(comparison.lanes[0].uncovered_ms.value_or(0), 15, 0.5);
}

TEST(Diff, FindsStepsByAKernelWithoutALoop) {
  Job before{.seed = 1}, after{.seed = 2};
  before.has_loop = after.has_loop = false;
  after.slower["rope"] = 1.1;
  const Comparison comparison = compared(before, after);
  EXPECT_TRUE(comparison.missing.empty());
  EXPECT_THAT(comparison.before.found_by, HasSubstr("kernel "));
  EXPECT_GE(comparison.before.steps, 90U);
  EXPECT_EQ(found(comparison), "rope slower");
}

TEST(Diff, SaysThatThereAreNoSteps) {
  const Comparison comparison = compared({.steps = 3, .has_loop = false}, {.steps = 100});
  EXPECT_EQ(comparison.missing.size(), 1U);
  EXPECT_EQ(to_json(comparison).at("verdict").as_string(), "not_enough_data");
  EXPECT_THAT(to_text(comparison), HasSubstr("not enough data"));
}

TEST(Diff, SeveralRecordingsShowTheVariationBetweenRuns) {
  std::vector<trace::Trace> traces;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Job job{.seed = seed};
    // Far noisier than the prior has it: rope differs by 15 % from run to run.
    job.slower["rope"] = seed % 2 == 0 ? 1.15 : 1;
    traces.push_back(recorded(job));
  }
  std::vector<Input> inputs;
  for (const trace::Trace& trace : traces)
    inputs.push_back({"run", &trace});
  const std::span<const Input> all = inputs;
  const auto one = compare(all.subspan(0, 1), all.subspan(1, 1), {});
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(found(*one), "rope slower");
  const auto three = compare(all.subspan(0, 3), all.subspan(3), {});
  ASSERT_TRUE(three.has_value());
  EXPECT_EQ(found(*three), "");
}

TEST(Diff, IsTheSameForAllSeedsOfTheOrderOfNames) {
  Job plain{.seed = 1}, reordered{.seed = 1};
  reordered.reorders = true;
  const Job after{.seed = 2};
  Json a = to_json(compared(plain, after)), b = to_json(compared(reordered, after));
  EXPECT_EQ(a.dump(), b.dump());
}

TEST(Diff, RefusesColumnsOfUnequalLength) {
  trace::Trace broken = recorded({.steps = 10});
  broken.slices.name.pop_back();
  const Input input{"broken", &broken};
  const auto result = compare({&input, 1}, {&input, 1}, {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kCorrupt);
}

TEST(Diff, TakesIdsThatTheTraceDoesNotHave) {
  trace::Trace odd = recorded({.steps = 10});
  odd.slices.category[0] = trace::StringId{1U << 30};
  odd.slices.name[1] = trace::StringId{1U << 30};
  odd.slices.track[2] = trace::TrackId{1U << 30};
  odd.slices.arg_begin[3] = 1U << 30;
  odd.slices.start_ns[4] = INT64_MIN;
  odd.slices.duration_ns[5] = -7;
  odd.samples.stack[0] = trace::StackId{1U << 30};
  odd.flows.id.push_back(1);
  odd.flows.slice.push_back(1U << 30);
  const Input input{"odd", &odd};
  EXPECT_TRUE(compare({&input, 1}, {&input, 1}, {}).has_value());
}

}  // namespace
}  // namespace kansoku::diff
