// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/kernel_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kUsualStepMs = 44;  // of SyntheticJob

/// Rank 2 computes `more_ms` longer in its forward pass; each rank has the counters of `ranks`.
Diagnosis run_counted(double more_ms, const std::vector<KernelCounters>& ranks) {
  SyntheticJob job;
  job.step_count = 200;
  if (more_ms > 0) job.faults = {{Fault::Kind::kForwardBusy, 2, more_ms}};
  trace::Trace trace = make_trace(job);
  add_kernel_counters(trace, ranks, kUsualStepMs + more_ms);
  auto found = diagnose(trace, {});
  EXPECT_TRUE(found);
  return std::move(found).value();
}

KernelCounters sampled(std::map<std::string, double> ms) {
  double sum = 0;
  for (const auto& [name, one] : ms)
    sum += one;
  return {20, sum, 30, std::move(ms)};
}

TEST(KernelTime, TheKernelsWorkIsNamedAndWhoCallsIt) {
  struct Case {
    const char *counter, *kind, *words, *function;
  };
  for (const Case& one : {Case{"call getppid", "system_calls", "getppid 14.", "slow_block"},
                          Case{"reclaim", "reclaim", "memory that can be freed", ""},
                          Case{"interrupts", "interrupts", "run on top of it", ""}}) {
    const KernelCounters plain = sampled({{one.counter, 0.2}}),
                         longer = sampled({{one.counter, 15}});
    const Diagnosis d = run_counted(15, {plain, plain, longer, plain});
    ASSERT_THAT(kinds_of(d), ElementsAre(one.kind)) << verdict_text(d);
    const Finding& finding = d.findings[0];
    EXPECT_THAT(finding.ranks, ElementsAre(2));
    EXPECT_EQ(finding.basis, Basis::kObservation);
    EXPECT_EQ(finding.function, one.function);
    EXPECT_NEAR(finding.cost_ms_per_step, 14.8, 0.5);
    EXPECT_THAT(finding.evidence, Contains(HasSubstr(one.words)));
    EXPECT_THAT(finding.evidence, Contains(HasSubstr("rank 2: 14.")));
  }
}

// Whoever waits for others makes calls meanwhile; its peers are no slower for that.
TEST(KernelTime, CallsOfARankThatIsNotSlowerAreNone) {
  const KernelCounters plain = sampled({{"call poll", 0.2}}), longer = sampled({{"call poll", 15}});
  EXPECT_THAT(kinds_of(run_counted(0, {plain, plain, longer, plain})), ElementsAre());
  const Diagnosis other = run_counted(15, {longer, longer, plain, longer});
  EXPECT_THAT(kinds_of(other), ElementsAre("slow_forward")) << verdict_text(other);
}

TEST(KernelTime, LittleOfTheExcessIsTheFunctionsStill) {
  const KernelCounters plain = sampled({{"call write", 0.2}}),
                       longer = sampled({{"call write", 4}});
  EXPECT_THAT(kinds_of(run_counted(20, {plain, plain, longer, plain})),
              ElementsAre("slow_forward"));
}

TEST(KernelTime, WithoutSamplesOfAllRanksNothingIsSaid) {
  const KernelCounters plain = sampled({{"reclaim", 0.2}}), longer = sampled({{"reclaim", 15}});
  const KernelCounters unsampled{20, 0.2, 30, {}};
  EXPECT_THAT(kinds_of(run_counted(15, {plain, unsampled, longer, plain})),
              Contains("slow_forward"));
  EXPECT_THAT(kinds_of(run_counted(15, {plain, plain})), ElementsAre("slow_forward"));
}

// Pages that had to go are fetched again: reclaim is told, and no page faults of that rank.
TEST(KernelTime, FaultsOfARankInReclaimAreAConsequence) {
  KernelCounters plain = sampled({{"page faults", 0.1}});
  KernelCounters longer = sampled({{"page faults", 11}, {"reclaim", 4}});
  longer.faults = 400;
  const Diagnosis d = run_counted(15, {plain, plain, longer, plain});
  ASSERT_THAT(kinds_of(d), ElementsAre("reclaim")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 15, 1);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("rank 2: 3")));
}

TEST(KernelTime, ReclaimNamesTheLimit) {
  const KernelCounters plain = sampled({{"page faults", 0.1}});
  const KernelCounters longer = sampled({{"page faults", 11}, {"reclaim", 4}});
  for (const std::string_view group : {"", "/pod/job"}) {
    trace::Trace trace =
        make_trace({.step_count = 200, .faults = {{Fault::Kind::kForwardBusy, 2, 15}}});
    add_kernel_counters(trace, {plain, plain, longer, plain}, 59);
    for (const std::int32_t pid : {1000, 2000, 3000, 4000})
      add_limits(trace, pid, "0-7", 8, 8, group, 256'000'000);
    const auto d = diagnose(trace, {});
    ASSERT_TRUE(d);
    ASSERT_THAT(kinds_of(*d), ElementsAre("reclaim")) << verdict_text(*d);
    EXPECT_THAT(d->findings[0].evidence,
                Contains(HasSubstr(group.empty() ? "no control group limits the memory of rank 2"
                                                 : "the control group /pod/job, 256 MB")));
  }
}

TEST(KernelTime, CountersThatCannotBeAreLeftOut) {
  for (const double ms : {-15.0, 1e5, 1e300}) {
    const KernelCounters plain{20, 1, 30, {{"call write", 0.2}, {"interrupts", 0.1}}};
    const KernelCounters odd{20, 1, 30, {{"call write", 0.2}, {"interrupts", ms}}};
    EXPECT_THAT(kinds_of(run_counted(15, {plain, plain, odd, plain})), ElementsAre("slow_forward"))
        << ms;
    EXPECT_THAT(kinds_of(run_counted(0, {plain, plain, odd, plain})), ElementsAre()) << ms;
  }
}

TEST(KernelTime, ManyUnknownSamplesSayNothing) {
  const KernelCounters plain = sampled({{"reclaim", 0.2}});
  KernelCounters longer = sampled({{"reclaim", 12}});
  for (const double unknown_ms : {1.0, 4.0}) {
    longer.unknown_ms = unknown_ms;
    EXPECT_THAT(kinds_of(run_counted(15, {plain, plain, longer, plain})),
                Contains(unknown_ms < 2 ? "reclaim" : "slow_forward"));
  }
}

// Both work for as long; one serves interrupts while it turns in a circle, waiting for the other.
TEST(KernelTime, WhatHitsAWaitingRankLeavesItsWorkAlone) {
  SyntheticJob job;
  job.rank_count = 2;
  job.step_count = 200;
  job.transfer_ms = 30;
  trace::Trace trace = make_trace(job);
  const double step_ms = diagnose(trace, {}).value().steps.mean_ms;
  const double busy_ms = 0.8 * step_ms, hit_ms = 0.1 * step_ms;
  add_kernel_counters(trace,
                      {{20, 0.1, busy_ms, {{"interrupts", 0.1}}},
                       {20, hit_ms, busy_ms - hit_ms, {{"interrupts", hit_ms}}}},
                      step_ms);
  EXPECT_THAT(kinds_of(diagnose(trace, {}).value()), ElementsAre());
}

// Observers are not the program.
TEST(KernelTime, TimeInProbesIsNobodysWork) {
  const KernelCounters plain = sampled({{"probes", 0.2}}), longer = sampled({{"probes", 15}});
  EXPECT_THAT(kinds_of(run_counted(15, {plain, plain, longer, plain})), ElementsAre());
}

}  // namespace
}  // namespace kansoku::diagnose
