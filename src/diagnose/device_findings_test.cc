// SPDX-License-Identifier: Apache-2.0
#include "diagnose/device_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Diagnosis job_of_four() {
  Diagnosis job;
  job.job = "four";
  job.rank_numbers = {0, 1, 2, 3};
  job.pids = {100, 101, 102, 103};
  job.steps.count = 50;
  job.steps.mean_ms = 200;
  job.steps.found_by = "optimizer";
  return job;
}

Finding host_finding(std::string kind, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.kind = std::move(kind);
  finding.ranks = std::move(ranks);
  finding.phase = "forward";
  finding.function = "layer";
  finding.cost_ms_per_step = 30;
  finding.share = 0.15;
  finding.confidence = 1;
  return finding;
}

DeviceFinding device_finding(std::string kind, std::string detail, std::vector<std::int32_t> ranks,
                             double share) {
  DeviceFinding finding;
  finding.kind = std::move(kind);
  finding.detail = std::move(detail);
  for (const std::int32_t rank : ranks)
    finding.pids.push_back(100 + rank);
  finding.ranks = std::move(ranks);
  finding.share = share;
  finding.verdict = "a sentence";
  finding.evidence = {"a figure"};
  return finding;
}

TEST(DeviceFindingsTest, OneOfItsOwnStandsByCostAndMakesVictims) {
  Diagnosis job = job_of_four();
  add_device_findings(
      {}, {.findings = {device_finding("slow_kernel", "clocked_lower", {2}, 0.1)}, .pids = {}},
      job);
  ASSERT_THAT(kinds_of(job), ElementsAre("slow_kernel"));
  EXPECT_DOUBLE_EQ(job.findings[0].cost_ms_per_step, 20);
  EXPECT_THAT(job.findings[0].evidence, ElementsAre("a sentence", "a figure"));
  EXPECT_THAT(job.victims, ElementsAre(0, 1, 3));
  EXPECT_EQ(job.verdict(), Verdict::kFindings);
  EXPECT_THAT(verdict_text(job), HasSubstr("rank 2: slow_kernel (clocked_lower), 20.0 ms per step "
                                           "(10 %)\n"));
}

TEST(DeviceFindingsTest, TheHostWaitsForASlowDevice) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("slow_forward", {2})};
  add_device_findings(
      {}, {.findings = {device_finding("slow_kernel", "clocked_lower", {2}, 0.1)}, .pids = {}},
      job);
  ASSERT_THAT(kinds_of(job), ElementsAre("slow_kernel"));
  EXPECT_EQ(job.findings[0].function, "layer");
  EXPECT_EQ(job.findings[0].evidence.back(),
            "the host shows it as slow_forward, 30.0 ms per step in layer");
}

TEST(DeviceFindingsTest, TheDeviceWaitsForASlowHost) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("slow_forward", {2})};
  add_device_findings(
      {}, {.findings = {device_finding("gpu_starved", "function", {2}, 0.2)}, .pids = {}}, job);
  ASSERT_THAT(kinds_of(job), ElementsAre("slow_forward"));
  const std::vector<std::string>& evidence = job.findings[0].evidence;
  ASSERT_GE(evidence.size(), 2U);
  EXPECT_THAT(evidence[evidence.size() - 2],
              HasSubstr("the devices show it as gpu_starved (function), 20 %: a sentence"));
  EXPECT_EQ(evidence.back(), "a figure") << "which names the function";
}

TEST(DeviceFindingsTest, AnotherRankIsAnotherFinding) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("slow_forward", {1})};
  add_device_findings(
      {}, {.findings = {device_finding("slow_kernel", "clocked_lower", {2}, 0.3)}, .pids = {}},
      job);
  EXPECT_THAT(kinds_of(job), ElementsAre("slow_kernel", "slow_forward"));
}

TEST(DeviceFindingsTest, PeersThatWaitForACulpritAreNoFinding) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("slow_forward", {1})};
  add_device_findings(
      {}, {.findings = {device_finding("gpu_starved", "collective", {0, 2, 3}, 0.3)}, .pids = {}},
      job);
  ASSERT_THAT(kinds_of(job), ElementsAre("slow_forward"));
  EXPECT_THAT(job.findings[0].evidence.back(), HasSubstr("gpu_starved (collective)"));
  Diagnosis healthy = job_of_four();
  add_device_findings(
      {}, {.findings = {device_finding("gpu_starved", "collective", {0, 2, 3}, 0.3)}, .pids = {}},
      healthy);
  EXPECT_THAT(kinds_of(healthy), ElementsAre("gpu_starved"));
}

