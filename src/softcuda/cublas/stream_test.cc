// SPDX-License-Identifier: Apache-2.0
// Order on streams, graphs, and faults: what only kernels of the device can get right.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "softcuda/cublas/cublas_for_test.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr unsigned kThree = 0x40400000;  // 3.0F
constexpr std::size_t kSide = 40;

class StreamTest : public CublasTest {
 protected:
  void SetUp() override {
    CublasTest::SetUp();
    EXPECT_EQ(drive("cuStreamCreate", &stream_, 1U), 0);  // does not wait for the default stream
    EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetStream_v2)(handle_, stream_));
  }
  void TearDown() override {
    EXPECT_EQ(drive("cuStreamDestroy_v2", stream_), 0);
    CublasTest::TearDown();
  }
  /// C = A * A, 40 x 40.
  int square(const float* a, float* c) {
    const float one = 1, zero = 0;
    const int side = static_cast<int>(kSide);
    return KANSOKU_CUBLAS(cublasSgemm_v2)(handle_, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one,
                                          a, side, a, side, &zero, c, side);
  }
  float* zeros() { return stored(std::vector<float>(kSide * kSide)); }
  cudaStream_t stream_{nullptr};
};

/// Keeps a stream busy until the test opens it.
struct Gate {
  static void wait(void* self) {
    while (!static_cast<Gate*>(self)->is_open)
      std::this_thread::yield();
  }
  std::atomic<bool> is_open{false};
};

TEST_F(StreamTest, RunsInTheOrderOfTheStream) {
  float *const a = zeros(), *const c = zeros();
  Gate gate;
  const std::uint64_t before = launches();
  EXPECT_EQ(drive("cuLaunchHostFunc", stream_, &Gate::wait, static_cast<void*>(&gate)), 0);
  EXPECT_EQ(drive("cuMemsetD32Async", a, kThree, kSide * kSide, stream_), 0);
  EXPECT_EQ(square(a, c), 0);  // returns though the stream waits
  EXPECT_EQ(drive("cuMemsetD32Async", a, 0U, kSide * kSide, stream_), 0);
  EXPECT_NE(drive("cuStreamQuery", stream_), 0);
  gate.is_open = true;
  EXPECT_EQ(launches() - before, 1U);
  EXPECT_EQ(read_values(c, kSide * kSide), std::vector<float>(kSide * kSide, 9.0F * kSide));
}

TEST_F(StreamTest, DevicePointersAreReadWhenTheKernelRuns) {
  float *const c = zeros(), *const a = stored(std::vector<float>(kSide * kSide, 1));
  float* const scales = stored(std::vector<float>{1, 0});
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetPointerMode_v2)(handle_, CUBLAS_POINTER_MODE_DEVICE));
  Gate gate;
  EXPECT_EQ(drive("cuLaunchHostFunc", stream_, &Gate::wait, static_cast<void*>(&gate)), 0);
  EXPECT_EQ(drive("cuMemsetD32Async", scales, kThree, std::size_t{1}, stream_), 0);
  const int side = static_cast<int>(kSide);
  EXPECT_CUBLAS(
      0, KANSOKU_CUBLAS(cublasSgemm_v2)(handle_, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, scales,
                                        a, side, a, side, scales + 1, c, side));
  gate.is_open = true;
  static_cast<void>(launches());
  EXPECT_EQ(read_values(c, kSide * kSide), std::vector<float>(kSide * kSide, 3.0F * kSide));
}

TEST_F(StreamTest, CanBeCapturedBeforeItsKernelsAreLoaded) {
  float *const a = zeros(), *const c = zeros();
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec executable = nullptr;
  std::uint64_t before = launches();
  EXPECT_EQ(drive("cuStreamBeginCapture_v2", stream_, 0), 0);
  EXPECT_EQ(square(a, c), 0);
  EXPECT_EQ(drive("cuStreamEndCapture", stream_, &graph), 0);
  EXPECT_EQ(launches(), before);
  EXPECT_EQ(drive("cuGraphInstantiateWithFlags", &executable, graph, 0ULL), 0);
  EXPECT_EQ(drive("cuMemsetD32Async", a, kThree, kSide * kSide, stream_), 0);
  for (int round = 0; round < 2; ++round)
    EXPECT_EQ(drive("cuGraphLaunch", executable, stream_), 0);
  EXPECT_EQ(launches() - before, 2U);
  EXPECT_EQ(read_values(c, kSide * kSide), std::vector<float>(kSide * kSide, 9.0F * kSide));
  EXPECT_EQ(drive("cuGraphExecDestroy", executable), 0);
  EXPECT_EQ(drive("cuGraphDestroy", graph), 0);
}

/// A matrix that is shorter than the call says: the kernel's fault, as with any kernel.
int read_out_of_bounds() {
  cublasHandle_t handle = nullptr;
  if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  cuda::CUcontext context = nullptr;
  if (drive("cuDevicePrimaryCtxRetain", &context, 0) != 0) return 2;
  if (drive("cuCtxSetCurrent", context) != 0) return 3;
  std::uint64_t memory = 0;
  if (drive("cuMemAlloc_v2", &memory, std::size_t{4096}) != 0) return 4;
  const auto* const at = reinterpret_cast<float*>(memory);
  const float one = 1, zero = 0;
  if (KANSOKU_CUBLAS(cublasSgemm_v2)(handle, CUBLAS_OP_N, CUBLAS_OP_N, 40, 40, 40, &one, at, 40, at,
                                     40, &zero, const_cast<float*>(at), 40) != 0)
    return 5;
  return drive("cuCtxSynchronize") == cuda::CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 6;
}
const Child kOutOfBounds{"read_out_of_bounds", read_out_of_bounds};

TEST(Faults, AreThoseOfAKernel) {
  EXPECT_EQ(run_child("read_out_of_bounds", {}), 0);
}

TEST(Threads, HandlesOfTwoThreadsWorkAtATime) {
  cuda::CUcontext context = nullptr;
  ASSERT_EQ(drive("cuInit", 0U), 0);
  ASSERT_EQ(drive("cuDevicePrimaryCtxRetain", &context, 0), 0);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&right, context, t] {
      if (drive("cuCtxSetCurrent", context) != 0) return;
      cublasHandle_t handle = nullptr;
      std::uint64_t memory = 0;
      if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return;
      if (drive("cuMemAlloc_v2", &memory, std::size_t{12}) != 0) return;
      auto* const at = reinterpret_cast<float*>(memory);
      const float zero = 0;
      for (int round = 0; round < 50; ++round) {
        const auto alpha = static_cast<float>(round + t);
        float got = 0;
        if (drive("cuMemsetD32_v2", memory, kThree, std::size_t{3}) != 0) return;
        if (KANSOKU_CUBLAS(cublasSgemm_v2)(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, at, 1,
                                           at + 1, 1, &zero, at + 2, 1) != CUBLAS_STATUS_SUCCESS)
          return;
        if (drive("cuMemcpyDtoH_v2", static_cast<void*>(&got), memory + 8, sizeof got) != 0) return;
        if (got == 9 * alpha) ++right;
      }
      KANSOKU_CUBLAS(cublasDestroy_v2)(handle);
      drive("cuMemFree_v2", memory);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(right, 100);
  EXPECT_EQ(drive("cuDevicePrimaryCtxRelease_v2", 0), 0);
}

}  // namespace
}  // namespace kansoku::softcuda::cublas
