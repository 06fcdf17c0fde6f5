// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/scheduler_for_test.h"

namespace kansoku::diagnose {
namespace {

using State = trace::ThreadState;

TEST(ThreadTimes, AreTheStretchesByState) {
  const ThreadTimes times = thread_times({{.begin_ns = 10, .end_ns = 30},
                                          {.begin_ns = 30, .end_ns = 50, .state = State::kAsleep},
                                          {.begin_ns = 50, .end_ns = 55, .state = State::kQueued},
                                          {.begin_ns = 55, .end_ns = 70},
                                          {.begin_ns = 70, .end_ns = 90, .state = State::kQueued},
                                          {.begin_ns = 90, .end_ns = 100, .is_open = true}});
  EXPECT_TRUE(times.is_known);
  EXPECT_EQ(times.running.measure_ns({0, 100}), 20 + 15 + 10);
  EXPECT_EQ(times.blocked.measure_ns({0, 100}), 20);
  EXPECT_EQ(times.runnable.measure_ns({0, 100}), 5 + 20);
  EXPECT_FALSE(times.running.contains(5));  // before the first event nothing is known
}

TEST(ThreadTimes, AWaitHasAnEnd) {
  constexpr std::uint32_t kStopped = 4;
  const ThreadTimes times = thread_times(
      {{.begin_ns = 10, .end_ns = 20, .state = State::kQueued, .is_preempted = true, .cpu = 3},
       {.begin_ns = 20, .end_ns = 30},
       {.begin_ns = 30, .end_ns = 40, .state = State::kAsleep, .waker_tid = 77},
       {.begin_ns = 40, .end_ns = 50, .state = State::kQueued, .cpu = 1},
       {.begin_ns = 50, .end_ns = 60, .state = State::kAsleep, .task_state = kStopped},
       {.begin_ns = 60, .end_ns = 70, .state = State::kQueued, .is_open = true}});
  ASSERT_EQ(times.queue_waits.size(), 1U) << "one ended with sleep, one did not end";
  EXPECT_EQ(times.queue_waits[0].cpu, 3U);
  EXPECT_TRUE(times.queue_waits[0].is_preempted);
  ASSERT_EQ(times.blocked_waits.size(), 2U);
  EXPECT_EQ(times.blocked_waits[0].waker_tid, 77);
  EXPECT_FALSE(times.blocked_waits[0].is_stopped);
  EXPECT_EQ(times.blocked_waits[1].waker_tid, std::nullopt);
  EXPECT_TRUE(times.blocked_waits[1].is_stopped);
}

TEST(ThreadTimes, NoEventsMeansUnknown) {
  const ThreadTimes times = thread_times({});
  EXPECT_FALSE(times.is_known);
  EXPECT_TRUE(times.running.empty());
}

TEST(ThreadTimes, SamplesOfAJustPreemptedThreadStandWhereItWasInterrupted) {
  trace::Trace trace;
  trace::Process process;
  process.pid = 7;
  process.rank = 0;
  trace.processes.push_back(process);
  const auto add_switch = [&](std::int64_t time_ns, std::int32_t prev, std::int32_t next,
                              std::uint32_t state) {
    trace::add_for_test(trace, {time_ns, prev, state, next});
  };
  add_switch(100, 0, 7, 0);
  add_switch(200, 7, 0, 0);  // preempted
  add_switch(9'000'000, 0, 7, 0);
  add_switch(9'100'000, 7, 0, 1);  // sleeps
  trace.wakes.time_ns.push_back(9'200'000);
  trace.wakes.tid.push_back(7);
  trace.wakes.waker_tid.push_back(0);
  add_switch(9'300'000, 0, 7, 0);
  JobData job;
  job.end_ns = 10'000'000;
  job.ranks.emplace_back();
  job.ranks[0].pid = job.ranks[0].main_tid = 7;
  for (const std::int64_t time_ns : {150, 200, 250, 5'000'000, 9'000'000, 9'250'000})
    job.ranks[0].samples.push_back({.time_ns = time_ns});
  read_thread_times(trace, job);
  std::vector<std::int64_t> times;
  for (const ThreadSample& sample : job.ranks[0].samples)
    times.push_back(sample.time_ns);
  EXPECT_THAT(times, testing::ElementsAre(150, 199, 199, 5'000'000, 9'000'000, 9'250'000));
}

TEST(ThreadTimes, TheMainOnesAreOfTheThreadThatTrainsThoughItIsNotTheFirst) {
  constexpr std::int32_t kPid = 7, kTrains = 9;
  trace::Trace trace;
  for (const std::int32_t tid : {kPid, kTrains}) {
    trace::Track track;
    track.kind = trace::TrackKind::kThread;
    track.pid = kPid;
    track.tid = tid;
    trace.tracks.push_back(track);
  }
  trace::add_for_test(trace, {100, 0, 0, kPid});
  trace::add_for_test(trace, {150, kPid, 1, kTrains});
  trace::add_for_test(trace, {450, kTrains, 1, 0});
  JobData job;
  job.end_ns = 1000;
  job.ranks.emplace_back();
  job.ranks[0].pid = kPid;
  job.ranks[0].main_tid = kTrains;
  read_thread_times(trace, job);
  EXPECT_EQ(job.ranks[0].main.running.measure_ns({0, 1000}), 300);
  ASSERT_EQ(job.ranks[0].helpers_running.size(), 1U);
  EXPECT_EQ(job.ranks[0].helpers_running[0].measure_ns({0, 1000}), 50);
}

}  // namespace
}  // namespace kansoku::diagnose
