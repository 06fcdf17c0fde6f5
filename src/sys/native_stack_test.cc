// SPDX-License-Identifier: Apache-2.0
#include "sys/native_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "sys/unwind.h"
#include "sys/wait_for_test.h"

// Exported, so that their names are known (the tests are linked with their symbols).
extern "C" {
std::binary_semaphore native_stack_gate{0};
std::atomic<int> native_stack_calls{0};

[[gnu::noinline]] void native_stack_inner() {
  native_stack_gate.acquire();
  ++native_stack_calls;  // no tail call
}
[[gnu::noinline]] void native_stack_middle(int depth) {
  if (depth > 0)
    native_stack_middle(depth - 1);
  else
    native_stack_inner();
  ++native_stack_calls;
}
/// Its frame address is in rbp, which its callees save.
[[gnu::noinline]] void native_stack_outer(std::size_t bytes) {
  auto* const room = static_cast<volatile char*>(__builtin_alloca(bytes));
  room[0] = 1;
  native_stack_middle(3);
  ++native_stack_calls;
}
std::uint64_t native_stack_nowhere{0};  // code without a file
/// As under a return probe: its return address is replaced while it waits.
[[gnu::noinline]] void native_stack_hidden_caller() {
  auto* const slot = static_cast<volatile std::uint64_t*>(__builtin_frame_address(0)) + 1;
  const std::uint64_t true_address = *slot;
  *slot = native_stack_nowhere;
  native_stack_gate.acquire();
  *slot = true_address;
}
[[gnu::noinline]] void native_stack_hidden(int depth) {
  if (depth > 0)
    native_stack_hidden(depth - 1);
  else
    native_stack_hidden_caller();
  ++native_stack_calls;
}
[[gnu::noinline]] void native_stack_outer_of_hidden(std::size_t bytes) {
  auto* const room = static_cast<volatile char*>(__builtin_alloca(bytes));
  room[0] = 1;
  native_stack_hidden(3);
  ++native_stack_calls;
}
}

namespace kansoku::sys {
namespace {

/// The functions of this file on the stack of a thread that runs `call`, once it waits in it.
std::vector<std::string> names_while(void (*call)()) {
  std::atomic<int> tid{0};
  std::thread sleeper([&] {
    tid = static_cast<int>(::syscall(SYS_gettid));
    call();
  });
  const Procfs procfs;
  NativeStacks stacks(procfs);
  std::vector<std::string> names;
  const bool is_seen = poll_for_test([&] {
    if (tid == 0) return false;
    const auto stack = stacks.of(::getpid(), tid);
    names.clear();
    if (!stack) return false;
    for (const NativeFrame& frame : *stack)
      if (frame.function.starts_with("native_stack_")) names.push_back(frame.function);
    return !names.empty();
  });
  native_stack_gate.release();
  sleeper.join();
  EXPECT_TRUE(is_seen);
  return names;
}

TEST(NativeStack, OfASleepingThreadIsRead) {
  using testing::ElementsAre;
  EXPECT_THAT(names_while([] { native_stack_outer(1000); }),
              ElementsAre("native_stack_inner", "native_stack_middle", "native_stack_middle",
                          "native_stack_middle", "native_stack_middle", "native_stack_outer"));
}

TEST(NativeStack, BehindAReturnAddressThatIsNoneTheCallersAreFound) {
  void* const code =
      ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(code, MAP_FAILED);
  native_stack_nowhere = reinterpret_cast<std::uintptr_t>(code);
  const auto names = names_while([] { native_stack_outer_of_hidden(1000); });
  ::munmap(code, 4096);
  // The one that called it is hidden; its callers are not.
  using testing::ElementsAre;
  EXPECT_THAT(
      names, ElementsAre("native_stack_hidden_caller", "native_stack_hidden", "native_stack_hidden",
                         "native_stack_hidden", "native_stack_outer_of_hidden"));
}

TEST(NativeStack, OfTheRunningThreadIsUnavailable) {
  const Procfs procfs;
  NativeStacks stacks(procfs);
  const auto own = stacks.of(::getpid(), static_cast<int>(::syscall(SYS_gettid)));
  // The kernel shows the thread that asks as it is: in the system call that reads the file.
  if (own) {
    EXPECT_FALSE(own->empty());
  } else {
    EXPECT_EQ(own.error().code, Code::kUnavailable);
  }
  EXPECT_FALSE(stacks.of(::getpid(), 1));
}

}  // namespace
}  // namespace kansoku::sys
