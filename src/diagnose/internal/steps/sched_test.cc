// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kansoku::diagnose {
namespace {

using Kind = SchedEvent::Kind;

TEST(ThreadTimes, FollowsTheStates) {
  const ThreadTimes times = thread_times({{10, Kind::kSwitchIn},
                                          {30, Kind::kBlocks},
                                          {50, Kind::kWake},
                                          {55, Kind::kSwitchIn},
                                          {70, Kind::kPreempted},
                                          {90, Kind::kSwitchIn}},
                                         100);
  EXPECT_TRUE(times.is_known);
  EXPECT_EQ(times.running.measure_ns({0, 100}), 20 + 15 + 10);
  EXPECT_EQ(times.blocked.measure_ns({0, 100}), 20);
  EXPECT_EQ(times.runnable.measure_ns({0, 100}), 5 + 20);
  EXPECT_FALSE(times.running.contains(5));  // before the first event nothing is known
}

// One that was preempted queues where it ran, one that was woken where it comes to run.
TEST(ThreadTimes, KnowsWhereItQueuesAndWhoWakesIt) {
  const ThreadTimes times =
      thread_times({{.time_ns = 10, .kind = Kind::kSwitchIn, .cpu = 1},
                    {.time_ns = 30, .kind = Kind::kPreempted, .cpu = 1},
                    {.time_ns = 40, .kind = Kind::kSwitchIn, .cpu = 2},
                    {.time_ns = 50, .kind = Kind::kBlocks, .cpu = 2},
                    {.time_ns = 60, .kind = Kind::kWake, .waker_tid = 77},
                    {.time_ns = 65, .kind = Kind::kSwitchIn, .cpu = 3},
                    {.time_ns = 70, .kind = Kind::kBlocks, .cpu = 3, .is_stop = true},
                    {.time_ns = 90, .kind = Kind::kSwitchIn, .cpu = 3}},
                   100);
  ASSERT_EQ(times.queue_waits.size(), 2U);
  EXPECT_EQ(times.queue_waits[0].cpu, 1U);
  EXPECT_EQ(times.queue_waits[0].time.end_ns - times.queue_waits[0].time.begin_ns, 10);
  EXPECT_EQ(times.queue_waits[1].cpu, 3U);
  ASSERT_EQ(times.blocked_waits.size(), 2U);
  EXPECT_EQ(times.blocked_waits[0].waker_tid, 77);
  EXPECT_FALSE(times.blocked_waits[0].is_stopped);
  EXPECT_EQ(times.blocked_waits[1].waker_tid, std::nullopt) << "the wake-up was lost";
  EXPECT_TRUE(times.blocked_waits[1].is_stopped);
}

TEST(ThreadTimes, OrderOfTheInputDoesNotMatter) {
  const ThreadTimes times =
      thread_times({{55, Kind::kSwitchIn}, {30, Kind::kBlocks}, {50, Kind::kWake}}, 60);
  EXPECT_EQ(times.blocked.measure_ns({0, 100}), 20);
  EXPECT_EQ(times.runnable.measure_ns({0, 100}), 5);
  EXPECT_EQ(times.running.measure_ns({0, 100}), 5);
}

TEST(ThreadTimes, AWakeOfARunningThreadIsVoid) {
  const ThreadTimes times = thread_times({{10, Kind::kSwitchIn}, {20, Kind::kWake}}, 30);
  EXPECT_EQ(times.running.measure_ns({0, 100}), 20);
  EXPECT_TRUE(times.runnable.empty());
}

TEST(ThreadTimes, NoEventsMeansUnknown) {
  const ThreadTimes times = thread_times({}, 100);
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
    trace.switches.time_ns.push_back(time_ns);
    trace.switches.cpu.push_back(0);
    trace.switches.prev_tid.push_back(prev);
    trace.switches.next_tid.push_back(next);
    trace.switches.prev_state.push_back(state);
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
  job.ranks.emplace_back().pid = 7;
  for (const std::int64_t time_ns : {150, 200, 250, 5'000'000, 9'000'000, 9'250'000})
    job.ranks[0].samples.push_back({.time_ns = time_ns});
  read_thread_times(trace, job);
  std::vector<std::int64_t> times;
  for (const ThreadSample& sample : job.ranks[0].samples)
    times.push_back(sample.time_ns);
  EXPECT_THAT(times, testing::ElementsAre(150, 199, 199, 5'000'000, 9'000'000, 9'250'000));
}

}  // namespace
}  // namespace kansoku::diagnose
