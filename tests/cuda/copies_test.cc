// SPDX-License-Identifier: Apache-2.0
// Records of copies by the library: pinned or pageable memory of the host, batches, calls without
// bytes. Each test is a process of its own (ctest), with the software device behind the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "library_for_test.h"

namespace kansoku {
namespace {

constexpr std::uint64_t kPinned = WIRE_CUDA_PINNED, kPageable = WIRE_CUDA_PAGEABLE, kUnknown = 0;

class LibraryCopiesTest : public LibraryTest {
 protected:
  void SetUp() override {
    LibraryTest::SetUp();
    if (library_ != nullptr) start();
  }
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name))(arguments...);
  }
  void switch_on() { set(Mode::kEvery); }
  /// Records of the copies that have ended, in their order.
  std::vector<wire_cuda_record> copies(std::size_t count) {
    std::vector<wire_cuda_record> out;
    EXPECT_TRUE(sys::poll_for_test([&] {
      channel_->drain(
          [&](const wire_cuda_record& record, std::uint32_t what) {
            if (what == WIRE_CUDA_COPY && (record.flags & WIRE_CUDA_TIMED) != 0)
              out.push_back(record);
          },
          WIRE_CUDA_RING_SLOTS);
      return out.size() >= count;
    }));
    return out;
  }
  /// Kind of the host's memory in the record of a copy from there.
  std::uint64_t said_of(const void* host, std::size_t bytes) {
    EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", memory_, host, bytes, stream_), 0);
    const auto seen = copies(1);
    return seen.size() != 1 ? ~std::uint64_t{0} : seen[0].u.memory.detail & (kPinned | kPageable);
  }
  capture::cuda::EntryTotals totals(const std::string& name) {
    for (const auto& one : channel_->entries())
      if (one.name == name) return one;
    return {};
  }

  static constexpr std::size_t kBytes = 1 << 16;
};

TEST_F(LibraryCopiesTest, SayWhetherTheHostsMemoryIsPinned) {
  std::vector<char> plain(kBytes), registered(kBytes);
  char *pinned = nullptr, *older = nullptr;
  CUdeviceptr managed = 0;
  // While it is asleep, too.
  ASSERT_EQ(call("cuMemHostAlloc", &pinned, kBytes, 0U), 0);
  ASSERT_EQ(call("cuMemHostRegister_v2", registered.data(), kBytes / 2, 0U), 0);
  switch_on();
  ASSERT_EQ(call("cuMemAllocHost_v2", &older, kBytes), 0);
  ASSERT_EQ(call("cuMemAllocManaged", &managed, kBytes, 1U), 0);
  EXPECT_EQ(said_of(plain.data(), 100), kPageable);
  EXPECT_EQ(said_of(pinned, kBytes), kPinned);
  EXPECT_EQ(said_of(pinned + 100, kBytes - 100), kPinned);
  EXPECT_EQ(said_of(older + 1, 10), kPinned);
  EXPECT_EQ(said_of(reinterpret_cast<const void*>(managed), 10), kPinned);
  EXPECT_EQ(said_of(registered.data() + 10, kBytes / 2 - 10), kPinned);
  EXPECT_EQ(said_of(registered.data() + 10, kBytes / 2), kUnknown) << "only half of it is";
  EXPECT_EQ(said_of(registered.data() + kBytes / 2, 10), kPageable);
  ASSERT_EQ(call("cuMemHostUnregister", registered.data()), 0);
  EXPECT_EQ(said_of(registered.data() + 10, 10), kPageable);
  EXPECT_NE(call("cuMemHostUnregister", pinned), 0);
  EXPECT_EQ(said_of(pinned, 10), kPinned) << "what failed changed nothing";
}

TEST_F(LibraryCopiesTest, OfBoxesLookAtTheirHostSide) {
  char* pinned = nullptr;
  std::vector<char> plain(kBytes);
  ASSERT_EQ(call("cuMemHostAlloc", &pinned, std::size_t{4096}, 0U), 0);
  switch_on();
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = pinned;
  shape.srcPitch = 64;
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = memory_;
  shape.dstPitch = 128;
  shape.WidthInBytes = 64;
  shape.Height = 64;  // all of it
  ASSERT_EQ(call("cuMemcpy2DAsync_v2", &shape, stream_), 0);
  shape.srcHost = plain.data();
  ASSERT_EQ(call("cuMemcpy2DAsync_v2", &shape, stream_), 0);
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = memory_ + kBytes / 2;
  ASSERT_EQ(call("cuMemcpy2DAsync_v2", &shape, stream_), 0);
  const auto seen = copies(3);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].u.memory.detail, WIRE_CUDA_HTOD | kPinned);
  EXPECT_EQ(seen[1].u.memory.detail, WIRE_CUDA_HTOD | kPageable);
  EXPECT_EQ(seen[2].u.memory.detail, WIRE_CUDA_DTOD);
}

