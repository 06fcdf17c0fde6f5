// SPDX-License-Identifier: Apache-2.0
#include "diagnose/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rng.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::HasSubstr;

Diagnosis diagnosis_of(const SyntheticJob& job) {
  auto diagnosis = diagnose(make_trace(job), {});
  EXPECT_TRUE(diagnosis) << diagnosis.error().what;
  return std::move(diagnosis).value();
}

TEST(Baseline, AHealthyRunDoesNotRegressAgainstAnother) {
  const auto baseline = make_baseline(diagnosis_of({.seed = 1}));
  ASSERT_TRUE(baseline) << baseline.error().what;
  const auto found = compare_with_baseline(diagnosis_of({.seed = 2}), *baseline);
  ASSERT_TRUE(found);
  EXPECT_FALSE(*found);
}

TEST(Baseline, SeesWhatIsSlowOnAllRanksFromTheFirstStep) {
  const auto baseline = make_baseline(diagnosis_of({.seed = 1}));
  ASSERT_TRUE(baseline);
  SyntheticJob slow{.seed = 2};
  slow.forward_ms += 8;  // every rank, every step: nobody differs from anybody
  const Diagnosis diagnosis = diagnosis_of(slow);
  EXPECT_TRUE(diagnosis.findings.empty());
  const auto found = compare_with_baseline(diagnosis, *baseline);
  ASSERT_TRUE(found);
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->kind, "regression");
  EXPECT_EQ((*found)->phase, "forward");
  EXPECT_NEAR((*found)->cost_ms_per_step, 8, 1);
  EXPECT_EQ((*found)->ranks.size(), 4U);
  EXPECT_THAT((*found)->evidence.front(), HasSubstr("baseline"));
}

TEST(Baseline, MoreQueueingIsALineOfTheFindingThatSaysForWhom) {
  Finding regression;
  regression.kind = "regression";
  regression.phase = "runnable";
  regression.evidence = {"median step 60 ms, baseline 40 ms"};
  Finding queueing;
  queueing.kind = "cpu_contention";
  Diagnosis starved;
  starved.findings = {queueing};
  add_regression(starved, regression);
  ASSERT_EQ(starved.findings.size(), 1U);
  EXPECT_EQ(starved.findings[0].evidence.back(), "median step 60 ms, baseline 40 ms");
  regression.phase = "backward";
  add_regression(starved, regression);
  EXPECT_EQ(starved.findings.size(), 2U) << "another cause";
  regression.phase = "runnable";
  Diagnosis unexplained;
  add_regression(unexplained, regression);
  EXPECT_EQ(unexplained.findings.size(), 1U);
}

TEST(Baseline, RefusesWhatDoesNotFit) {
  const Diagnosis diagnosis = diagnosis_of({.seed = 1});
  EXPECT_EQ(compare_with_baseline(diagnosis, Json::object()).error().code, Code::kUnsupported);
  const auto baseline = make_baseline(diagnosis);
  ASSERT_TRUE(baseline);
  EXPECT_EQ(
      compare_with_baseline(diagnosis_of({.rank_count = 3, .seed = 1}), *baseline).error().code,
      Code::kUnsupported);
  EXPECT_EQ(make_baseline(Diagnosis{}).error().code, Code::kNotFound);
  SyntheticJob faulty{.seed = 1};
  faulty.faults.push_back({.kind = Fault::Kind::kForwardBusy, .rank = 1, .cost_ms = 30});
  EXPECT_EQ(make_baseline(diagnosis_of(faulty)).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::diagnose
