// SPDX-License-Identifier: Apache-2.0
#include "diagnose/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "common/rng.h"
#include "diagnose/pipeline_for_test.h"
#include "diagnose/timeline.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WhatIf simulated(const PipelineJob& job) {
  const auto out = what_if(make_pipeline_trace(job), {});
  if (!out || !*out) {
    ADD_FAILURE() << (out ? "no timeline" : out.error().what);
    return {};
  }
  return **out;
}

Diagnosis diagnosed(const PipelineJob& job) {
  const auto out = diagnose_timeline(make_pipeline_trace(job), {});
  if (!out || !*out) {
    ADD_FAILURE() << (out ? "no timeline" : out.error().what);
    return {};
  }
  return **out;
}

const Suspect& suspect(const WhatIf& what_if, std::string_view kind) {
  for (const Suspect& suspect : what_if.suspects) {
    if (suspect.kind == kind) return suspect;
  }
  ADD_FAILURE() << "no suspect " << kind;
  static const Suspect kNone;
  return kNone;
}

PipelineJob with_slow_worker(int data_rank, int stage, double times) {
  PipelineJob job;
  job.factor = [=](const PipelinePlace& at) {
    return at.data_rank == data_rank && at.stage == stage ? times : 1.0;
  };
  return job;
}

// The generator's closed form is the time that is recorded, and the time that is simulated.
TEST(WhatIf, ExplainsAllOfALossAtMost) {
  EXPECT_EQ(explained_share(3, 2, 1), 0.5);
  EXPECT_EQ(explained_share(3, 0.5, 1), 1) << "its peers are faster than the mean";
  EXPECT_EQ(explained_share(3, 4, 1), 0);
  EXPECT_EQ(explained_share(1, 1, 1), 0) << "nothing is lost";
}

TEST(WhatIf, EqualWorkersHaveNoSlowdown) {
  for (const std::int64_t transfer_us : {0, 100}) {
    PipelineJob job;
    job.transfer_us = transfer_us;
    const WhatIf w = simulated(job);
    EXPECT_NEAR(w.recorded_s, pipeline_step_s(job), 1e-12);
    EXPECT_NEAR(w.original_s, pipeline_step_s(job), 1e-12);
    EXPECT_NEAR(w.ideal_s, pipeline_step_s(job), 1e-12);
    EXPECT_NEAR(w.slowdown, 1, 1e-12);
    EXPECT_EQ(w.step_count, 3U);
    EXPECT_EQ(w.worker_count, 8U);
    for (const auto* parts : {&w.by_operation, &w.by_data_rank, &w.by_stage}) {
      for (const PartSlowdown& part : *parts)
        EXPECT_NEAR(part.slowdown, 1, 1e-12) << part.name;
    }
    EXPECT_THAT(w.notes, IsEmpty());
    EXPECT_THAT(diagnosed(job).findings, IsEmpty());
  }
}

// One worker of P * D = 8 computes k times as long. Each micro-batch then takes k (f + b) at it:
//   original = (P - 1)(f + b) + M k (f + b) + g + o
// The mean of a computation is (1 + (k - 1) / 8) times as long, which is the ideal one:
//   ideal = (M + P - 1)(f + b)(1 + (k - 1) / 8) + g + o
// With the worker alone at that mean, m = 1 + (k - 1) / 8:
//   fixed = (P - 1)(f + b) + M m (f + b) + g + o,  M = (original - fixed) / (original - ideal)
TEST(WhatIf, OneSlowWorkerGivesTheClosedForm) {
  for (const double k : {1.5, 2.0, 4.0}) {
    for (const int stage : {0, 1, 3}) {
      const WhatIf w = simulated(with_slow_worker(1, stage, k));
      const double fb = 3e-3, rest = 0.8e-3, mean = 1 + (k - 1) / 8;
      const double original = 3 * fb + 6 * k * fb + rest;
      const double ideal = 9 * fb * mean + rest;
      const double fixed = 3 * fb + 6 * mean * fb + rest;
      EXPECT_NEAR(w.original_s, original, 1e-9) << k << " stage " << stage;
      EXPECT_NEAR(w.ideal_s, ideal, 1e-9);
      EXPECT_NEAR(w.slowdown, original / ideal, 1e-6);
      const Suspect& worker = suspect(w, "worker");
      EXPECT_THAT(worker.ranks, ElementsAre(4 + stage));
      EXPECT_NEAR(worker.fixed_s, fixed, 1e-9);
      const double explained = (original - fixed) / (original - ideal);
      EXPECT_NEAR(worker.explained, std::min(1.0, explained), 1e-6);
      EXPECT_GE(worker.explained, 0.99);
      EXPECT_EQ(worker.support, 1.0);
      EXPECT_EQ(w.by_data_rank.front().name, "1");
      EXPECT_EQ(w.by_stage.front().name, std::to_string(stage));
    }
  }
}

