// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/rng.h"
#include "simulate/des/group.h"
#include "simulate/des/resource.h"
#include "simulate/des/store.h"

namespace kansoku::simulate::des {
namespace {

Process say(Environment& env, std::string& log, char name, Nanos after) {
  const Wake wake = co_await env.timeout(after);
  log += wake == Wake::kDone ? name : static_cast<char>(name - 'a' + 'A');
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

Process at_time(Environment& env, std::vector<int>& order, int name, Nanos at) {
  co_await env.timeout(at);
  order.push_back(name);
}

// Other events, before and after, shape the heap differently; what is simultaneous is not touched.
TEST(Environment, OrderOfSimultaneousEventsDoesNotDependOnTheHeap) {
  constexpr int kCount = 1 << 16;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    Environment env;
    Rng rng(seed);
    std::vector<int> order, others;
    for (int i = 0; i < kCount; ++i) {
      if (seed != 0) {
        const std::uint64_t noise = rng.below(2000);
        env.start(at_time(env, others, 0, Nanos{static_cast<std::int64_t>(noise)}));
      }
      env.start(at_time(env, order, i, Nanos{1000}));
    }
    env.run();
    std::vector<int> expected(kCount);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

// 1,024 instants with 64 events each, inserted in any order: sorted by time, and stable.
TEST(Environment, PermutedInsertionIsSortedStably) {
  std::vector<int> names(1 << 16);
  std::iota(names.begin(), names.end(), 0);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Rng rng(seed);
    for (std::size_t i = names.size(); i > 1; --i)
      std::swap(names[i - 1], names[rng.below(i)]);
    Environment env;
    std::vector<int> order;
    for (const int name : names)
      env.start(at_time(env, order, name, Nanos{1 + name / 64}));
    env.run();
    std::vector<int> expected = names;
    std::stable_sort(expected.begin(), expected.end(),
                     [](int a, int b) { return a / 64 < b / 64; });
    EXPECT_EQ(order, expected);
  }
}

TEST(Environment, RunUntilStopsBeforeAndSetsTheClock) {
  Environment env;
  std::string log;
  for (const auto& [name, at] : {std::pair{'a', 4}, {'b', 5}, {'c', 6}})
    env.start(say(env, log, name, Nanos{at}));
  env.run_until(Nanos{5});
  EXPECT_EQ(log, "a");
  EXPECT_EQ(env.now(), Nanos{5});
  env.run_until(Nanos{5});  // nothing, and no harm
  EXPECT_EQ(log, "a");
  env.run_until(Nanos{6});
  EXPECT_EQ(log, "ab");
  env.start(say(env, log, 'd', Nanos{0}));  // from now on: posted after c
  env.run_until(Nanos{100});
  EXPECT_EQ(log, "abcd");
  EXPECT_EQ(env.now(), Nanos{100});
  env.run();
  EXPECT_EQ(env.now(), Nanos{100});
}

Process stopper(Environment& env, Nanos at) {
  co_await env.timeout(at);
  env.stop();
}

TEST(Environment, StopLeavesTheRestForTheNextRun) {
  Environment env;
  std::string log;
  env.start(stopper(env, Nanos{2}));
  env.start(say(env, log, 'a', Nanos{2}));
  env.start(say(env, log, 'b', Nanos{3}));
  env.run_until(Nanos{10});
  EXPECT_EQ(log, "");
  EXPECT_EQ(env.now(), Nanos{2});
  env.run_until(Nanos{10});
  EXPECT_EQ(log, "ab");
  EXPECT_EQ(env.now(), Nanos{10});
}

TEST(Environment, ATimeoutBeyondAllTimeNeverEnds) {
  Environment env;
  std::string log;
  env.start(say(env, log, 'a', Nanos{7}));
  env.run();
  const ProcessId forever = env.start(say(env, log, 'b', Nanos::max()));
  env.run();
  EXPECT_EQ(log, "a");
  EXPECT_EQ(env.now(), Nanos{7});
  EXPECT_TRUE(env.interrupt(forever));
  env.run();
  EXPECT_EQ(log, "aB");
}

TEST(Environment, InterruptsATimerOnce) {
  Environment env;
  std::string log;
  const ProcessId id = env.start(say(env, log, 'a', Nanos{5}));
  EXPECT_TRUE(env.interrupt(id));
  EXPECT_FALSE(env.interrupt(id));  // is being interrupted
  EXPECT_EQ(log, "");
  env.run();
  EXPECT_EQ(log, "A");
  EXPECT_EQ(env.now(), Nanos{0});
  EXPECT_EQ(env.event_count(), 1U);
  EXPECT_FALSE(env.interrupt(id));  // has ended
}

TEST(Environment, AnEndedProcessIsNotItsSuccessor) {
  Environment env;
  std::string log;
  const ProcessId first = env.start(say(env, log, 'a', Nanos{1}));
  env.run();
  const ProcessId second = env.start(say(env, log, 'b', Nanos{1}));
  EXPECT_EQ(first.index, second.index);
  EXPECT_NE(first, second);
  EXPECT_FALSE(env.alive(first));
  EXPECT_TRUE(env.alive(second));
  EXPECT_FALSE(env.interrupt(first));
  env.run();
  EXPECT_EQ(log, "ab");
  EXPECT_FALSE(env.alive(ProcessId{}));
  EXPECT_FALSE(env.interrupt(ProcessId{}));
}

Process interrupt_self(Environment& env, bool& result) {
  result = env.interrupt(env.active());
  co_await env.timeout(Nanos{1});
}

TEST(Environment, NobodyInterruptsItself) {
  Environment env;
  bool result = true;
  env.start(interrupt_self(env, result));
  EXPECT_FALSE(result);
  EXPECT_EQ(env.active(), ProcessId{});
  env.run();
  EXPECT_EQ(env.now(), Nanos{1});
}

Process twice(Environment& env, std::vector<Wake>& wakes) {
  auto nap = env.timeout(Nanos{4});
  wakes.push_back(co_await nap);
  wakes.push_back(co_await nap);
}

TEST(Environment, AnInterruptedWaitCanBeAwaitedAgain) {
  Environment env;
  std::vector<Wake> wakes;
  const ProcessId id = env.start(twice(env, wakes));
  env.run_until(Nanos{1});
  env.interrupt(id);
  env.run();
  EXPECT_EQ(wakes, (std::vector{Wake::kInterrupted, Wake::kDone}));
  EXPECT_EQ(env.now(), Nanos{5});
}

TEST(Environment, PreemptWaitsForTheNextWait) {
  Environment env;
  std::vector<Wake> wakes;
  const auto runner = [](Environment& e, std::vector<Wake>& out) -> Process {
    e.preempt(e.active());  // it runs
    e.preempt(e.active());
    out.push_back(co_await e.timeout(Nanos{4}));
    out.push_back(co_await e.timeout(Nanos{4}));
  };
  env.start(runner(env, wakes));
  env.run();
  EXPECT_EQ(wakes, (std::vector{Wake::kInterrupted, Wake::kDone}));
  EXPECT_EQ(env.now(), Nanos{4});
}

Process join(Environment& env, ProcessId id, std::string& log, char name) {
  log += co_await env.joined(id) == Wake::kDone ? name : '!';
}

TEST(Joined, WakesAllInOrderAndAtOnceIfItHasEnded) {
  Environment env;
  std::string log;
  const ProcessId worker = env.start(say(env, log, 'w', Nanos{5}));
  for (const char name : {'a', 'b', 'c'})
    env.start(join(env, worker, log, name));
  env.run();
  EXPECT_EQ(log, "wabc");
  env.start(join(env, worker, log, 'd'));
  EXPECT_EQ(log, "wabcd");
  env.start(join(env, ProcessId{}, log, 'e'));
  EXPECT_EQ(log, "wabcde");
}

TEST(Joined, InterruptedAnywhereInTheLineAndAfterTheEnd) {
  for (int victim = 0; victim < 3; ++victim) {
    Environment env;
    std::string log;
    const ProcessId worker = env.start(say(env, log, 'w', Nanos{5}));
    std::vector<ProcessId> ids;
    for (const char name : {'a', 'b', 'c'})
      ids.push_back(env.start(join(env, worker, log, name)));
    EXPECT_TRUE(env.interrupt(ids[static_cast<std::size_t>(victim)]));
    env.run();
    std::string expected = "!wabc";
    expected.erase(static_cast<std::size_t>(2 + victim), 1);
    EXPECT_EQ(log, expected);
  }
  Environment env;
  std::string log;
  const ProcessId worker = env.start(say(env, log, 'w', Nanos{5}));
  const ProcessId waiter = env.start(join(env, worker, log, 'a'));
  const auto late = [](Environment& e, ProcessId who) -> Process {
    co_await e.timeout(Nanos{5});
    EXPECT_TRUE(e.interrupt(who));  // its end is posted already
  };
  env.start(late(env, waiter));
  env.run();
  EXPECT_EQ(log, "w!");
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

TEST(Environment, AProcessThatWasNotBegunIsNotInterrupted) {
  Environment env;
  std::vector<ProcessId> ids;
  struct Nest {
    Process operator()(Environment& e, std::vector<ProcessId>& out, int left) {
      if (left > 0) out.push_back(e.start((*this)(e, out, left - 1)));
      co_await e.timeout(Nanos{3});
    }
  } nested;
  env.start(nested(env, ids, Environment::kStartDepthMax + 1));
  // The innermost that could run pushed the id of the one that could not, and that one first.
  EXPECT_TRUE(env.alive(ids.front()));
  EXPECT_FALSE(env.interrupt(ids.front()));
  env.run();
  EXPECT_EQ(env.process_count(), 0U);
  EXPECT_EQ(env.now(), Nanos{3});
}

Process nap(Environment& env, Nanos time) {
  co_await env.timeout(time);
}

Process big(Environment& env, Nanos time) {
  std::array<char, 10'000> room{};
  char* volatile place = room.data();  // a compiler may leave out of the frame what nobody looks at
  co_await env.timeout(time);
  place[1] = 1;
}

Process many(Environment& env, int count) {
  for (int i = 0; i < count; ++i) {
    env.start(nap(env, Nanos{5}));
    co_await env.timeout(Nanos{1});
  }
}

TEST(FramePool, GrowsWithTheProcessesAliveNotWithAll) {
  Environment env;
  env.start(many(env, 1000));
  env.run();
  const std::size_t bytes = env.frames().system_bytes();
  EXPECT_LE(bytes, std::size_t{256} << 10);
  env.start(many(env, 100'000));
  env.run();
  EXPECT_EQ(env.frames().system_bytes(), bytes);
  for (int i = 0; i < 10'000; ++i)
    env.start(nap(env, Nanos{1}));
  env.run();
  const std::size_t peak = env.frames().system_bytes();
  EXPECT_GT(peak, bytes);
  for (int i = 0; i < 10'000; ++i)
    env.start(nap(env, Nanos{1}));
  env.run();
  EXPECT_EQ(env.frames().system_bytes(), peak);
}

TEST(FramePool, GivesLargeFramesBackAtOnce) {
  Environment env;
  { const Process never_started = big(env, Nanos{1}); }
  EXPECT_EQ(env.frames().system_bytes(), 0U);
  env.start(big(env, Nanos{1}));
  EXPECT_GE(env.frames().system_bytes(), 10'000U);
  env.run();
  EXPECT_EQ(env.frames().system_bytes(), 0U);
  env.start(big(env, Nanos{1}));  // destroyed while it waits
}

TEST(FramePool, SizesAroundTheLimitOfTheFreeLists) {
  FramePool pool;
  for (const std::size_t bytes : {1UL, 48UL, 49UL, 4079UL, 4080UL, 4081UL, 10'000UL}) {
    void* const first = pool.allocate(bytes);
    std::fill_n(static_cast<char*>(first), bytes, 'x');
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 16, 0U);
    FramePool::release(first);
    void* const second = pool.allocate(bytes);
    EXPECT_TRUE(bytes > 4080 || first == second);
    FramePool::release(second);
  }
  EXPECT_EQ(pool.system_bytes(), std::size_t{256} << 10);
}

struct Counted {
  explicit Counted(int& count) : count_(&count) { ++*count_; }
  Counted(const Counted& other) : count_(other.count_) { ++*count_; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*count_; }
  int* count_;
};

struct World {
  explicit World(Environment& env)
      : counter(env, 1),
        machine(env, 1, PreemptiveResource::Mode::kPreemptive),
        full(env, 1),
        empty(env) {}
  Resource counter;
  PreemptiveResource machine;
  Store<int> full, empty;
};

Process wait_somewhere(Environment& env, World& world, int how, ProcessId other, Counted) {
  auto request = world.counter.request();
  auto urgent = world.machine.request(how);
  auto put = world.full.put(how);
  auto get = world.empty.get();
  auto forever = env.timeout(Nanos::max());
  auto end = env.joined(other);
  switch (how) {
    case 0:
      co_await forever;
      break;
    case 1: {
      const Held held = co_await request;
      co_await forever;
      break;
    }
    case 2: {
      const Held held = co_await urgent;
      co_await forever;
      break;
    }
    case 3:
      co_await put;
      break;
    case 4:
      static_cast<void>(co_await get);
      break;
    case 5:
      co_await end;
      break;
    case 6:
      co_await any_of(env, request, urgent, put, get, forever, end);
      break;
    case 7:
      co_await all_of(env, request, urgent, put, get, forever, end);
      break;
    default:
      break;
  }
}

// Twice each: the first holds, the second waits in the queue. The resources go before the
// environment; so do they while grants are posted that nobody has taken.
TEST(Environment, DestroysProcessesInEveryKindOfWait) {
  int alive = 0;
  {
    Environment env;
    World world(env);
    const ProcessId sleeper = env.start(nap(env, Nanos::max()));
    for (int how = 0; how < 16; ++how)
      env.start(wait_somewhere(env, world, how % 8, sleeper, Counted(alive)));
    env.run();
    EXPECT_EQ(env.process_count(), 16U);  // the first put went in at once
    EXPECT_EQ(alive, 15);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Environment, DestroysProcessesWithGrantsPosted) {
  int alive = 0;
  Environment env;
  {
    World world(env);
    const auto hold = [](Environment& e, World& w) -> Process {
      const Held a = co_await w.counter.request();
      const Held b = co_await w.machine.request(1);
      co_await w.full.put(1);
      co_await e.timeout(Nanos::max());
    };
    const ProcessId holder = env.start(hold(env, world));
    const ProcessId waiter = env.start(wait_somewhere(env, world, 1, holder, Counted(alive)));
    const ProcessId keeper = env.start(wait_somewhere(env, world, 2, holder, Counted(alive)));
    env.start(wait_somewhere(env, world, 7, holder, Counted(alive)));
    env.interrupt(holder);
    env.interrupt(waiter);
    env.run_until(Nanos{1});
    env.interrupt(keeper);
  }  // the resources are gone, ends of waits are posted
}

}  // namespace
}  // namespace kansoku::simulate::des