TEST(DeviceFindingsTest, MemoryThatEndedARankExplainsTheHang) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("stopped", {3}), host_finding("slow_input", {1})};
  DeviceFinding memory = device_finding("memory_pressure", "out_of_memory", {3}, 0);
  memory.share.reset();
  add_device_findings({}, {.findings = {memory}, .pids = {}}, job);
  EXPECT_THAT(kinds_of(job), ElementsAre("memory_pressure", "slow_input"));
  EXPECT_THAT(verdict_text(job), HasSubstr("rank 3: memory_pressure (out_of_memory)\n"));
}

TEST(DeviceFindingsTest, AProcessOfNoJobIsAJobOfItsOwn) {
  Diagnosis none;
  none.missing = {"no job"};
  DeviceFinding finding = device_finding("launch_bound", "launches", {}, 0.25);
  finding.pids = {77};
  add_device_findings({}, {.findings = {finding}, .pids = {}}, none);
  EXPECT_EQ(none.job, "process 77");
  EXPECT_TRUE(none.is_single);
  EXPECT_THAT(none.missing, IsEmpty());
  EXPECT_THAT(none.other_jobs, IsEmpty());
  EXPECT_THAT(verdict_text(none),
              HasSubstr("the process: launch_bound (launches), 25 % of the time\n"));

  Diagnosis job = job_of_four();
  add_device_findings({}, {.findings = {finding}, .pids = {}}, job);
  EXPECT_EQ(job.job, "process 77");  // the one with a finding comes first
  ASSERT_EQ(job.other_jobs.size(), 1u);
  EXPECT_EQ(job.other_jobs[0].job, "four");
  EXPECT_THAT(job.other_jobs[0].findings, IsEmpty());
}

TEST(DeviceFindingsTest, AJudgedProcessWithoutFindingsIsHealthy) {
  Diagnosis none;
  none.missing = {"no job"};
  add_device_findings({}, {.findings = {}, .pids = {77}}, none);
  EXPECT_EQ(none.verdict(), Verdict::kNothingFound);
  Diagnosis nothing_judged;
  nothing_judged.missing = {"no job"};
  add_device_findings({}, {}, nothing_judged);
  EXPECT_EQ(nothing_judged.verdict(), Verdict::kNotEnoughData);
}

TEST(DeviceFindingsTest, RanksWithoutStepsThatWereAllJudgedAreHealthy) {
  Diagnosis job = job_of_four();
  job.steps.count = 0;
  job.rank_pids = {{100}, {101}, {7, 102}, {103}};
  job.missing = {"no steps"};
  Diagnosis partly = job;
  add_device_findings({}, {.findings = {}, .pids = {100, 101, 102}}, partly);
  EXPECT_EQ(partly.verdict(), Verdict::kNotEnoughData);
  add_device_findings({}, {.findings = {}, .pids = {100, 101, 102, 103}}, job);
  EXPECT_EQ(job.verdict(), Verdict::kNothingFound);
  EXPECT_THAT(job.notes, testing::Contains(HasSubstr("only their work on devices was judged")));
}

TEST(DeviceFindingsTest, NoConfidenceIsWrittenWhereNoTestWasMade) {
  Diagnosis job = job_of_four();
  job.findings = {host_finding("slow_input", {1})};
  add_device_findings(
      {}, {.findings = {device_finding("copy_bound", "pageable", {2}, 0.3)}, .pids = {}}, job);
  const Json findings = to_json(job).at("findings");
  EXPECT_EQ(findings.at(0).at("detail").as_string(), "pageable");
  EXPECT_TRUE(findings.at(0).at("confidence").is_null());
  EXPECT_EQ(findings.at(0).at("basis").as_string(), "observation");
  EXPECT_EQ(findings.at(1).at("basis").as_string(), "test");
  EXPECT_EQ(findings.at(1).at("detail").as_string(), "");
  EXPECT_DOUBLE_EQ(findings.at(1).at("confidence").as_double(), 1);
}

}  // namespace
}  // namespace kansoku::diagnose
