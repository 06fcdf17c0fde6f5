// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/group.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulate/des/resource.h"
#include "simulate/des/store.h"

namespace kansoku::simulate::des {
namespace {

Process hold(Environment& env, Resource& resource, Nanos time, std::int64_t units = 1) {
  const Held held = co_await resource.request(units);
  co_await env.timeout(time);
}

Process use_member(Environment& env, Resource& resource, std::string& log, char name) {
  const Held held = co_await resource.request();
  log += held ? name : '!';
  log += std::to_string(env.now().count());
}

// Logs "got", "left" or "cut" and the time.
Process renege(Environment& env, Resource& resource, std::string& log, Nanos patience) {
  auto request = resource.request();
  auto limit = env.timeout(patience);
  const First first = co_await any_of(env, request, limit);
  log += first.wake == Wake::kInterrupted ? "cut" : first.index == 0 ? "got" : "left";
  log += std::to_string(env.now().count());
  const Held held = request.take();
  EXPECT_EQ(static_cast<bool>(held), first.wake == Wake::kDone && first.index == 0);
  EXPECT_FALSE(request.take());  // once
  if (held) co_await env.timeout(Nanos{1});
}

TEST(AnyOf, TakesTheRequestOutOfTheQueue) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(hold(env, resource, Nanos{5}));
  env.start(renege(env, resource, log, Nanos{1}));
  env.start(use_member(env, resource, log, 'b'));
  env.run();
  EXPECT_EQ(log, "left1b5");
  EXPECT_EQ(resource.queue_length(), 0);
}

TEST(AnyOf, OfTwoAtTheSameTimeThePostedFirstWins) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(hold(env, resource, Nanos{5}));
  env.start(renege(env, resource, log, Nanos{5}));  // the limit ends after the holder has released
  env.start(use_member(env, resource, log, 'b'));
  env.run();
  EXPECT_EQ(log, "left5b5");  // the limit was posted before the grant, which goes to the next
  EXPECT_EQ(resource.busy(), 0);
}

TEST(AnyOf, GrantedAtOnceNeverWaits) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(renege(env, resource, log, Nanos{5}));
  EXPECT_EQ(log, "got0");
  env.run();
  EXPECT_EQ(env.now(), Nanos{1});
  EXPECT_EQ(env.event_count(), 1U);
}

TEST(AnyOf, InterruptedTakesAllChildrenBack) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(hold(env, resource, Nanos{5}));
  const ProcessId id = env.start(renege(env, resource, log, Nanos{9}));
  env.start(use_member(env, resource, log, 'b'));
  EXPECT_TRUE(env.interrupt(id));
  EXPECT_FALSE(env.interrupt(id));
  EXPECT_EQ(resource.queue_length(), 1);
  env.run();
  EXPECT_EQ(log, "cut0b5");
  EXPECT_EQ(env.now(), Nanos{5});  // the limit is gone
}

TEST(AnyOf, InterruptedBetweenGrantAndResume) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(hold(env, resource, Nanos{5}));
  const ProcessId id = env.start(renege(env, resource, log, Nanos{9}));
  env.start(use_member(env, resource, log, 'b'));
  const auto cut = [](Environment& e, Resource& r, ProcessId who) -> Process {
    co_await e.timeout(Nanos{5});  // after the release
    EXPECT_EQ(r.queue_length(), 1);
    EXPECT_TRUE(e.interrupt(who));
    EXPECT_EQ(r.queue_length(), 0);
  };
  env.start(cut(env, resource, id));
  env.run();
  EXPECT_EQ(log, "b5cut5");
  EXPECT_EQ(resource.busy(), 0);
}

Process lose_then_wait(Environment& env, Resource& resource, std::string& log) {
  auto request = resource.request();
  auto limit = env.timeout(Nanos{1});
  const First first = co_await any_of(env, request, limit);
  EXPECT_EQ(first.index, 1U);
  const Held held = co_await request;  // the group is gone
  log += "h" + std::to_string(env.now().count());
  co_await limit;
  log += "t" + std::to_string(env.now().count());
}

TEST(AnyOf, WhatLostCanBeAwaitedAlone) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(hold(env, resource, Nanos{5}));
  env.start(lose_then_wait(env, resource, log));
  env.run();
  EXPECT_EQ(log, "h5t6");
  EXPECT_EQ(resource.busy(), 0);
}

Process win_then_await(Environment& env, Resource& resource, std::string& log) {
  auto request = resource.request();
  auto limit = env.timeout(Nanos{9});
  co_await any_of(env, request, limit);
  EXPECT_EQ(resource.busy(), 1);
  const Held held = co_await request;  // in place of take()
  EXPECT_EQ(resource.busy(), 1);
  log += held ? "held" : "none";
}

TEST(AnyOf, AwaitingWhatWasGrantedTakesItOnce) {
  Environment env;
  Resource resource(env, 2);
  std::string log;
  env.start(win_then_await(env, resource, log));
  EXPECT_EQ(log, "held");
  EXPECT_EQ(resource.busy(), 0);
}