// Beyond the limit nothing is claimed of memory that is not in the table.
TEST_F(LibraryCopiesTest, BeyondTheLimitOfPinnedMemorySayNothing) {
  constexpr std::size_t kPinsMax = 16384, kPage = 4096;
  auto* const pages = static_cast<char*>(mmap(nullptr, (kPinsMax + 2) * kPage, PROT_READ,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  switch_on();
  for (std::size_t i = 0; i < kPinsMax; ++i)
    ASSERT_EQ(call("cuMemHostRegister_v2", pages + i * kPage, std::size_t{64}, 0U), 0);
  EXPECT_EQ(channel_->state().losses.pins_over_limit, 0U);
  EXPECT_EQ(said_of(pages + (kPinsMax + 1) * kPage, 64), kPageable);
  EXPECT_EQ(said_of(pages + (kPinsMax - 1) * kPage, 64), kPinned);
  ASSERT_EQ(call("cuMemHostRegister_v2", pages + kPinsMax * kPage, std::size_t{64}, 0U), 0);
  EXPECT_EQ(channel_->state().losses.pins_over_limit, 1U);
  EXPECT_EQ(said_of(pages + kPinsMax * kPage, 64), kUnknown);
  EXPECT_EQ(said_of(pages + 5 * kPage, 64), kPinned);
}

TEST_F(LibraryCopiesTest, StayRightWhileOthersPin) {
  char* pinned = nullptr;
  ASSERT_EQ(call("cuMemHostAlloc", &pinned, kBytes, 0U), 0);
  switch_on();
  std::atomic<bool> is_over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&] {
      EXPECT_EQ(call("cuCtxSetCurrent", context_), 0);
      while (!is_over) {
        void* one = nullptr;
        EXPECT_EQ(call("cuMemHostAlloc", &one, std::size_t{4096}, 0U), 0);
        EXPECT_EQ(call("cuMemFreeHost", one), 0);
      }
    });
  for (int i = 0; i < 300; ++i)
    EXPECT_THAT(said_of(pinned + i, 10), testing::AnyOf(kPinned, kUnknown));
  is_over = true;
  for (std::thread& one : others)
    one.join();
}

TEST_F(LibraryCopiesTest, OfABatchAreOneCallWithAllItsBytes) {
  switch_on();
  std::vector<CUdeviceptr> to{memory_ + 1024, memory_ + 2048, memory_ + 3072};
  std::vector<CUdeviceptr> from{memory_, memory_ + 100, memory_ + 200};
  std::vector<std::size_t> bytes{10, 0, 12};
  CUmemcpyAttributes attributes{CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, {}, {}, 0};
  std::size_t begin = 0;
  ASSERT_EQ(call("cuMemcpyBatchAsync_v2", to.data(), from.data(), bytes.data(), bytes.size(),
                 &attributes, &begin, std::size_t{1}, stream_),
            0);
  const auto seen = copies(1);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].u.memory.bytes, 22U);
  EXPECT_EQ(seen[0].u.memory.detail >> WIRE_CUDA_BATCH_SHIFT, 2U);
  const auto counted = totals("cuMemcpyBatchAsync_v2");
  EXPECT_EQ(counted.calls, 1U);
  EXPECT_EQ(counted.operations, 2U);
  EXPECT_EQ(counted.bytes, 22U);
}

TEST_F(LibraryCopiesTest, WithoutBytesAreNoOperation) {
  switch_on();
  const char host[16] = {};
  ASSERT_EQ(call("cuMemcpyHtoDAsync_v2", memory_, host, std::size_t{0}, stream_), 0);
  ASSERT_EQ(call("cuMemsetD8Async", memory_, 1, std::size_t{0}, stream_), 0);
  ASSERT_EQ(call("cuMemcpyHtoDAsync_v2", memory_, host, sizeof host, stream_), 0);
  EXPECT_EQ(copies(1).size(), 1U);
  EXPECT_EQ(totals("cuMemcpyHtoDAsync_v2").calls, 2U);
  EXPECT_EQ(totals("cuMemcpyHtoDAsync_v2").operations, 1U);
  EXPECT_EQ(totals("cuMemsetD8Async").calls, 1U);
  EXPECT_EQ(totals("cuMemsetD8Async").operations, 0U);
}

}  // namespace
}  // namespace kansoku
