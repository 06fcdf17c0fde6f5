// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulate/des/group.h"
#include "simulate/des/resource.h"

namespace kansoku::simulate::des {
namespace {

using Mode = PreemptiveResource::Mode;

// Logs NAME and time when served; NAME- and time when it was preempted, NAME! when it was
// interrupted in the queue, NAME. when it is done.
Process use_preemptive(Environment& env, PreemptiveResource& machine, std::string& log, char name,
                       std::int64_t priority, Nanos time, std::int64_t units = 1) {
  const auto say = [&](const char* what) {
    log += name + (what + std::to_string(env.now().count())) + " ";
  };
  const Held held = co_await machine.request(priority, units);
  if (!held) {
    say("!");
    co_return;
  }
  say("");
  const Wake wake = co_await env.timeout(time);
  say(wake == Wake::kInterrupted ? "-" : ".");
  EXPECT_EQ(machine.holds(held), wake == Wake::kDone);
  EXPECT_EQ(static_cast<bool>(held), wake == Wake::kDone);
  EXPECT_EQ(held.units(), wake == Wake::kDone ? units : 0);
}

Process later(Environment& env, PreemptiveResource& machine, std::string& log, char name,
              std::int64_t priority, Nanos at, Nanos time, std::int64_t units = 1) {
  co_await env.timeout(at);
  env.start(use_preemptive(env, machine, log, name, priority, time, units));
}

void expect_idle(const PreemptiveResource& machine) {
  EXPECT_EQ(machine.busy(), 0);
  EXPECT_EQ(machine.queue_length(), 0);
}

TEST(PriorityResource, ServesByPriorityThenArrival) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPriority);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 9, Nanos{5}));
  for (const auto& [name, priority] : {std::pair{'b', 3}, {'c', 1}, {'d', 3}, {'e', 1}})
    env.start(use_preemptive(env, machine, log, name, priority, Nanos{1}));
  EXPECT_EQ(machine.queue_length(), 4);
  env.run();
  EXPECT_EQ(log, "a0 a.5 c5 c.6 e6 e.7 b7 b.8 d8 d.9 ");
  EXPECT_EQ(machine.preemption_count(), 0U);
  expect_idle(machine);
}

TEST(PriorityResource, TheFirstBlocksThoseBehindUntilItGivesUp) {
  Environment env;
  PreemptiveResource machine(env, 3, Mode::kPriority);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 0, Nanos{5}, 2));
  const ProcessId wide = env.start(use_preemptive(env, machine, log, 'b', 1, Nanos{1}, 3));
  env.start(use_preemptive(env, machine, log, 'c', 2, Nanos{1}, 1));
  env.run_until(Nanos{2});
  EXPECT_EQ(log, "a0 ");
  env.interrupt(wide);
  env.run();
  EXPECT_EQ(log, "a0 c2 b!2 c.3 a.5 ");
  expect_idle(machine);
}

TEST(PreemptiveResource, InterruptsTheWorstHolderAndVoidsItsHeld) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 5, Nanos{10}));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{2}));
  env.run();
  EXPECT_EQ(log, "a0 u4 a-4 u.6 ");
  EXPECT_EQ(machine.preemption_count(), 1U);
  expect_idle(machine);
}

TEST(PreemptiveResource, EqualPriorityDoesNotPreempt) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 5, Nanos{10}));
  env.start(later(env, machine, log, 'b', 5, Nanos{4}, Nanos{2}));
  env.run();
  EXPECT_EQ(log, "a0 a.10 b10 b.12 ");
}

TEST(PreemptiveResource, WorstAndLatestGoFirstAndNoMoreThanNeeded) {
  Environment env;
  PreemptiveResource machine(env, 4, Mode::kPreemptive);
  std::string log;
  for (const auto& [name, priority] : {std::pair{'a', 5}, {'b', 7}, {'c', 7}, {'d', 6}})
    env.start(use_preemptive(env, machine, log, name, priority, Nanos{10}));
  env.start(later(env, machine, log, 'u', 1, Nanos{1}, Nanos{2}, 3));
  env.run();
  EXPECT_EQ(log, "a0 b0 c0 d0 u1 c-1 b-1 d-1 u.3 a.10 ");
  EXPECT_EQ(machine.preemption_count(), 3U);
  expect_idle(machine);
}

