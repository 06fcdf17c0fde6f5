// SPDX-License-Identifier: Apache-2.0
#include "common/of_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace kansoku {
namespace {

std::atomic<int> g_ended{0};
struct Counted {
  int value{0};
  ~Counted() { ++g_ended; }
};
struct Other;

TEST(OfThread, EachThreadHasItsOwnUntilItEnds) {
  OfThread<Counted>::get().value = 1;
  OfThread<Counted, Other>::get().value = 5;
  std::thread([] {
    EXPECT_EQ(OfThread<Counted>::get().value, 0);
    OfThread<Counted>::get().value = 2;
    EXPECT_EQ(g_ended, 0);
  }).join();
  EXPECT_EQ(g_ended, 1);
  EXPECT_EQ(OfThread<Counted>::get().value, 1);
  EXPECT_EQ((OfThread<Counted, Other>::get().value), 5);
}

TEST(OfThread, TheMainThreadsIsThereForStaticDestructors) {
  const pid_t child = fork();
  if (child == 0) {
    OfThread<Counted>::get().value = 7;
    std::atexit([] { _exit(OfThread<Counted>::get().value); });
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): what is tested
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace kansoku
