// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/past.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/rng.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

/// Steps of `before_ms` and, from `at` on, of `after_ms`; every one 10 % up or down at random.
std::vector<double> steps(std::size_t count, std::size_t at, double before_ms, double after_ms,
                          std::uint64_t seed = 1) {
  Rng rng(seed);
  std::vector<double> out;
  for (std::size_t s = 0; s < count; ++s) {
    const double noise = 0.9 + 0.2 * static_cast<double>(rng.below(1000)) / 1000;
    out.push_back((s < at ? before_ms : after_ms) * noise);
  }
  return out;
}

TEST(FindChange, NamesTheStep) {
  const auto change = find_change(steps(200, 120, 50, 70), 20, {});
  ASSERT_TRUE(change);
  EXPECT_NEAR(static_cast<double>(change->step), 120, 2);
  EXPECT_NEAR(change->before_ms, 50, 1);
  EXPECT_NEAR(change->after_ms, 70, 1);
  EXPECT_GT(change->confidence, 0.99);
}

TEST(FindChange, LongRecordingsAreLookedAtInRunsOfSteps) {
  const auto change = find_change(steps(20'000, 12'000, 50, 60), 20, {});
  ASSERT_TRUE(change);
  EXPECT_NEAR(static_cast<double>(change->step), 12'000, 20);
  EXPECT_NEAR(change->before_ms, 50, 0.5);
}

TEST(FindChange, NoiseIsNoChange) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto change = find_change(steps(200, 200, 50, 50, seed), 20, {});
    found += change && change->confidence >= 0.95 ? 1 : 0;
  }
  EXPECT_LE(found, 10);  // 5 expected
}

TEST(FindChange, FasterStepsFewStepsAndOneLongStepAreNone) {
  const auto faster = find_change(steps(200, 100, 70, 50), 20, {});
  EXPECT_TRUE(!faster || faster->confidence < 0.95);
  EXPECT_FALSE(find_change(steps(39, 20, 50, 90), 20, {}));
  EXPECT_FALSE(find_change({}, 20, {}));
  std::vector<double> once = steps(200, 200, 50, 50);
  once[150] = 5000;
  const auto change = find_change(once, 20, {});
  EXPECT_TRUE(!change || change->after_ms < 1.02 * change->before_ms);
}

Diagnosis run_past(SyntheticJob job) {
  job.rank_count = 1;
  job.tells_ranks = false;
  job.step_count = 240;
  return diagnose(make_trace(job), {}).value();
}

TEST(FindSlowed, NamesTimePhaseAndFunction) {
  SyntheticJob job;
  job.faults.push_back({.kind = Fault::Kind::kForwardBusy, .cost_ms = 25, .from = 120});
  const Diagnosis d = run_past(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  const Finding& finding = d.findings[0];
  EXPECT_EQ(finding.kind, "slowed");
  EXPECT_EQ(finding.phase, "forward");
  EXPECT_NE(finding.function, "");
  EXPECT_THAT(finding.ranks, ElementsAre(0));
  EXPECT_NEAR(finding.cost_ms_per_step, 25, 2);
  EXPECT_NEAR(finding.share, 25.0 / (40 + 25), 0.02);  // of a step as it is now
  EXPECT_THAT(finding.evidence.front(), HasSubstr("s into the recording, a step takes"));
  EXPECT_THAT(finding.evidence, Contains(HasSubstr(" ms before")));
  EXPECT_THAT(finding.evidence, Not(Contains(HasSubstr("peers"))));
  EXPECT_THAT(finding.evidence, Not(Contains(HasSubstr("rank"))));
  EXPECT_THAT(verdict_text(d), HasSubstr("the process: slowed, "));
}

TEST(FindSlowed, IsToldBesideWhatIsThereAllTheTime) {
  SyntheticJob job;
  job.input_ms = 60;
  job.faults.push_back({.kind = Fault::Kind::kForwardBusy, .cost_ms = 40, .from = 120});
  const Diagnosis d = run_past(job);
  EXPECT_THAT(kinds_of(d), UnorderedElementsAre("common_input", "slowed")) << verdict_text(d);
  job.faults[0].kind = Fault::Kind::kInputSleep;
  const Diagnosis one = run_past(job);
  ASSERT_THAT(kinds_of(one), ElementsAre("common_input")) << verdict_text(one);
  EXPECT_THAT(one.findings[0].evidence, Contains(HasSubstr("s into the recording, a step takes")));
}

TEST(FindSlowed, AProcessThatStaysAsItIsHasNone) {
  EXPECT_THAT(run_past({}).findings, IsEmpty());
  SyntheticJob seldom;
  seldom.faults.push_back({.kind = Fault::Kind::kCheckpoint, .cost_ms = 60, .every = 40});
  for (const Finding& finding : run_past(seldom).findings)
    EXPECT_NE(finding.kind, "slowed");
}

}  // namespace
}  // namespace kansoku::diagnose
