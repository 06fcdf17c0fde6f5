// SPDX-License-Identifier: Apache-2.0
// Stacks of allocations, which the library walks in the process.
#include <gmock/gmock.h>

#include <cstdint>
#include <optional>

#include "library_for_test.h"

namespace kansoku {
namespace {

using Allocate = CUresult(CUdeviceptr*, std::size_t);

// Two callers, each too small for its code to reach far behind its begin.
[[gnu::noinline]] CUresult allocate_weights(Allocate* allocate, CUdeviceptr* out) {
  const CUresult result = allocate(out, 1 << 12);
  asm volatile("" ::: "memory");  // no tail call
  return result;
}
[[gnu::noinline]] CUresult allocate_cache(Allocate* allocate, CUdeviceptr* out) {
  const CUresult result = allocate(out, 1 << 13);
  asm volatile("" ::: "memory");
  return result;
}
bool is_in(std::uint64_t address, CUresult (*function)(Allocate*, CUdeviceptr*)) {
  constexpr std::uint64_t kLongest = 128;
  const auto begin = reinterpret_cast<std::uintptr_t>(function);
  return address > begin && address < begin + kLongest;
}

class StacksTest : public LibraryTest {
 protected:
  /// Numbers of the stacks of all allocations so far.
  std::vector<std::int64_t> allocations() {
    Seen seen;
    take(seen);
    std::vector<std::int64_t> out;
    for (const auto& [record, what] : seen.records)
      if (what == WIRE_CUDA_ALLOC) out.push_back(record.device_begin_ns);
    return out;
  }
};

TEST_F(StacksTest, EachCallerHasAStackOfItsOwnThatIsKeptOnce) {
  start();
  auto* const allocate = entry<Allocate>("cuMemAlloc_v2");
  for (const Mode mode : {Mode::kEvery, Mode::kSampled}) {
    set(mode);
    allocations();
    CUdeviceptr pointer = 0;
    for (int i = 0; i < 3; ++i) {  // one place: the stacks below it are equal
      ASSERT_EQ(allocate_weights(allocate, &pointer), CUDA_SUCCESS);
      ASSERT_EQ(allocate_cache(allocate, &pointer), CUDA_SUCCESS);
    }
    const auto numbers = allocations();
    ASSERT_EQ(numbers.size(), 6U);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(numbers[i], numbers[i % 2]);
      const auto stack = channel_->stack(numbers[i]);
      ASSERT_GE(stack.size(), 3U);
      EXPECT_TRUE(is_in(stack[0], i % 2 == 0 ? &allocate_weights : &allocate_cache));
    }
    EXPECT_NE(numbers[0], numbers[1]);
  }
}

TEST_F(StacksTest, AKernelKnowsWhoLaunchedItAtFirst) {
  start();
  set(Mode::kSampled);
  for (int i = 0; i < 20; ++i)  // one place
    ASSERT_EQ(launch_store(stream_), CUDA_SUCCESS);
  synchronize();
  std::optional<capture::cuda::KernelInfo> store;
  for (std::uint32_t i = 0; i < channel_->kernel_count() && !store; ++i)
    if (channel_->kernel(i)->name == "store") store = channel_->kernel(i);
  ASSERT_TRUE(store);
  EXPECT_NE(store->sites[0], 0);
  EXPECT_EQ(store->sites[1], 0);
  EXPECT_GE(channel_->stack(store->sites[0]).size(), 3U);
}

TEST_F(StacksTest, AFailureTellsWhoAskedForTooMuch) {
  start();
  set(Mode::kEvery);
  allocations();
  CUdeviceptr pointer = 0;
  ASSERT_NE(entry<Allocate>("cuMemAlloc_v2")(&pointer, std::size_t{1} << 60), CUDA_SUCCESS);
  const auto numbers = allocations();
  ASSERT_EQ(numbers.size(), 1U);
  EXPECT_FALSE(channel_->stack(numbers[0]).empty());
}

TEST_F(StacksTest, WalksNoMoreThanItsShareOfTheTime) {
  start();
  set(Mode::kSampled);
  auto* const allocate = entry<Allocate>("cuMemAlloc_v2");
  auto* const release = entry<CUresult(CUdeviceptr)>("cuMemFree_v2");
  std::size_t with = 0, without = 0;
  for (int i = 0; i < 200'000 && without == 0; ++i) {
    CUdeviceptr pointer = 0;
    ASSERT_EQ(allocate_cache(allocate, &pointer), CUDA_SUCCESS);
    ASSERT_EQ(release(pointer), CUDA_SUCCESS);
    if (i % 1000 != 999) continue;
    for (const std::int64_t number : allocations())
      ++(number != 0 ? with : without);
  }
  EXPECT_GT(with, 0U);
  EXPECT_GT(without, 0U);
  EXPECT_GE(channel_->state().losses.stacks_skipped, without);
}

}  // namespace
}  // namespace kansoku
