// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "simulate/des/group.h"

namespace kansoku::simulate::des {
namespace {

Process produce(Environment& env, Store<int>& store, int count, Nanos gap) {
  for (int i = 0; i < count; ++i) {
    co_await env.timeout(gap);
    co_await store.put(i);
  }
}

Process consume(Environment&, Store<int>& store, std::string& log, int count) {
  for (int i = 0; i < count; ++i)
    log += std::to_string((co_await store.get()).value_or(-1));
}

// Logs what it got, `!` if it was interrupted, and the time.
Process get_one(Environment& env, Store<int>& store, std::string& log, char name) {
  const std::optional<int> item = co_await store.get();
  log += name + (item ? std::to_string(*item) : "!") + "@" + std::to_string(env.now().count());
}

Process put_one(Environment& env, Store<int>& store, std::string& log, char name, int item) {
  auto put = store.put(item);
  const Wake wake = co_await put;
  log += std::string{name} +
         (wake == Wake::kDone ? "ok"
          : put.accepted()    ? "in"
                              : "out") +
         "@" + std::to_string(env.now().count());
}

TEST(Store, HandsItemsOverInOrder) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  env.start(consume(env, store, log, 3));
  env.start(produce(env, store, 3, Nanos{1}));
  env.run();
  EXPECT_EQ(log, "012");
  EXPECT_EQ(store.size(), 0U);
}

TEST(Store, APutWaitsWhileItIsFullAndGoesInOrder) {
  Environment env;
  Store<int> store(env, 2);
  std::string log;
  for (int i = 0; i < 4; ++i)
    env.start(put_one(env, store, log, static_cast<char>('a' + i), i));
  EXPECT_EQ(log, "aok@0bok@0");
  EXPECT_EQ(store.size(), 2U);
  env.start(consume(env, store, log, 1));
  env.run();
  EXPECT_EQ(log, "aok@0bok@00cok@0");
  EXPECT_EQ(store.size(), 2U);
}

TEST(Store, GetsGoInOrderOfArrival) {
  Environment env;
  Store<int> store(env);
  std::string log;
  for (const char name : {'a', 'b', 'c'})
    env.start(get_one(env, store, log, name));
  env.start(produce(env, store, 3, Nanos{2}));
  env.run();
  EXPECT_EQ(log, "a0@2b1@4c2@6");
}

TEST(Store, MovesItemsThatCannotBeCopied) {
  Environment env;
  Store<std::unique_ptr<int>> store(env, 1);
  int got = 0;
  const auto give = [](Environment& e, Store<std::unique_ptr<int>>& s) -> Process {
    co_await s.put(std::make_unique<int>(7));
    co_await s.put(std::make_unique<int>(8));  // stays
    co_await s.put(std::make_unique<int>(9));  // waits for ever
    co_await e.timeout(Nanos{1});
  };
  const auto take = [](Environment&, Store<std::unique_ptr<int>>& s, int& out) -> Process {
    const std::optional<std::unique_ptr<int>> item = co_await s.get();
    out = **item;
  };
  env.start(give(env, store));
  env.start(take(env, store, got));
  env.run();
  EXPECT_EQ(got, 7);
  EXPECT_EQ(env.process_count(), 1U);
}

TEST(Store, AnInterruptedGetLeavesTheQueue) {
  Environment env;
  Store<int> store(env);
  std::string log;
  env.start(get_one(env, store, log, 'a'));
  const ProcessId second = env.start(get_one(env, store, log, 'b'));
  env.start(get_one(env, store, log, 'c'));
  env.interrupt(second);
  env.start(produce(env, store, 2, Nanos{1}));
  env.run();
  EXPECT_EQ(log, "b!@0a0@1c1@2");
}

TEST(Store, AnInterruptedPutLeavesTheQueue) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  env.start(put_one(env, store, log, 'a', 1));
  const ProcessId second = env.start(put_one(env, store, log, 'b', 2));
  env.start(put_one(env, store, log, 'c', 3));
  env.interrupt(second);
  env.run();
  env.start(consume(env, store, log, 2));
  env.run();
  EXPECT_EQ(log, "aok@0bout@013cok@0");
}

// The get makes room, the put goes in; before its process hears of it, it is interrupted.
TEST(Store, APutInterruptedWhenItWasAcceptedSaysSo) {
  Environment env;
  Store<int> store(env, 1);
  std::string log;
  env.start(put_one(env, store, log, 'a', 1));
  const ProcessId second = env.start(put_one(env, store, log, 'b', 2));
  env.start(consume(env, store, log, 1));
  EXPECT_TRUE(env.interrupt(second));
  env.run();
  EXPECT_EQ(log, "aok@01bin@0");
  EXPECT_EQ(store.size(), 1U);
}

// Items that were handed to gets which were then interrupted come back to their places.
TEST(Store, ItemsThatNobodySawComeBackInOrder) {
  for (const bool reverse : {false, true}) {
    Environment env;
    Store<int> store(env, 3);
    std::string log;
    std::vector<ProcessId> getters;
    for (const char name : {'a', 'b'})
      getters.push_back(env.start(get_one(env, store, log, name)));
    for (int i = 0; i < 4; ++i)
      env.start(put_one(env, store, log, 'p', i));
    if (reverse) std::swap(getters[0], getters[1]);
    for (const ProcessId id : getters)
      EXPECT_TRUE(env.interrupt(id));
    EXPECT_EQ(store.size(), 4U);  // one over the capacity
    env.run();
    log.clear();
    env.start(put_one(env, store, log, 'q', 4));
    env.start(consume(env, store, log, 5));
    env.run();
    EXPECT_EQ(log, "01234qok@0");
  }
}

TEST(Store, AnItemThatComesBackGoesToTheNextInTheQueue) {
  Environment env;
  Store<int> store(env);
  std::string log;
  const ProcessId first = env.start(get_one(env, store, log, 'a'));
  env.start(get_one(env, store, log, 'b'));
  env.start(put_one(env, store, log, 'p', 5));
  EXPECT_TRUE(env.interrupt(first));
  env.run();
  EXPECT_EQ(log, "pok@0b5@0a!@0");
}

Process get_patiently(Environment& env, Store<int>& store, std::string& log, Nanos patience) {
  auto get = store.get();
  for (;;) {
    auto limit = env.timeout(patience);
    const First first = co_await any_of(env, get, limit);
    if (first.index == 0) break;
    log += "w";
  }
  log += std::to_string(get.take().value_or(-1));
  EXPECT_FALSE(get.take());
}

TEST(Store, AGetIsAwaitedAgainInGroups) {
  Environment env;
  Store<int> store(env);
  std::string log;
  env.start(get_patiently(env, store, log, Nanos{2}));
  env.start(produce(env, store, 1, Nanos{5}));
  env.run();
  EXPECT_EQ(log, "ww0");
}

TEST(Store, LeavingFromTheMiddleKeepsTheOrder) {
  Environment env;
  Store<int> store(env);
  std::string log;
  std::vector<ProcessId> ids;
  for (int i = 0; i < 5; ++i)
    ids.push_back(env.start(get_one(env, store, log, static_cast<char>('a' + i))));
  for (const std::size_t who : {4U, 0U, 2U})
    env.interrupt(ids[who]);
  env.start(produce(env, store, 2, Nanos{1}));
  env.run();
  EXPECT_EQ(log, "e!@0a!@0c!@0b0@1d1@2");
}

}  // namespace
}  // namespace kansoku::simulate::des
