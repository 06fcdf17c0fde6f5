// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/sched.h"

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

}  // namespace
}  // namespace kansoku::diagnose
