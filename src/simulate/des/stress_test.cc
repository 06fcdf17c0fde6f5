// SPDX-License-Identifier: Apache-2.0
// Thousands of processes that request, give up, interrupt and preempt at random: what has to hold
// whatever happens, and the same bytes for the same seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/group.h"
#include "simulate/des/resource.h"
#include "simulate/des/store.h"

namespace kansoku::simulate::des {
namespace {

class Playground {
 public:
  explicit Playground(std::uint64_t seed) : random_(seed, "playground") {}

  Process player(Environment& e) {
    ++begun_;
    for (std::uint64_t round = random_.below(4); round < 5; ++round)
      co_await e.timeout(Nanos{below(20)});
    switch (random_.below(6)) {
      case 0:
        e.start(queue_up(e));
        break;
      case 1:
        e.start(renege(e));
        break;
      case 2:
        e.start(preempt(e));
        break;
      case 3:
        e.start(exchange(e));
        break;
      case 4:
        e.start(gather(e));
        break;
      default:
        e.start(disturb(e));
        break;
    }
    note(1);
  }

  void check() {
    for (const ResourceBase* resource :
         {static_cast<ResourceBase*>(&counter_), static_cast<ResourceBase*>(&line_),
          static_cast<ResourceBase*>(&machine_)}) {
      EXPECT_GE(resource->busy(), 0);
      EXPECT_LE(resource->busy(), resource->capacity());
      EXPECT_GE(resource->queue_length(), 0);
    }
  }
  void expect_empty() {
    for (const ResourceBase* resource :
         {static_cast<ResourceBase*>(&counter_), static_cast<ResourceBase*>(&line_),
          static_cast<ResourceBase*>(&machine_)}) {
      EXPECT_EQ(resource->busy(), 0);
      EXPECT_EQ(resource->queue_length(), 0);
    }
    EXPECT_EQ(env.process_count(), 0U);
    EXPECT_EQ(items_in_, items_out_ + store_.size());
  }
  [[nodiscard]] std::uint64_t trace() const { return trace_; }
  [[nodiscard]] std::uint64_t preemptions() const { return machine_.preemption_count(); }

  Environment env;

 private:
  std::int64_t below(std::uint64_t bound) {
    return static_cast<std::int64_t>(random_.below(bound));
  }
  void note(std::uint64_t what) {
    const auto now = static_cast<std::uint64_t>(env.now().count());
    trace_ = (trace_ ^ (what + now * 64 + env.active().index * 131ULL)) * 0x100000001b3ULL;
    check();
  }
  void enlist() {
    if (ids_.size() < 256)
      ids_.push_back(env.active());
    else
      ids_[random_.below(ids_.size())] = env.active();
  }

  Process queue_up(Environment& e) {
    enlist();
    const Held held = co_await counter_.request(1 + below(5));
    note(held ? 2 : 3);
    if (held && co_await e.timeout(Nanos{below(30)}) == Wake::kInterrupted) note(4);
  }

  Process renege(Environment& e) {
    enlist();
    auto request = line_.request(1 + below(3));
    for (int tries = 0; tries < 3; ++tries) {
      auto patience = e.timeout(Nanos{below(10)});
      const First first = co_await any_of(e, request, patience);
      note(5 + first.index);
      if (first.wake == Wake::kDone && first.index == 0) break;
    }
    const Held held = request.take();
    if (held) co_await e.timeout(Nanos{below(10)});
    note(8);
  }

  Process preempt(Environment& e) {
    enlist();
    auto request = machine_.request(below(8), 1 + below(4));
    Nanos left{1 + below(30)};
    for (int tries = 0; tries < 20 && left > Nanos{0}; ++tries) {
      const Held held = co_await request;
      note(held ? 9 : 10);
      if (!held) continue;
      const Nanos since = e.now();
      co_await e.timeout(left);
      left -= e.now() - since;
    }
    note(11);
  }

  Process exchange(Environment& e) {
    enlist();
    if (random_.below(2) == 0) {
      auto put = store_.put(below(100));
      auto patience = e.timeout(Nanos{below(50)});
      co_await any_of(e, put, patience);
      if (put.accepted()) ++items_in_;
      note(12);
    } else {
      auto get = store_.get();
      auto patience = e.timeout(Nanos{below(50)});
      co_await any_of(e, get, patience);
      if (get.take()) ++items_out_;
      note(13);
    }
  }

  Process gather(Environment& e) {
    enlist();
    auto one = counter_.request();
    auto two = machine_.request(below(8));
    auto three = line_.request();
    auto all = all_of(e, one, two, three);
    auto patience = e.timeout(Nanos{below(100)});
    const First first = co_await any_of(e, all, patience);
    note(14 + first.index);
    if (random_.below(2) == 0) {
      const Held a = one.take(), b = two.take(), c = three.take();
      co_await e.timeout(Nanos{below(5)});
    } else {
      co_await e.timeout(Nanos{below(5)});  // given back with the requests
    }
    note(16);
  }

  Process disturb(Environment& e) {
    for (int i = 0; i < 3; ++i) {
      co_await e.timeout(Nanos{below(5)});
      if (ids_.empty()) continue;
      const ProcessId victim = ids_[random_.below(ids_.size())];
      note(e.interrupt(victim) ? 17 : 18);
      EXPECT_FALSE(e.interrupt(victim));
      if (random_.below(4) == 0 && e.alive(victim)) {
        auto end = e.joined(victim);
        auto patience = e.timeout(Nanos{below(20)});
        co_await any_of(e, end, patience);
      }
    }
  }

  RandomStream random_;
  std::uint64_t trace_{0xcbf29ce484222325ULL}, begun_{0}, items_in_{0}, items_out_{0};
  std::vector<ProcessId> ids_;
  Resource counter_{env, 7}, line_{env, 3};
  PreemptiveResource machine_{env, 5, PreemptiveResource::Mode::kPreemptive};
  Store<std::int64_t> store_{env, 4};
};

Process arrivals(Environment& env, Playground& ground, RandomStream random, int count) {
  for (int i = 0; i < count; ++i) {
    env.start(ground.player(env));
    co_await env.timeout(Nanos{static_cast<std::int64_t>(random.below(9))});
  }
}

std::uint64_t play(std::uint64_t seed, int count) {
  Playground ground(seed);
  ground.env.start(arrivals(ground.env, ground, RandomStream(seed, "arrivals"), count));
  ground.env.run();
  ground.expect_empty();
  EXPECT_GT(ground.preemptions(), 0U);
  return ground.trace();
}

TEST(Stress, NothingIsLostAndTheSameSeedGivesTheSameTrace) {
  std::vector<std::uint64_t> traces;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    traces.push_back(play(seed, 4000));
    EXPECT_EQ(traces.back(), play(seed, 4000));
  }
  std::sort(traces.begin(), traces.end());
  EXPECT_EQ(std::adjacent_find(traces.begin(), traces.end()), traces.end());
}

TEST(Stress, CanBeAbandonedAtAnyTime) {
  for (std::int64_t until = 0; until < 2000; until += 61) {
    Playground ground(7);
    ground.env.start(arrivals(ground.env, ground, RandomStream(7, "arrivals"), 500));
    ground.env.run_until(Nanos{until});
    ground.check();
  }
}

}  // namespace
}  // namespace kansoku::simulate::des
