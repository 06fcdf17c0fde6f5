// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/page_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/diagnose.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kStepMs = 44;  // of SyntheticJob, in the middle

using Use = KernelCounters;

/// Ranks whose forward pass is longer by that many milliseconds.
SyntheticJob slower(const std::vector<double>& more_ms) {
  SyntheticJob job;
  job.step_count = 200;
  for (std::size_t r = 0; r < more_ms.size(); ++r) {
    if (more_ms[r] > 0)
      job.faults.push_back({Fault::Kind::kForwardBusy, static_cast<std::int32_t>(r), more_ms[r]});
  }
  return job;
}

Diagnosis run(const SyntheticJob& job, const std::vector<Use>& uses, double step_ms) {
  trace::Trace trace = make_trace(job);
  add_kernel_counters(trace, uses, step_ms);
  auto found = diagnose(trace, {});
  EXPECT_TRUE(found);
  return std::move(found).value();
}

TEST(PageFaults, RanksThatFaultAreNamedForItAndForNothingElse) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  const Diagnosis d =
      run(slower({0, 35, 35, 35}), {clean, faulting, faulting, faulting}, kStepMs + 35);
  ASSERT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
  const Finding& finding = d.findings[0];
  EXPECT_THAT(finding.ranks, ElementsAre(1, 2, 3));
  EXPECT_NEAR(finding.cost_ms_per_step, 35, 4);
  EXPECT_THAT(verdict_text(d), HasSubstr("%), observed\n"));
  const Json written = to_json(d).at("findings").at(0);
  EXPECT_EQ(written.at("basis").as_string(), "observation");
  EXPECT_TRUE(written.at("confidence").is_null());
  EXPECT_TRUE(written.at("rank_confidence").is_null());
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("rank 0: 59 page faults a step")));
  EXPECT_THAT(finding.evidence,
              Contains(HasSubstr("costs 8.0 us in the kernel and 8.2 us of user time")));
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("a step would take about")));
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("MALLOC_TRIM_THRESHOLD_")));
}

// Four ranks that use all of two processors: 17.6 + 17.6 ms of each of three are shared by both.
TEST(PageFaults, OnAFullHostAllOfTheirTimeIsShared) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  trace::Trace trace = make_trace(slower({0, 35, 35, 35}));
  add_kernel_counters(trace, {clean, faulting, faulting, faulting}, kStepMs + 35);
  for (const std::int32_t pid : {1000, 2000, 3000, 4000})
    add_limits(trace, pid, "0-1", 2, 2);
  const auto d = diagnose(trace, {});
  ASSERT_TRUE(d);
  ASSERT_THAT(kinds_of(*d), ElementsAre("page_faults"));
  EXPECT_NEAR(d->findings[0].cost_ms_per_step, 3 * 35.2 / 2, 2);
}

TEST(PageFaults, OneRankThatFaultsIsNamed) {
  const Use clean{60, 0.5, 30};
  const Diagnosis d = run(slower({0, 0, 35, 0}), {clean, clean, {2200, 17.6, 47.6}, clean}, 79);
  ASSERT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
}

// Each step loses what its second loses: the mean of all would leave an imbalance that moves.
TEST(PageFaults, FaultsThatBeginInTheMiddleLeaveNothingBehind) {
  SyntheticJob job;
  job.step_count = 300;
  job.faults = {{.kind = Fault::Kind::kForwardBusy, .rank = 1, .cost_ms = 30, .from = 150}};
  trace::Trace trace = make_trace(job);
  // 150 steps of 44 ms, then 150 of 74.
  const Use clean{20, 0.2, 30};
  const Use faulting{3000, 30, 30, {}, 0, 44.0 / (44 + 74)};
  add_kernel_counters(trace, {clean, faulting, clean, clean}, 74);
  const auto d = diagnose(trace, {});
  ASSERT_TRUE(d);
  ASSERT_THAT(kinds_of(*d), ElementsAre("page_faults")) << verdict_text(*d);
  EXPECT_THAT(d->findings[0].ranks, ElementsAre(1));
}

TEST(PageFaults, AllRanksAlikeAreToldTogether) {
  const Use faulting{1500, 12, 40};
  const Diagnosis d = run(SyntheticJob{.step_count = 200}, std::vector<Use>(4, faulting), kStepMs);
  ASSERT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("its user time is not known")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("a step would take at most")));
}

TEST(PageFaults, SystemTimeWithoutFaultsIsNone) {
  const Use calls{20, 15, 30};
  EXPECT_THAT(kinds_of(run(SyntheticJob{.step_count = 200}, std::vector<Use>(4, calls), kStepMs)),
              ElementsAre());
}

TEST(PageFaults, TheirFunctionIsTheOneBetweenWhoseSamplesTheyLie) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  for (const bool are_all : {false, true}) {
    SyntheticJob job =
        slower(are_all ? std::vector<double>{35, 35, 35, 35} : std::vector<double>{0, 35});
    job.sample_hz = 100;
    trace::Trace trace = make_trace(job);
    add_kernel_counters(trace,
                        {are_all ? faulting : clean, faulting, are_all ? faulting : clean,
                         are_all ? faulting : clean},
                        kStepMs + 35);
    add_faults_at_stacks(trace, are_all ? 0 : 2000, "slow_block", 900);
    const auto d = diagnose(trace, {});
    ASSERT_TRUE(d);
    ASSERT_THAT(kinds_of(*d), ElementsAre("page_faults")) << verdict_text(*d);
    EXPECT_EQ(d->findings[0].function, "slow_block") << are_all;
    EXPECT_THAT(d->findings[0].evidence, Contains(HasSubstr("per step into slow_block")));
  }
}