TEST(WhatIf, OneSlowWorkerIsTheFinding) {
  const Diagnosis d = diagnosed(with_slow_worker(1, 2, 2));
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "slow_worker");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(6));
  EXPECT_EQ(d.findings[0].confidence, 1.0);
  EXPECT_EQ(d.findings[0].function, "backward-compute");
  ASSERT_TRUE(d.slowdown.has_value());
  EXPECT_GT(*d.slowdown, 1.3);
}

// Every data-parallel rank has the same heavier last stage: no worker is alone.
TEST(WhatIf, AHeavierLastStageIsAStageImbalance) {
  PipelineJob job;
  job.factor = [](const PipelinePlace& at) { return at.stage == 3 ? 2.0 : 1.0; };
  const WhatIf w = simulated(job);
  // Evened out, each of 4 stages takes 1.25: nothing is left of the difference.
  EXPECT_NEAR(suspect(w, "stage_balance").explained, 1, 1e-6);
  EXPECT_NEAR(suspect(w, "data_balance").explained, 0, 1e-6);
  EXPECT_LT(suspect(w, "worker").explained, 0.1);
  EXPECT_THAT(suspect(w, "last_stage").ranks, ElementsAre(3, 7));
  const Diagnosis d = diagnosed(job);
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "stage_imbalance");
}

// Micro-batches of 0.5 to 1.5 times the mean work, the same on all stages, forward and backward.
TEST(WhatIf, MicroBatchesOfUnequalWorkAreADataImbalance) {
  PipelineJob job;
  job.step_count = 6;
  job.factor = [](const PipelinePlace& at) {
    Rng rng(5, static_cast<std::uint64_t>((at.step * 100 + at.data_rank) * 100 + at.micro_batch));
    return 0.5 + static_cast<double>(rng.below(1000)) / 1000;
  };
  const WhatIf w = simulated(job);
  EXPECT_NEAR(w.forward_backward_correlation, 1, 1e-6);
  // The two data-parallel ranks drew unequal sums, which stay when each is evened out for itself.
  EXPECT_GT(suspect(w, "data_balance").explained, 0.75);
  EXPECT_NEAR(suspect(w, "stage_balance").explained, 0, 0.01);
  const Diagnosis d = diagnosed(job);
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "data_imbalance");
}

TEST(WhatIf, TheOrderOfEventsDoesNotMatter) {
  PipelineJob job = with_slow_worker(0, 1, 3);
  const WhatIf in_order = simulated(job);
  const std::string found = diagnosed(job).findings.at(0).kind;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    job.shuffle_seed = seed;
    const WhatIf shuffled = simulated(job);
    EXPECT_NEAR(shuffled.slowdown, in_order.slowdown, 1e-9);
    EXPECT_NEAR(shuffled.recorded_s, in_order.recorded_s, 1e-12);
    EXPECT_NEAR(suspect(shuffled, "worker").explained, suspect(in_order, "worker").explained, 1e-9);
    EXPECT_EQ(suspect(shuffled, "worker").ranks, suspect(in_order, "worker").ranks);
    EXPECT_EQ(diagnosed(job).findings.at(0).kind, found);
  }
}