TEST(PreemptiveResource, NothingIsTakenIfItWouldNotBeEnough) {
  Environment env;
  PreemptiveResource machine(env, 3, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 0, Nanos{5}, 2));
  env.start(use_preemptive(env, machine, log, 'b', 9, Nanos{20}, 1));
  env.start(later(env, machine, log, 'u', 1, Nanos{1}, Nanos{2}, 3));
  env.run_until(Nanos{4});
  EXPECT_EQ(machine.preemption_count(), 0U);
  env.run();  // when a leaves, b can be preempted for the rest
  EXPECT_EQ(log, "a0 b0 a.5 b-5 u5 u.7 ");
  expect_idle(machine);
}

TEST(PreemptiveResource, WhoStandsBehindMayPreemptWhenTheFirstGivesUp) {
  Environment env;
  PreemptiveResource machine(env, 3, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 0, Nanos{5}, 2));
  env.start(use_preemptive(env, machine, log, 'b', 9, Nanos{20}, 1));
  const ProcessId wide = env.start(use_preemptive(env, machine, log, 'u', 1, Nanos{2}, 3));
  env.start(use_preemptive(env, machine, log, 'v', 2, Nanos{2}, 1));
  env.run_until(Nanos{1});
  EXPECT_TRUE(env.interrupt(wide));
  env.run();
  EXPECT_EQ(log, "a0 b0 b-1 v1 u!1 v.3 a.5 ");
  expect_idle(machine);
}

TEST(PreemptiveResource, WhatAVictimHeldTooMuchGoesToTheQueue) {
  Environment env;
  PreemptiveResource machine(env, 3, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 5, Nanos{10}, 3));
  env.start(use_preemptive(env, machine, log, 'b', 6, Nanos{1}, 2));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{9}, 1));
  env.run();
  EXPECT_EQ(log, "a0 u4 a-4 b4 b.5 u.13 ");
  expect_idle(machine);
}

Process with_second_wish(Environment& env, PreemptiveResource& machine, std::string& log) {
  const Held one = co_await machine.request(5);
  const Held two = co_await machine.request(4);  // waits in the queue when it is preempted
  log += std::string(one ? "1" : "-") + (two ? "2" : "-") + "@" + std::to_string(env.now().count());
  co_await env.timeout(Nanos{1});
}

// The victim stands in the queue itself and leaves it while room is being made: what it held is
// promised, and not for who stood behind.
TEST(PreemptiveResource, AVictimThatQueuesLeavesWithoutGrantingOthers) {
  Environment env;
  PreemptiveResource machine(env, 2, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 3, Nanos{10}));
  env.start(with_second_wish(env, machine, log));
  env.start(use_preemptive(env, machine, log, 'b', 6, Nanos{1}));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{2}, 2));
  env.run();
  EXPECT_EQ(log, "a0 u4 --@4a-4 u.6 b6 b.7 ");
  EXPECT_EQ(machine.preemption_count(), 2U);
  expect_idle(machine);
}

Process upgrade(Environment& env, PreemptiveResource& machine, std::string& log) {
  const Held one = co_await machine.request(5);
  const Held two = co_await machine.request(1);
  log += std::string(one ? "1" : "-") + (two ? "2" : "-") + "@" + std::to_string(env.now().count());
}

TEST(PreemptiveResource, NobodyPreemptsItself) {
  Environment env;
  PreemptiveResource machine(env, 2, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 0, Nanos{5}));
  env.start(upgrade(env, machine, log));
  env.run();
  EXPECT_EQ(log, "a0 a.5 12@5");
  EXPECT_EQ(machine.preemption_count(), 0U);
  expect_idle(machine);
}