/// Named function where one rank faults and is slow in slow_block, and so many of its faults lie
/// between samples of `at`.
std::string function_named(std::string_view at) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  trace::Trace trace = make_trace(slower({0, 35}));
  add_kernel_counters(trace, {clean, faulting, clean, clean}, kStepMs + 35);
  add_faults_at_stacks(trace, 2000, at, 900);
  const auto d = diagnose(trace, {});
  if (!d || kinds_of(*d) != std::vector<std::string>{"page_faults"}) return "another finding";
  return d->findings[0].function;
}

// Samples are so far apart that faults between two of them lie in either's function: the time that
// the function takes beyond the peers' tells.
TEST(PageFaults, BetweenSamplesThatAreFarApartTheTimeTellsTheFunction) {
  EXPECT_EQ(function_named("slow_block"), "slow_block");
}

TEST(PageFaults, WithoutFaultsAtSamplesNoFunctionIsNamed) {
  EXPECT_EQ(function_named("no such function"), "");
}

TEST(PageFaults, TheirPlaceDecidesTheAdvice) {
  for (const auto& [place, advice] :
       {std::pair{"in the heap", "MALLOC_TRIM_THRESHOLD_"},
        std::pair{"in memory mapped and dropped", "MALLOC_MMAP"},
        std::pair{"in mapped memory", "madvise"}, std::pair{"in files", "mapped files"}}) {
    const Use clean{60, 0.5, 30};
    Use faulting{2200, 17.6, 47.6};
    faulting.places = {{place, 2000}, {"on the stack", 200}};
    const Diagnosis d = run(slower({0, 35}), {clean, faulting, clean, clean}, kStepMs + 35);
    ASSERT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
    EXPECT_THAT(d.findings[0].evidence,
                Contains(std::string("of these page faults 91 % are ") + place));
    EXPECT_THAT(d.findings[0].evidence.back(), HasSubstr(advice));
  }
}

TEST(PageFaults, LittleIsNoFinding) {
  const Use clean{60, 0.5, 30}, little{180, 1.5, 31};
  EXPECT_THAT(
      kinds_of(run(SyntheticJob{.step_count = 200}, {clean, little, clean, little}, kStepMs)),
      ElementsAre());
}

TEST(PageFaults, ARankThatComputesMoreIsStillBlamed) {
  const Use clean{60, 0.5, 30}, busy{60, 0.5, 65};
  const Diagnosis d = run(slower({0, 35, 0, 0}), {clean, busy, clean, clean}, 79);
  ASSERT_THAT(kinds_of(d), ElementsAre("slow_forward")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
}

TEST(PageFaults, ARankThatComputesMoreIsBlamedBesideOnesThatFault) {
  const Use clean{60, 0.5, 30}, busy{60, 0.5, 90}, faulting{2200, 17.6, 47.6};
  const Diagnosis d = run(slower({0, 60, 35, 35}), {clean, busy, faulting, faulting}, kStepMs + 60);
  ASSERT_THAT(kinds_of(d), ::testing::UnorderedElementsAre("slow_forward", "page_faults"))
      << verdict_text(d);
  for (const Finding& finding : d.findings) {
    if (finding.kind == "slow_forward")
      EXPECT_THAT(finding.ranks, ElementsAre(1));
    else
      EXPECT_THAT(finding.ranks, ElementsAre(2, 3));
  }
}

TEST(PageFaults, AnExcessThatTheirPriceMayExplainNamesNobody) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  // Seven milliseconds more than the faults cost.
  const Diagnosis d =
      run(slower({0, 42, 35, 35}), {clean, faulting, faulting, faulting}, kStepMs + 42);
  EXPECT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
}

// Samples of the thread's clock say it, whatever the price: 12 ms in faults, 3 in giving back.
TEST(PageFaults, SamplesSayHowMuchOfTheSystemTimeIsTheirs) {
  const Use clean{60, 20, 30, {{"page faults", 0.2}, {"call read", 15}}};
  const Use faulting{2200, 35, 30, {{"page faults", 12}, {"call brk", 3}, {"call read", 15}}};
  const Diagnosis d =
      run(slower({15, 0, 15, 15}), {faulting, clean, faulting, faulting}, kStepMs + 15);
  ASSERT_THAT(kinds_of(d), ElementsAre("page_faults")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 2, 3));
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 15, 1.5);
}

TEST(PageFaults, WithoutCountersOrPriceNothingIsSaid) {
  const Use clean{60, 0.5, 30}, faulting{2200, 17.6, 47.6};
  EXPECT_THAT(kinds_of(run(slower({}), {clean, faulting, faulting}, kStepMs)), ElementsAre())
      << "one rank has no counters";
  trace::Trace trace = make_trace(slower({}));
  add_kernel_counters(trace, {clean, faulting, faulting, faulting}, kStepMs);
  for (const char* const price : {"", "0", "-1", "99999999999", "x"}) {
    trace.metadata["kansoku.page_fault_ns"] = price;
    const auto found = diagnose(trace, {});
    ASSERT_TRUE(found);
    EXPECT_THAT(kinds_of(*found), ElementsAre()) << price;
  }
}

}  // namespace
}  // namespace kansoku::diagnose
