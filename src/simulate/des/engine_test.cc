// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/engine.h"

#include <gtest/gtest.h>

#include <string>

#include "simulate/des/group.h"
#include "simulate/des/resource.h"
#include "simulate/des/store.h"

namespace kansoku::simulate::des {
namespace {

Process say(Environment& env, std::string& log, char name, Nanos after) {
  co_await env.timeout(after);
  log += name;
}

TEST(Environment, RunsWhatIsSimultaneousInOrderOfPosting) {
  Environment env;
  std::string log;
  env.start(say(env, log, 'a', Nanos{5}));
  env.start(say(env, log, 'b', Nanos{3}));
  env.start(say(env, log, 'c', Nanos{5}));
  env.start(say(env, log, 'd', Nanos{0}));
  env.run();
  EXPECT_EQ(log, "dbac");
  EXPECT_EQ(env.now(), Nanos{5});
  EXPECT_EQ(env.event_count(), 4U);
  EXPECT_EQ(env.process_count(), 0U);
}

Process use(Environment& env, Resource& resource, std::string& log, char name, Nanos hold) {
  const Held held = co_await resource.request();
  log += name;
  co_await env.timeout(hold);
  log += static_cast<char>(name - 'a' + 'A');
}

TEST(Resource, ServesInOrderOfArrival) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  for (const char name : {'a', 'b', 'c'})
    env.start(use(env, resource, log, name, Nanos{2}));
  EXPECT_EQ(resource.queue_length(), 2);
  env.run();
  EXPECT_EQ(log, "aAbBcC");
  EXPECT_EQ(env.now(), Nanos{6});
  EXPECT_EQ(resource.busy(), 0);
  EXPECT_EQ(static_cast<long>(resource.busy_integral().at(env.now())), 6);
  EXPECT_EQ(static_cast<long>(resource.queue_integral().at(env.now())), 2 + 4);
}

Process renege(Environment& env, Resource& resource, std::string& log) {
  auto request = resource.request();
  auto patience = env.timeout(Nanos{1});
  const First first = co_await any_of(env, request, patience);
  log += first.index == 0 ? "got" : "left";
}

TEST(AnyOf, TakesTheRequestOutOfTheQueue) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}));
  env.start(renege(env, resource, log));
  env.start(use(env, resource, log, 'b', Nanos{1}));
  env.run();
  EXPECT_EQ(log, "aleftAbB");
}

Process stubborn(Environment& env, PreemptiveResource& machine, std::string& log) {
  Held held = co_await machine.request(5);
  const Wake wake = co_await env.timeout(Nanos{10});
  log += wake == Wake::kInterrupted ? "preempted" : "done";
  log += machine.holds(held) ? "+" : "-";
}

Process urgent(Environment& env, PreemptiveResource& machine, std::string& log) {
  co_await env.timeout(Nanos{4});
  const Held held = co_await machine.request(1);
  log += "urgent@" + std::to_string(env.now().count()) + " ";
  co_await env.timeout(Nanos{2});
}

TEST(PreemptiveResource, InterruptsTheWorstHolder) {
  Environment env;
  PreemptiveResource machine(env, 1, PreemptiveResource::Mode::kPreemptive);
  std::string log;
  env.start(stubborn(env, machine, log));
  env.start(urgent(env, machine, log));
  env.run();
  EXPECT_EQ(log, "urgent@4 preempted-");
  EXPECT_EQ(machine.busy(), 0);
  EXPECT_EQ(machine.preemption_count(), 1U);
}

Process produce(Environment& env, Store<int>& store) {
  for (int i = 0; i < 3; ++i) {
    co_await env.timeout(Nanos{1});
    co_await store.put(i);
  }
}

Process consume(Environment&, Store<int>& store, std::string& log) {
  for (int i = 0; i < 3; ++i)
    log += std::to_string((co_await store.get()).value_or(-1));
}

TEST(Store, HandsItemsOverInOrder) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  env.start(consume(env, store, log));
  env.start(produce(env, store));
  env.run();
  EXPECT_EQ(log, "012");
}

Process chain(Environment& env, int left, int& ended) {
  if (left > 0) {
    const ProcessId next = env.start(chain(env, left - 1, ended));
    co_await env.joined(next);
  }
  ++ended;
}

TEST(Environment, StartsAndJoinsDeepChains) {
  Environment env;
  int ended = 0;
  env.start(chain(env, 100'000, ended));
  env.run();
  EXPECT_EQ(ended, 100'001);
}

}  // namespace
}  // namespace kansoku::simulate::des
