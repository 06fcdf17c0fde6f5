// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

SyntheticJob waiting(std::int32_t rank, double ms) {
  SyntheticJob job;
  job.step_count = 200;
  job.faults.push_back({Fault::Kind::kLockWait, rank, ms});
  return job;
}

Diagnosis run_waits(const SyntheticJob& job) {
  return diagnose(make_trace(job), {}).value();
}

TEST(Waits, WhoHoldsTheInterpreterLockIsNamed) {
  SyntheticJob job = waiting(2, 20);
  job.wait_on = "interpreter lock";
  const Diagnosis d = run_waits(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "interpreter_lock");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_EQ(d.findings[0].function, "parse_metrics");
  EXPECT_EQ(d.findings[0].line, 95U);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("thread 3077 of this process holds it")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("main thread is in publish_metrics")));
  EXPECT_TRUE(d.findings[0].explained.has_value());
}

TEST(Waits, TheInterpreterLockIsFoundWhereAllRanksWaitForIt) {
  SyntheticJob job = waiting(-1, 20);
  job.wait_on = "interpreter lock";
  const Diagnosis d = run_waits(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "interpreter_lock");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 20, 3);
  EXPECT_TRUE(run_waits(waiting(-1, 20)).findings.empty())
      << "other waits of all ranks may be meant";
}

TEST(Waits, WhoWakesTheThreadIsNamed) {
  const Diagnosis d = run_waits(waiting(1, 20));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "blocked");
  EXPECT_EQ(d.findings[0].function, "parse_metrics");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("for a lock or a condition (futex)")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("its own thread 2077")));
}

TEST(Waits, AWakerThatWasNotSeenIsSaidToBeUnknown) {
  trace::Trace trace = make_trace(waiting(1, 20));
  trace.wakes = {};
  const Diagnosis d = diagnose(trace, {}).value();
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "blocked");
  EXPECT_EQ(d.findings[0].function, "publish_metrics") << "where it waits";
  EXPECT_THAT(d.findings[0].evidence,
              Contains(HasSubstr("the recording has no waker for 100 % of that time")));
}

// A rank that waits has all its phases stretched.
TEST(Waits, ARankThatWaitsIsNotGivenMoreWork) {
  SyntheticJob job = waiting(2, 80);
  job.wait_on = "interpreter lock";
  job.faults.push_back({Fault::Kind::kForwardBusy, 2, 12});
  job.faults.push_back({Fault::Kind::kBackwardBusy, 2, 20});
  const Diagnosis d = run_waits(job);
  ASSERT_FALSE(d.findings.empty());
  EXPECT_EQ(d.findings[0].kind, "interpreter_lock") << verdict_text(d);
}

TEST(Waits, LittleWaitingForTheInterpreterLockIsNone) {
  SyntheticJob job = waiting(-1, 2);
  job.wait_on = "interpreter lock";
  job.sample_hz = 200;
  EXPECT_TRUE(run_waits(job).findings.empty()) << verdict_text(run_waits(job));
}

TEST(Waits, APauseOfItsOwnIsNobodysDoing) {
  SyntheticJob job = waiting(1, 20);
  job.wait_call = "clock_nanosleep";
  const Diagnosis d = run_waits(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "slow_other");
  EXPECT_EQ(d.findings[0].function, "publish_metrics");
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("it waits in clock_nanosleep")));
}

TEST(Waits, AStoppedProcessDoesNotSleep) {
  SyntheticJob job = waiting(1, 20);
  job.wait_state = 4;
  const Diagnosis d = run_waits(job);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("a signal stopped the process")));
  EXPECT_THAT(d.findings[0].evidence, Not(Contains(HasSubstr("the thread sleeps"))));
  EXPECT_EQ(d.findings[0].kind, "slow_other");
}

// Sending and receiving is no collective: nobody else is seen to be late, and yet it is a wait.
TEST(Waits, ARankThatWaitsForAnotherInPointToPointIsNoCulprit) {
  trace::Trace trace = make_trace(waiting(2, 20));
  const trace::StringId file =
      trace.strings.intern("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py");
  std::size_t changed = 0;
  for (trace::Frame& frame : trace.frames) {
    if (trace.str(frame.function) != "publish_metrics") continue;
    frame.file = file;
    ++changed;
  }
  ASSERT_GT(changed, 0U);
  for (std::int32_t& waker : trace.wakes.waker_tid)
    waker = 0;  // the network
  const Diagnosis d = diagnose(trace, {}).value();
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("in train, for another rank")));
  // A checkpoint is written there, too.
  const trace::StringId checkpoint =
      trace.strings.intern("/usr/lib/python3/dist-packages/torch/distributed/checkpoint/fs.py");
  for (trace::Frame& frame : trace.frames)
    if (frame.file == file) frame.file = checkpoint;
  EXPECT_EQ(diagnose(trace, {}).value().findings.size(), 1U);
}

// Calls of several kinds share the wait, so the function that is found is the job's own.
TEST(Waits, WaitsInSendAndReceiveTogetherAreForAnotherRank) {
  trace::Trace trace = make_trace(waiting(2, 20));
  split_samples(trace, "publish_metrics", {"send", "recv"},
                "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py");
  for (std::int32_t& waker : trace.wakes.waker_tid)
    waker = 0;
  const Diagnosis d = diagnose(trace, {}).value();
  EXPECT_TRUE(d.findings.empty()) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("in publish_metrics, for another rank")));
}

}  // namespace
}  // namespace kansoku::diagnose
