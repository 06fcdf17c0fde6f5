// SPDX-License-Identifier: Apache-2.0
#include "sys/syscalls.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::sys {
namespace {

TEST(ThreadWait, FromText) {
  const auto wait =
      parse_thread_wait("202 0x7f00dead 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f01\n");
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->number, 202);
  EXPECT_EQ(wait->first, 0x7f00deadU);
  for (const char* const text : {"", "running\n", "-1 0x7ffc 0x7f01\n", "202", "202 7f", "202 0x",
                                 "202 0xg", "x 0x1", "0x1 0x1", "202 0x11111111111111111"})
    EXPECT_FALSE(parse_thread_wait(text)) << text;
}

TEST(ThreadWait, OfAThreadOfThisProcess) {
  if (!read_file("/proc/self/syscall", 4096)) GTEST_SKIP() << "/proc tells no system calls";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::atomic<std::int32_t> tid{0};
  std::thread reader([&] {
    tid = static_cast<std::int32_t>(::gettid());
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  });
  std::optional<ThreadWait> wait;
  const bool is_told = poll_for_test([&] {
    wait = tid == 0 ? std::nullopt : thread_wait("/proc", ::getpid(), tid);
    return wait && wait->number == SYS_read;
  });
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  reader.join();
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_TRUE(is_told);
  EXPECT_EQ(wait->first, static_cast<std::uint64_t>(ends[0]));
  EXPECT_EQ(syscall_name(*wait), "read");
  EXPECT_TRUE(takes_descriptor(wait->number));
}

TEST(Syscalls, OfThoseThatThreadsWaitIn) {
  EXPECT_EQ(syscall_name({SYS_futex, 8}), "futex");
  EXPECT_TRUE(takes_lock(SYS_futex));
  EXPECT_FALSE(takes_descriptor(SYS_futex));
  EXPECT_FALSE(takes_descriptor(SYS_clock_nanosleep));
  EXPECT_EQ(syscall_name({99'999, 0}), "system call 99999");
}

TEST(Syscalls, ASelectOfNoFilesIsAPause) {
  EXPECT_EQ(syscall_name({SYS_pselect6, 0}), "nanosleep");
  EXPECT_EQ(syscall_name({SYS_pselect6, 4}), "select");
  EXPECT_EQ(syscall_name({SYS_futex, 0}), "futex");
}

}  // namespace
}  // namespace kansoku::sys
