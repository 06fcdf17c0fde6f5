// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace kansoku::gpu::exec {
namespace {

TEST(Workers, EveryIndexWithWorkOfItsOwnIsCalledOnce) {
  Workers workers;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> calls(5);
    workers.run(calls.size(), Workers::Share::kOfAll, [&](std::uint64_t i) { ++calls[i]; });
    for (const auto& count : calls)
      EXPECT_EQ(count, 1);
  }
}

TEST(Workers, IndicesRunAtTheSameTime) {
  Workers workers;
  std::barrier<> all(4);  // ends only if all four are there
  workers.run(4, Workers::Share::kOfAll, [&](std::uint64_t) { all.arrive_and_wait(); });
}

TEST(Workers, CallsFromSeveralThreadsDoNotWaitForEachOther) {
  Workers workers;
  std::barrier<> both(4);  // two of each call
  const auto work = [&](std::uint64_t) { both.arrive_and_wait(); };
  std::thread other([&] { workers.run(2, Workers::Share::kOfAll, work); });
  workers.run(2, Workers::Share::kOfAll, work);
  other.join();
}

TEST(Workers, ThreadsAreKept) {
  Workers workers;
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int round = 0; round < 50; ++round) {
    workers.run(3, Workers::Share::kOfAll, [&](std::uint64_t) {
      const std::scoped_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  // A thread that ends its share just now is not idle yet, so one more may be made.
  EXPECT_LT(seen.size(), 20U);
}

TEST(Workers, WhoFindsNoWorkLeftNeedNotBegin) {
  Workers workers;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> next{0}, done{0};
    workers.run(4, Workers::Share::kOfRest, [&](std::uint64_t) {
      while (next++ < 10)
        ++done;
    });
    EXPECT_EQ(done, 10);
  }
}

}  // namespace
}  // namespace kansoku::gpu::exec
