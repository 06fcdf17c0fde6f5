// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "diagnose/internal/steps/processors.h"
#include "diagnose/synthetic_for_test.h"
#include "trace/scheduler_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int32_t kStress = 4242, kHelper = 4243;

trace::Track thread(trace::Trace& trace, std::int32_t pid, std::int32_t tid, const char* name) {
  trace::Track track;
  track.kind = trace::TrackKind::kThread;
  track.pid = pid;
  track.tid = tid;
  track.name = trace.strings.intern(name);
  return track;
}

/// Every rank, or one, queues for `ms` in each step of `job`, on a processor of its own that `by`
/// has meanwhile.
trace::Trace starved(double ms, std::int32_t by, SyntheticJob job = {}, std::int32_t rank_of = -1) {
  job.faults.push_back({Fault::Kind::kQueueing, rank_of, ms});
  trace::Trace trace = make_trace(job);
  auto& table = trace.switches;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int32_t rank = std::max(table.prev_tid[i], table.next_tid[i]);
    table.cpu[i] = static_cast<std::uint32_t>(rank / 1000 - 1);
    if (table.next_tid[i] == 0 && table.prev_state[i] == 0) table.next_tid[i] = by;
    if (i > 0 && table.prev_tid[i] == 0 && table.next_tid[i - 1] == by) table.prev_tid[i] = by;
  }
  trace.tracks.push_back(thread(trace, kStress, kStress, "stress"));
  trace.tracks.push_back(thread(trace, 1000, kHelper, "omp"));
  return trace;
}

Diagnosis run_contention(const trace::Trace& trace) {
  return diagnose(trace, {}).value();
}

TEST(Contention, ProcessesBesideTheJobAreNamed) {
  const Diagnosis d = run_contention(starved(8, kStress));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  const Finding& finding = d.findings[0];
  EXPECT_EQ(finding.kind, "cpu_contention");
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(finding.cost_ms_per_step, 8, 0.5);
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("stress (pid 4242) 8.0 ms")));
  EXPECT_TRUE(d.victims.empty());
}

TEST(Contention, IsFoundInAJobWithoutSteps) {
  SyntheticJob job;
  job.step_count = 300;
  trace::Trace trace = starved(20, kStress, job);
  trace.slices = {};
  const Diagnosis d = run_contention(trace);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "cpu_contention");
  EXPECT_THAT(d.findings[0].evidence,
              Contains(HasSubstr("without a processor in a window of 100 ms")));
  EXPECT_THAT(verdict_text(d), HasSubstr("all ranks: cpu_contention, "));
}

TEST(Contention, ARankThatIsLeftAloneIsNotNamed) {
  SyntheticJob job;
  job.rank_count = 2;
  const Diagnosis d = run_contention(starved(8, kStress, job, 1));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(d.victims, ElementsAre(0));
}

// It explains nothing of what the ranks do: that is looked for all the same.
TEST(Contention, LoadBesideTheJobHidesNothing) {
  SyntheticJob job;
  job.faults.push_back({Fault::Kind::kLockWait, -1, 20});
  const Diagnosis d = run_contention(starved(8, kStress, job));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "cpu_contention");
  EXPECT_THAT(d.notes, Contains(HasSubstr("every rank sleeps in publish_metrics")));
}

TEST(Contention, LittleLoadBesideTheJobIsNone) {
  EXPECT_TRUE(run_contention(starved(1.5, kStress)).findings.empty());
}

// Time that the job takes from itself comes from the way it was started; only a great part of the
// time is a finding.
TEST(Contention, TheJobItselfIsNamedWhereItTakesMuch) {
  const Diagnosis little = run_contention(starved(14, kHelper));
  EXPECT_TRUE(little.findings.empty());
  EXPECT_THAT(little.notes, Contains(HasSubstr("the job itself 14.0 ms")));
  const Diagnosis d = run_contention(starved(90, kHelper));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "cpu_contention");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("the job itself 90.0 ms")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("1 threads of the job compete")));
}

TEST(Contention, RanksThatMayNotUseAllProcessorsAreToldSo) {
  trace::Trace trace = starved(14, kHelper);
  for (const std::int32_t pid : {1000, 2000, 3000, 4000})
    add_limits(trace, pid, "0", 1);
  const Diagnosis d = run_contention(trace);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("compete for processor 0 of 8")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("let the ranks use more processors")));
}

TEST(Contention, QueueingIsAPhaseOfItsOwn) {
  const Diagnosis d = run_contention(starved(8, kStress));
  for (const RankSummary& rank : d.ranks)
    EXPECT_NEAR(rank.phase_ms[static_cast<std::size_t>(Phase::kRunnable)], 8, 0.1);
}

/// The counter of the quotas of a rank, which hold it back for a quarter of the time.
void add_quota(trace::Trace& trace, std::int32_t pid) {
  trace::Track process, counter;
  process.kind = trace::TrackKind::kProcess;
  process.pid = pid;
  counter.kind = trace::TrackKind::kCounter;
  counter.parent = {static_cast<std::uint32_t>(trace.tracks.size())};
  counter.name = trace.strings.intern("cpu throttled");
  trace.tracks.push_back(process);
  trace.tracks.push_back(counter);
  for (const std::int64_t time_ns : {trace.begin_ns, trace.end_ns}) {
    trace.counters.time_ns.push_back(time_ns);
    trace.counters.track.push_back({static_cast<std::uint32_t>(trace.tracks.size() - 1)});
    trace.counters.value.push_back(static_cast<double>(time_ns - trace.begin_ns) / 4);
  }
}

TEST(Quotas, ThatHoldAllRanksBackHideNoSlowRank) {
  SyntheticJob job;
  job.faults.push_back({Fault::Kind::kForwardBusy, 2, 20});
  trace::Trace trace = starved(8, kStress, job);
  for (const std::int32_t pid : {1000, 2000, 3000, 4000})
    add_quota(trace, pid);
  const Diagnosis d = run_contention(trace);
  EXPECT_THAT(kinds_of(d), testing::UnorderedElementsAre("cpu_throttled", "slow_forward"));
}

TEST(ProcessorUse, SwitchesThatDoNotFitAreHalved) {
  trace::Trace trace;
  const auto add = [&](std::int64_t time_ns, std::int32_t prev, std::int32_t next) {
    trace::add_for_test(trace, {time_ns, prev, 0, next, 3});
  };
  add(100, 7, 20);
  add(200, 20, 7);  // 20 all the time
  add(300, 7, 21);
  add(500, 22, 7);  // 21 came, 22 left
  const ProcessorUse use(trace);
  const auto users = [&](Interval window, std::uint32_t cpu = 3) {
    std::map<std::int32_t, std::int64_t> ns;
    use.add_users(7, cpu, window, ns);
    return ns;
  };
  using Users = std::map<std::int32_t, std::int64_t>;
  EXPECT_EQ(users({100, 200}), (Users{{20, 100}}));
  EXPECT_EQ(users({150, 350}), (Users{{20, 50}, {7, 100}, {21, 50}}));
  EXPECT_EQ(users({300, 500}), (Users{{21, 100}, {22, 100}}));
  EXPECT_EQ(users({50, 120}), (Users{{7, 50}, {20, 20}}));
  EXPECT_EQ(users({600, 700}), (Users{{7, 100}}));
  EXPECT_EQ(users({100, 200}, 4), Users{});
}

}  // namespace
}  // namespace kansoku::diagnose
