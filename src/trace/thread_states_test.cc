// SPDX-License-Identifier: Apache-2.0
#include "trace/thread_states.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "trace/scheduler_for_test.h"

namespace kansoku::trace {
namespace {

using Kind = SchedulerEvent::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kSleeps = 1, kDisk = 2, kStopped = 4;

SchedulerEvent in(std::int64_t time, std::uint32_t cpu = 0) {
  return {.time_ns = time, .kind = Kind::kSwitchIn, .cpu = cpu};
}
SchedulerEvent out(std::int64_t time, std::uint32_t task_state, std::uint32_t cpu = 0) {
  return {.time_ns = time, .kind = Kind::kSwitchOut, .cpu = cpu, .task_state = task_state};
}
SchedulerEvent wake(std::int64_t time, std::int32_t waker = 0) {
  return {.time_ns = time, .kind = Kind::kWake, .waker_tid = waker};
}

/// "runs 10..30": what is said of them, in short.
std::vector<std::string> texts(const std::vector<ThreadStretch>& stretches) {
  constexpr std::array<std::string_view, 3> kStates{"runs", "queues", "sleeps"};
  std::vector<std::string> all;
  for (const ThreadStretch& one : stretches) {
    std::string text = fmt::format("{} {}..{}", kStates.at(static_cast<std::size_t>(one.state)),
                                   one.begin_ns, one.end_ns);
    if (one.is_open) text += " open";
    if (one.state == ThreadState::kQueued)
      text += fmt::format(" {} on {}", one.is_preempted ? "preempted" : "woken", one.cpu);
    if (one.waker_tid) text += fmt::format(" woken by {}", *one.waker_tid);
    if (one.is_stopped()) text += " stopped";
    if (one.is_uninterruptible()) text += " uninterruptible";
    all.push_back(text);
  }
  return all;
}

TEST(ThreadStretches, FollowTheStates) {
  EXPECT_THAT(
      texts(thread_stretches(
          {in(10), out(30, kSleeps), wake(50, 7), in(55, 2), out(70, 0, 2), in(90, 3)}, 100)),
      ElementsAre("runs 10..30", "sleeps 30..50 woken by 7", "queues 50..55 woken on 2",
                  "runs 55..70", "queues 70..90 preempted on 2", "runs 90..100 open"));
}

TEST(ThreadStretches, TellHowAThreadSleeps) {
  EXPECT_THAT(
      texts(thread_stretches({out(10, kDisk), wake(20), in(20), out(30, kStopped), in(40)}, 50)),
      ElementsAre("sleeps 10..20 woken by 0 uninterruptible", "queues 20..20 woken on 0",
                  "runs 20..30", "sleeps 30..40 stopped", "runs 40..50 open"))
      << "the second wake-up was lost";
}

TEST(ThreadStretches, OrderOfTheInputDoesNotMatter) {
  EXPECT_THAT(
      texts(thread_stretches({in(55), out(30, kSleeps), wake(50)}, 60)),
      ElementsAre("sleeps 30..50 woken by 0", "queues 50..55 woken on 0", "runs 55..60 open"));
}

TEST(ThreadStretches, WakingAThreadThatIsNotAsleepIsVoid) {
  EXPECT_THAT(texts(thread_stretches({in(10), wake(20, 9)}, 30)), ElementsAre("runs 10..30 open"));
  EXPECT_THAT(texts(thread_stretches({wake(10, 8), wake(20, 9), in(25)}, 30)),
              ElementsAre("queues 10..25 woken on 0", "runs 25..30 open"));
}

TEST(ThreadStretches, AStateLastsWhereEventsAreLost) {
  EXPECT_THAT(texts(thread_stretches({in(10), in(20), out(30, kSleeps), out(40, kDisk)}, 50)),
              ElementsAre("runs 10..30", "sleeps 30..50 open"));
  EXPECT_THAT(thread_stretches({}, 50), IsEmpty());
  EXPECT_THAT(texts(thread_stretches({in(10)}, 5)), ElementsAre("runs 10..10 open"))
      << "behind the recording's end";
}

TEST(ThreadStretches, AreReadFromTheTablesOfATrace) {
  Trace trace;
  const auto change = [&](std::int64_t time, std::int32_t prev, std::int32_t next,
                          std::uint32_t state) {
    add_for_test(trace, {time, prev, state, next, 1});
  };
  constexpr std::uint32_t kPreemption = 0x100;  // as the tracepoint reports it
  change(10, 0, 7, 0);
  change(20, 7, 8, kPreemption);
  change(30, 8, 7, kSleeps);
  change(-5, 0, 7, 0);
  change(1000, 7, 0, kSleeps);
  trace.wakes.time_ns = {40, 41};
  trace.wakes.tid = {8, 8};
  trace.wakes.waker_tid = {7};  // too short: the second one is left out
  const auto all = thread_stretches(
      trace, [](std::int32_t tid) { return tid != 0; }, 100, 500);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(texts(all.at(7)),
              ElementsAre("runs 10..20", "queues 20..30 preempted on 1", "runs 30..100 open"));
  EXPECT_THAT(texts(all.at(8)), ElementsAre("runs 20..30", "sleeps 30..40 woken by 7",
                                            "queues 40..100 open woken on 0"));
}

}  // namespace
}  // namespace kansoku::trace