Process starts_its_rival(Environment& env, PreemptiveResource& machine, std::string& log) {
  const Held held = co_await machine.request(5);
  env.start(
      use_preemptive(env, machine, log, 'u', 1, Nanos{3}));  // takes the unit while this one runs
  EXPECT_FALSE(held);
  const Wake wake = co_await env.timeout(Nanos{8});
  log += wake == Wake::kInterrupted ? "cut" : "done";
  log += std::to_string(env.now().count()) + " ";
}

TEST(PreemptiveResource, ARunningVictimIsInterruptedWhereItWaitsNext) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  env.start(starts_its_rival(env, machine, log));
  env.run();
  EXPECT_EQ(log, "u0 cut0 u.3 ");
  expect_idle(machine);
}

TEST(PreemptiveResource, AGrantIsPreemptedBeforeItsProcessRuns) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  env.start(use_preemptive(env, machine, log, 'a', 0, Nanos{4}));
  env.start(use_preemptive(env, machine, log, 'b', 5, Nanos{4}));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{2}));
  env.run();  // at 4 a releases, b is granted, then u comes before b has run
  EXPECT_EQ(log, "a0 a.4 u4 b!4 u.6 ");
  EXPECT_EQ(machine.preemption_count(), 1U);
  expect_idle(machine);
}

Process hold_both(Environment& env, PreemptiveResource& machine, Resource& other,
                  std::string& log) {
  auto first = machine.request(5);
  auto second = other.request();
  const Wake wake = co_await all_of(env, first, second);
  const Held one = first.take();
  log += (wake == Wake::kDone ? "all" : "cut") + std::string(one ? "+" : "-") + "@" +
         std::to_string(env.now().count()) + " ";
}

TEST(PreemptiveResource, AGrantInAGroupIsPreempted) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  Resource other(env, 0 + 1);
  std::string log;
  const auto block = [](Environment& e, Resource& r) -> Process {
    const Held held = co_await r.request();
    co_await e.timeout(Nanos{9});
  };
  env.start(block(env, other));
  env.start(hold_both(env, machine, other, log));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{2}));
  env.run();
  EXPECT_EQ(log, "u4 cut-@4 u.6 ");
  EXPECT_EQ(other.queue_length(), 0);
  expect_idle(machine);
}

// A named request awaited again is a new arrival: what was held before stays void.
Process insist(Environment& env, PreemptiveResource& machine, std::string& log) {
  auto request = machine.request(5);
  Held before;
  Nanos left{10};
  while (left > Nanos{0}) {
    Held held = co_await request;
    EXPECT_TRUE(held);
    const Nanos since = env.now();
    co_await env.timeout(left);
    left -= env.now() - since;
    EXPECT_FALSE(before);
    before = std::move(held);
    EXPECT_EQ(machine.holds(before), left == Nanos{0});
  }
  log += "done" + std::to_string(env.now().count()) + " ";
}

TEST(PreemptiveResource, ResumesWhatIsLeftWithTheSameRequest) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  env.start(insist(env, machine, log));
  env.start(later(env, machine, log, 'u', 1, Nanos{4}, Nanos{2}));
  env.start(later(env, machine, log, 'v', 1, Nanos{8}, Nanos{1}));
  env.run();
  EXPECT_EQ(log, "u4 u.6 v8 v.9 done13 ");
  EXPECT_EQ(machine.preemption_count(), 2U);
  expect_idle(machine);
}

TEST(PreemptiveResource, AHeldThatMovedAwayIsVoidedToo) {
  Environment env;
  PreemptiveResource machine(env, 1, Mode::kPreemptive);
  std::string log;
  Held kept;
  const auto body = [](Environment&, PreemptiveResource& m, Held& out) -> Process {
    out = co_await m.request(5);
  };
  env.start(body(env, machine, kept));
  EXPECT_TRUE(machine.holds(kept));
  env.start(use_preemptive(env, machine, log, 'u', 1, Nanos{2}));  // whose process has ended
  EXPECT_FALSE(machine.holds(kept));
  kept.release();
  EXPECT_EQ(machine.busy(), 1);
  env.run();
  expect_idle(machine);
}

}  // namespace
}  // namespace kansoku::simulate::des