// All times k times as long: the same shares, k times the cost.
TEST(WhatIf, TheScaleOfTimeDoesNotMatter) {
  PipelineJob job = with_slow_worker(1, 0, 2);
  const WhatIf once = simulated(job);
  for (auto* us : {&job.forward_us, &job.backward_us, &job.scatter_us, &job.optimizer_us})
    *us *= 7;
  const WhatIf longer = simulated(job);
  EXPECT_NEAR(longer.slowdown, once.slowdown, 1e-9);
  EXPECT_NEAR(longer.original_s, 7 * once.original_s, 1e-9);
}

TEST(WhatIf, MissingOperationsCountAsTheMeanAndAreNoted) {
  PipelineJob job;
  job.is_missing = [](const PipelinePlace& at) {
    return at.step == 1 && at.data_rank == 1 && at.stage == 2 && at.micro_batch < 2;
  };
  const WhatIf w = simulated(job);
  EXPECT_NEAR(w.slowdown, 1, 1e-9);
  EXPECT_THAT(w.notes, Contains(HasSubstr("2 missing operations count as the mean")));
  // Those that the first step of the first rank lacks are known from nowhere.
  job.is_missing = [](const PipelinePlace& at) {
    return at.step == 0 && at.data_rank == 0 && at.stage == 0 && at.micro_batch == 5;
  };
  const auto refused = what_if(make_pipeline_trace(job), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().what, HasSubstr("stage 0 has 6 forward-send for 5 forward-compute"));
  job.stage_count = 1;  // no transfers: five others, of two steps and two ranks but one
  EXPECT_THAT(simulated(job).notes,
              Contains("5 operations that the first step lacks were left out"));
}

TEST(WhatIf, ASecondTensorRankIsLeftOut) {
  PipelineJob job;
  const WhatIf alone = simulated(job);
  job.has_second_tensor_rank = true;
  const WhatIf both = simulated(job);
  EXPECT_NEAR(both.slowdown, 1, 1e-12);
  EXPECT_NEAR(both.original_s, alone.original_s, 1e-12);
  EXPECT_EQ(both.operation_count, alone.operation_count);
  EXPECT_THAT(both.notes, Contains(HasSubstr("belong to further tensor-parallel ranks")));
}

TEST(WhatIf, AStageWithoutOperationsIsRefused) {
  trace::Trace trace = make_pipeline_trace({});
  // Data-parallel rank 1 has operations of stage 3 only elsewhere: 7 workers of 8.
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const trace::Track& track = trace.tracks[trace.slices.track[i].raw];
    if (track.pid == 2 && track.tid == 5 * 7) trace.slices.name[i] = trace.strings.intern("other");
  }
  const auto out = what_if(trace, {});
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.error().code, Code::kCorrupt);
  EXPECT_THAT(out.error().what, HasSubstr("need 8 workers, 7 have operations"));
}

TEST(WhatIf, OtherTracesAreNoTimeline) {
  const auto empty = what_if(trace::Trace{}, {});
  ASSERT_TRUE(empty.has_value());
  EXPECT_FALSE(empty->has_value());
  const auto diagnosis = diagnose_timeline(trace::Trace{}, {});
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_FALSE(diagnosis->has_value());
}

TEST(WhatIf, AJobOfOneWorkerHasNobodyToBlame) {
  PipelineJob job;
  job.stage_count = job.data_rank_count = 1;
  const WhatIf w = simulated(job);
  EXPECT_NEAR(w.slowdown, 1, 1e-12);
  EXPECT_NEAR(w.original_s, pipeline_step_s(job), 1e-12);
  EXPECT_THAT(diagnosed(job).findings, IsEmpty());
}

}  // namespace
}  // namespace kansoku::diagnose
