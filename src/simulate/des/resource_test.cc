// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/resource.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kansoku::simulate::des {
namespace {

// Logs its name and the time when it is served, `!` if it was interrupted before.
Process use(Environment& env, Resource& resource, std::string& log, char name, Nanos time,
            std::int64_t units = 1) {
  const Held held = co_await resource.request(units);
  log += std::string{name} + (held ? "" : "!") + std::to_string(env.now().count());
  EXPECT_EQ(held.units(), held ? units : 0);
  if (held) co_await env.timeout(time);
}

TEST(Resource, ServesInOrderOfArrival) {
  Environment env;
  Resource resource(env, 1, "counter");
  std::string log;
  for (const char name : {'a', 'b', 'c'})
    env.start(use(env, resource, log, name, Nanos{2}));
  EXPECT_EQ(resource.queue_length(), 2);
  EXPECT_EQ(resource.name(), "counter");
  env.run();
  EXPECT_EQ(log, "a0b2c4");
  EXPECT_EQ(env.now(), Nanos{6});
  EXPECT_EQ(resource.busy(), 0);
  EXPECT_EQ(static_cast<long>(resource.busy_integral().at(env.now())), 6);
  EXPECT_EQ(static_cast<long>(resource.queue_integral().at(env.now())), 2 + 4);
  EXPECT_DOUBLE_EQ(resource.busy_integral().mean(env.now()), 1.0);
}

TEST(Resource, UnitsInStrictOrder) {
  Environment env;
  Resource resource(env, 4);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}, 3));
  env.start(use(env, resource, log, 'b', Nanos{2}, 2));
  env.start(use(env, resource, log, 'c', Nanos{2}, 1));  // would fit, and waits behind b
  EXPECT_EQ(log, "a0");
  EXPECT_EQ(resource.busy(), 3);
  env.run();
  EXPECT_EQ(log, "a0b5c5");
  EXPECT_EQ(env.now(), Nanos{7});
}

TEST(Resource, OneReleaseLetsSeveralGo) {
  Environment env;
  Resource resource(env, 4);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}, 4));
  for (const char name : {'b', 'c', 'd'})
    env.start(use(env, resource, log, name, Nanos{1}, 2));
  env.run();
  EXPECT_EQ(log, "a0b5c5d6");
}

TEST(Resource, WhoeverGivesUpAtTheFrontLetsTheNextGo) {
  Environment env;
  Resource resource(env, 4);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}, 3));
  const ProcessId wide = env.start(use(env, resource, log, 'b', Nanos{2}, 2));
  env.start(use(env, resource, log, 'c', Nanos{9}, 1));
  env.run_until(Nanos{1});
  EXPECT_TRUE(env.interrupt(wide));
  EXPECT_EQ(resource.queue_length(), 0);
  env.run();
  EXPECT_EQ(log, "a0c1b!1");
  EXPECT_EQ(env.now(), Nanos{10});
  EXPECT_EQ(resource.busy(), 0);
}

TEST(Resource, WhoeverGivesUpInTheMiddleOrAtTheEnd) {
  for (std::size_t victim = 1; victim <= 3; ++victim) {
    Environment env;
    Resource resource(env, 1);
    std::string log;
    std::vector<ProcessId> ids;
    for (const char name : {'a', 'b', 'c', 'd'})
      ids.push_back(env.start(use(env, resource, log, name, Nanos{2})));
    env.interrupt(ids[victim]);
    env.run();
    const char gone = static_cast<char>('a' + victim);
    std::string expected = std::string("a0") + gone + "!0";
    int at = 2;
    for (const char name : {'b', 'c', 'd'}) {
      if (name == gone) continue;
      expected += name + std::to_string(at);
      at += 2;
    }
    EXPECT_EQ(log, expected);
    EXPECT_EQ(resource.busy(), 0);
  }
}

TEST(Resource, AGrantThatWasInterruptedGoesToTheNext) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}));
  const ProcessId next = env.start(use(env, resource, log, 'b', Nanos{2}));
  env.start(use(env, resource, log, 'c', Nanos{2}));
  const auto cut = [](Environment& e, Resource& r, ProcessId who) -> Process {
    co_await e.timeout(Nanos{5});
    EXPECT_EQ(r.busy(), 1);  // granted to b, which has not run yet
    EXPECT_TRUE(e.interrupt(who));
    EXPECT_FALSE(e.interrupt(who));
  };
  env.start(cut(env, resource, next));
  env.run();
  EXPECT_EQ(log, "a0c5b!5");
  EXPECT_EQ(resource.busy(), 0);
}

TEST(Resource, AnInterruptedRequestCanBeAwaitedAgain) {
  Environment env;
  Resource resource(env, 1);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{5}));
  const auto insist = [](Environment& e, Resource& r, std::string& out) -> Process {
    auto request = r.request();
    for (;;) {
      const Held held = co_await request;
      out += (held ? "h" : "!") + std::to_string(e.now().count());
      if (held) break;
    }
    const Held again = co_await request;
    out += again ? "h" : "!";
  };
  const ProcessId id = env.start(insist(env, resource, log));
  env.run_until(Nanos{1});
  env.interrupt(id);
  env.run();
  EXPECT_EQ(log, "a0!1h5h");
  EXPECT_EQ(resource.busy(), 0);
  EXPECT_EQ(resource.queue_length(), 0);
}

TEST(Held, MovesAndReleasesOnce) {
  Environment env;
  Resource resource(env, 3);
  const auto body = [](Environment& e, Resource& r) -> Process {
    Held a = co_await r.request(2);
    Held b = std::move(a);
    EXPECT_FALSE(a);
    EXPECT_EQ(a.units(), 0);
    EXPECT_EQ(b.units(), 2);
    a.release();
    EXPECT_EQ(r.busy(), 2);
    Held c = co_await r.request(1);
    c = std::move(b);  // gives the one unit back
    EXPECT_EQ(r.busy(), 2);
    Held& same = c;
    c = std::move(same);
    EXPECT_EQ(c.units(), 2);
    c.release();
    c.release();
    EXPECT_EQ(r.busy(), 0);
    co_await e.timeout(Nanos{1});
  };
  env.start(body(env, resource));
  env.run();
}

TEST(Held, OutlivesTheProcessThatAsked) {
  Environment env;
  Resource resource(env, 1);
  Held kept;
  const auto body = [](Environment&, Resource& r, Held& out) -> Process {
    out = co_await r.request();
  };
  env.start(body(env, resource, kept));
  EXPECT_EQ(resource.busy(), 1);
  std::string log;
  env.start(use(env, resource, log, 'a', Nanos{1}));
  kept.release();
  env.run();
  EXPECT_EQ(log, "a0");
}

TEST(TimeIntegral, IsExact) {
  TimeIntegral integral;
  integral.change(Nanos{10}, 3);
  integral.change(Nanos{14}, -1);
  EXPECT_EQ(static_cast<long>(integral.at(Nanos{20})), 3 * 4 + 2 * 6);
  EXPECT_DOUBLE_EQ(integral.mean(Nanos{20}), 24.0 / 20);
  EXPECT_DOUBLE_EQ(integral.mean(Nanos{20}, Nanos{14}, 12), 2.0);
  EXPECT_DOUBLE_EQ(integral.mean(Nanos{14}, Nanos{14}, 12), 0.0);
  TimeIntegral large;  // beyond 64 bits
  large.change(Nanos{0}, INT64_MAX);
  EXPECT_DOUBLE_EQ(large.mean(Nanos::max()), static_cast<double>(INT64_MAX));
}

}  // namespace
}  // namespace kansoku::simulate::des