Process win_and_forget(Environment& env, Resource& resource) {
  {
    auto request = resource.request();
    auto limit = env.timeout(Nanos{9});
    co_await any_of(env, request, limit);
    EXPECT_EQ(resource.busy(), 1);
  }
  EXPECT_EQ(resource.busy(), 0);  // not taken: given back with the request
  co_await env.timeout(Nanos{1});
}

TEST(AnyOf, AGrantThatNobodyTakesIsGivenBack) {
  Environment env;
  Resource resource(env, 1);
  env.start(win_and_forget(env, resource));
  env.run();
}

Process both(Environment& env, Resource& a, Resource& b, std::string& log) {
  auto first = a.request();
  auto second = b.request();
  while (co_await all_of(env, first, second) == Wake::kInterrupted)
    log += "cut" + std::to_string(a.busy()) + std::to_string(b.busy());
  const Held one = first.take();
  const Held two = second.take();
  log += one && two ? "both" : "one";
  log += std::to_string(env.now().count());
  co_await env.timeout(Nanos{1});
}

TEST(AllOf, WaitsForAll) {
  Environment env;
  Resource a(env, 1), b(env, 1);
  std::string log;
  env.start(hold(env, a, Nanos{3}));
  env.start(hold(env, b, Nanos{7}));
  env.start(both(env, a, b, log));
  env.run();
  EXPECT_EQ(log, "both7");
  EXPECT_EQ(a.busy() + b.busy(), 0);
}

TEST(AllOf, InterruptedKeepsWhatWasGrantedAndCanGoOn) {
  Environment env;
  Resource a(env, 2), b(env, 1);
  std::string log;
  env.start(hold(env, b, Nanos{7}));
  const ProcessId id = env.start(both(env, a, b, log));
  env.run_until(Nanos{2});
  EXPECT_TRUE(env.interrupt(id));
  env.run();
  EXPECT_EQ(log, "cut11both7");  // one unit of `a` all the time
  EXPECT_EQ(a.busy() + b.busy(), 0);
}

Process nested(Environment& env, Resource& a, Resource& b, Nanos patience, std::string& log) {
  auto first = a.request();
  auto second = b.request();
  auto pair = all_of(env, first, second);
  auto limit = env.timeout(patience);
  const First end = co_await any_of(env, pair, limit);
  log += end.wake == Wake::kInterrupted ? "cut" : end.index == 0 ? "both" : "late";
  log += std::to_string(env.now().count());
}

TEST(Group, GroupsNest) {
  for (const auto& [patience, interrupt, expected] :
       {std::tuple{9, false, "both7"}, {5, false, "late5"}, {9, true, "cut4"}}) {
    Environment env;
    Resource a(env, 1), b(env, 1);
    std::string log;
    env.start(hold(env, a, Nanos{3}));
    env.start(hold(env, b, Nanos{7}));
    const ProcessId id = env.start(nested(env, a, b, Nanos{patience}, log));
    env.run_until(Nanos{4});
    EXPECT_EQ(a.busy(), 1);  // granted in the group, not taken
    EXPECT_TRUE(!interrupt || env.interrupt(id));
    env.run();
    EXPECT_EQ(log, expected);
    EXPECT_EQ(a.busy() + b.busy() + a.queue_length() + b.queue_length(), 0);
  }
}

TEST(AllOf, APutServesAGetOfTheSameGroup) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  const auto swap = [](Environment& e, Store<int>& s, std::string& out) -> Process {
    auto get = s.get();
    auto put = s.put(4);
    const Wake wake = co_await all_of(e, get, put);
    out += wake == Wake::kDone ? std::to_string(get.take().value_or(-1)) : "cut";
  };
  env.start(swap(env, store, log));
  env.run();
  EXPECT_EQ(log, "4");
}

TEST(AllOf, AGetMakesRoomForAPutOfTheSameGroup) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  const auto swap = [](Environment& e, Store<int>& s, std::string& out) -> Process {
    co_await s.put(1);
    auto put = s.put(2);
    auto get = s.get();
    const Wake wake = co_await all_of(e, put, get);
    out += wake == Wake::kDone ? std::to_string(get.take().value_or(-1)) : "cut";
  };
  env.start(swap(env, store, log));
  env.run();
  EXPECT_EQ(log, "1");
  EXPECT_EQ(store.size(), 1U);
}

TEST(Group, JoinsAndTimers) {
  Environment env;
  std::string log;
  const auto sleep = [](Environment& e, Nanos time) -> Process { co_await e.timeout(time); };
  const ProcessId a = env.start(sleep(env, Nanos{3}));
  const ProcessId b = env.start(sleep(env, Nanos{8}));
  const auto watch = [](Environment& e, ProcessId x, ProcessId y, std::string& out) -> Process {
    auto one = e.joined(x);
    auto two = e.joined(y);
    const First first = co_await any_of(e, one, two);
    out += std::to_string(first.index) + "@" + std::to_string(e.now().count());
    co_await all_of(e, one, two);
    out += " all@" + std::to_string(e.now().count());
  };
  env.start(watch(env, a, b, log));
  env.run();
  EXPECT_EQ(log, "0@3 all@8");
}

}  // namespace
}  // namespace kansoku::simulate::des
