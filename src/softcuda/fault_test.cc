// SPDX-License-Identifier: Apache-2.0
// Kernels that fail, and what is left of the context then.
#include <gmock/gmock.h>

#include <cstdio>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class FaultTest : public DriverTest {
 protected:
  /// Every call of the context gives the error from now on; another device does not mind, and
  /// a new context is as good as new.
  void expect_stays(CUresult error) {
    CUstream stream = nullptr;
    CUdeviceptr pointer = 0;
    CUevent event = nullptr;
    CUmodule module = nullptr;
    char byte = 0;
    EXPECT_CU(error, cuCtxSynchronize());
    EXPECT_CU(error, cuStreamSynchronize(nullptr));
    EXPECT_CU(error, cuStreamQuery(nullptr));
    EXPECT_CU(error, cuMemAlloc_v2(&pointer, 64));
    EXPECT_CU(error, cuMemcpyDtoH_v2(&byte, pointer, 1));
    EXPECT_CU(error, cuStreamCreate(&stream, 0));
    EXPECT_CU(error, cuEventCreate(&event, 0));
    EXPECT_CU(error, cuModuleLoadData(&module, kTestKernels));
    EXPECT_CU(error, launch(garbage<CUfunction>(), {}, nullptr));
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    OK(cuMemAlloc_v2(&pointer, 64));
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    OK(cuCtxSetCurrent(context_));
    OK(cuMemAlloc_v2(&pointer, 64));
    OK(launch(kernel("store"), {}, nullptr, pointer, 3U));
    EXPECT_EQ(read(pointer), 3U);
  }
};

TEST_F(FaultTest, AnAddressBeyondTheEnd) {
  COVERS(cuLaunchKernel, cuCtxSynchronize);
  const CUdeviceptr out = allocate(64);
  OK(launch(kernel("iota"), {1, 32}, nullptr, out, 17));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  expect_stays(CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(FaultTest, AnAddressThatWasFreed) {
  COVERS(cuMemFree_v2);
  const CUdeviceptr out = allocate(64);
  OK(cuMemFree_v2(out));
  OK(launch(kernel("store"), {}, nullptr, out, 1U));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(nullptr));
  expect_stays(CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(FaultTest, AnAddressThatIsNotAligned) {
  COVERS(cuLaunchKernel);
  OK(launch(kernel("store_misaligned"), {}, nullptr, allocate(64)));
  EXPECT_CU(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
  expect_stays(CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(FaultTest, ATrap) {
  COVERS(cuLaunchKernel);
  OK(launch(kernel("stop"), {}, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  expect_stays(CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(FaultTest, ABarrierThatNotAllReach) {
  COVERS(cuLaunchKernel);
  OK(launch(kernel("diverge"), {1, 32}, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  expect_stays(CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(FaultTest, NothingRunsBehindAFault) {
  COVERS(cuLaunchKernel, cuEventQuery);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, 0));
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  volatile std::uint32_t* const flag = pinned();
  volatile std::uint32_t* const out = pinned();
  OK(launch(kernel("await"), {}, stream, address(flag), allocate(4)));
  OK(launch(kernel("stop"), {}, stream));
  OK(launch(kernel("store"), {}, stream, address(out), 5U));
  OK(cuEventRecord(event, stream));
  *flag = 1;
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuEventSynchronize(event));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuEventQuery(event));
  EXPECT_EQ(*out, 0U);
  // Handles can still be given back.
  OK(cuEventDestroy_v2(event));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(FaultTest, TheFirstErrorStays) {
  COVERS(cuCtxSynchronize);
  CUstream streams[2] = {};
  volatile std::uint32_t* const flag = pinned();
  for (CUstream& stream : streams)
    OK(cuStreamCreate(&stream, kStreamNonBlocking));
  OK(launch(kernel("await"), {}, streams[1], address(flag), allocate(4)));
  OK(launch(kernel("stop"), {}, streams[1]));
  OK(launch(kernel("store_misaligned"), {}, streams[0], allocate(64)));
  EXPECT_CU(CUDA_ERROR_MISALIGNED_ADDRESS, cuStreamSynchronize(streams[0]));
  *flag = 1;
  EXPECT_CU(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
}

TEST_F(FaultTest, OwnContextsFailAlone) {
  COVERS(cuCtxDestroy_v2);
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(launch(kernel("stop"), {}, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  OK(cuCtxPushCurrent_v2(context_));
  OK(cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize_v2(own));
  OK(cuCtxDestroy_v2(own));
}

/// The first context of a child, or null.
CUcontext first_context() {
  CUcontext context = nullptr;
  const bool is_made = cuInit(0) == CUDA_SUCCESS &&
                       cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
                       cuCtxSetCurrent(context) == CUDA_SUCCESS;
  return is_made ? context : nullptr;
}

int run_for_ever() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (first_context() == nullptr) return 1;
  if (cuModuleLoadData(&module, kTestKernels) != CUDA_SUCCESS) return 2;
  if (cuModuleGetFunction(&function, module, "for_ever") != CUDA_SUCCESS) return 3;
  if (launch(function, {}, nullptr) != CUDA_SUCCESS) return 4;
  const int waited = cuCtxSynchronize();
  std::printf("%d %d", waited, cuStreamQuery(nullptr));
  return 0;
}
const Child kForEver("for_ever", run_for_ever);

/// More blocks than anyone lives to see, each of them short.
int run_many_blocks() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (first_context() == nullptr) return 1;
  if (cuModuleLoadData(&module, kTestKernels) != CUDA_SUCCESS) return 2;
  if (cuModuleGetFunction(&function, module, "nothing") != CUDA_SUCCESS) return 3;
  if (cuLaunchKernel(function, 0x7fffffff, 65535, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) !=
      CUDA_SUCCESS)
    return 4;
  std::printf("%d", cuCtxSynchronize());
  return 0;
}
const Child kManyBlocks("many_blocks", run_many_blocks);

TEST(FaultProcessTest, AKernelThatTakesTooLong) {
  COVERS(cuCtxSynchronize);
  const ChildRun run = run_child("for_ever", {"KANSOKU_SOFTGPU_TIME_LIMIT=200ms"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "702 702");
  EXPECT_EQ(run_child("many_blocks", {"KANSOKU_SOFTGPU_TIME_LIMIT=200ms"}).output, "702");
}

int fill_up() {
  if (first_context() == nullptr) return 1;
  std::size_t total = 0;
  CUdeviceptr pointer = 0;
  if (cuMemGetInfo_v2(nullptr, &total) != CUDA_SUCCESS || total != std::size_t{1} << 20) return 2;
  int count = 0;
  while (cuMemAlloc_v2(&pointer, 100'000) == CUDA_SUCCESS)
    ++count;
  // Out of memory is no fault: it goes on.
  const int full = cuMemAlloc_v2(&pointer, 100'000);
  std::printf("%d %d %d", count, full, cuCtxSynchronize());
  return 0;
}
const Child kFillUp("fill_up", fill_up);

TEST(FaultProcessTest, OutOfMemory) {
  COVERS(cuMemAlloc_v2);
  const ChildRun run = run_child("fill_up", {"KANSOKU_SOFTGPU_MEMORY=1M"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "10 2 0");
}

}  // namespace
}  // namespace kansoku::softcuda
