// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace kansoku::gpu::exec {
namespace {

/// All indices of one call; the caller's is 0.
void run(Workers& workers, std::uint64_t count, Helpers::Share share,
         const std::function<void(std::uint64_t)>& work) {
  Helpers helpers(workers, share, work);
  helpers.start(count);
  work(0);
}

TEST(Workers, EveryIndexWithWorkOfItsOwnIsCalledOnce) {
  Workers workers;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> calls(5);
    run(workers, calls.size(), Helpers::Share::kOfAll, [&](std::uint64_t i) { ++calls[i]; });
    for (const auto& count : calls)
      EXPECT_EQ(count, 1);
  }
}

TEST(Workers, IndicesRunAtTheSameTime) {
  Workers workers;
  std::barrier<> all(4);  // ends only if all four are there
  run(workers, 4, Helpers::Share::kOfAll, [&](std::uint64_t) { all.arrive_and_wait(); });
}

TEST(Workers, CallsFromSeveralThreadsDoNotWaitForEachOther) {
  Workers workers;
  std::barrier<> both(4);  // two of each call
  const auto work = [&](std::uint64_t) { both.arrive_and_wait(); };
  std::thread other([&] { run(workers, 2, Helpers::Share::kOfAll, work); });
  run(workers, 2, Helpers::Share::kOfAll, work);
  other.join();
}

TEST(Workers, ThreadsAreKept) {
  Workers workers;
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int round = 0; round < 50; ++round) {
    run(workers, 3, Helpers::Share::kOfAll, [&](std::uint64_t) {
      const std::scoped_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(seen.size(), 3U);
}

TEST(Workers, WithoutAStartNobodyHelps) {
  Workers workers;
  const std::function<void(std::uint64_t)> work = [](std::uint64_t) { FAIL(); };
  Helpers helpers(workers, Helpers::Share::kOfAll, work);
  helpers.finish();
}

TEST(Workers, WhoFindsNoWorkLeftNeedNotBegin) {
  Workers workers;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> next{0}, done{0};
    run(workers, 4, Helpers::Share::kOfRest, [&](std::uint64_t) {
      while (next++ < 10)
        ++done;
    });
    EXPECT_EQ(done, 10);
  }
}

}  // namespace
}  // namespace kansoku::gpu::exec
