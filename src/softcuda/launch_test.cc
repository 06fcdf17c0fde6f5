// SPDX-License-Identifier: Apache-2.0
// Launches and occupancy.
#include <gmock/gmock.h>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class LaunchTest : public DriverTest {};

/// A launch with a shape of three dimensions.
CUresult shaped(CUfunction function, std::array<unsigned, 6> shape, unsigned shared_bytes = 0) {
  return cuLaunchKernel(function, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5],
                        shared_bytes, nullptr, nullptr, nullptr);
}

TEST_F(LaunchTest, ArgumentsOneByOneOrAsABuffer) {
  COVERS(cuLaunchKernel);
  const CUdeviceptr out = allocate(8);
  const CUfunction function = kernel("sum");
  OK(launch(function, {}, nullptr, out, std::uint8_t{200}, std::uint16_t{60'000},
            std::uint32_t{70'000}, std::uint64_t{1} << 40));
  EXPECT_EQ(read<std::uint64_t>(out), (std::uint64_t{1} << 40) + 200 + 60'000 + 70'000);
  struct Buffer {
    CUdeviceptr out;
    std::uint8_t a;
    std::uint16_t b;
    std::uint32_t c;
    std::uint64_t d;
  } buffer{out, 1, 2, 3, 4};
  std::size_t bytes = sizeof buffer;
  void* const buffer_key = reinterpret_cast<void*>(1);
  void* const bytes_key = reinterpret_cast<void*>(2);
  void* extra[] = {buffer_key, &buffer, bytes_key, &bytes, nullptr};
  const auto with_extra = [&] {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
  };
  OK(with_extra());
  EXPECT_EQ(read<std::uint64_t>(out), 10U);
  bytes = sizeof buffer - 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with_extra());
  bytes = sizeof buffer;
  extra[2] = reinterpret_cast<void*>(77);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with_extra());
  extra[2] = nullptr;  // no size
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, with_extra());
  // Both, neither, or one of them null.
  extra[2] = bytes_key;
  void* params[] = {nullptr, nullptr, nullptr, nullptr, nullptr};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  OK(shaped(kernel("nothing"), {1, 1, 1, 1, 1, 1}));
  bytes = 0;  // a buffer of nothing for a kernel that takes nothing
  OK(cuLaunchKernel(kernel("nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
}

TEST_F(LaunchTest, ArgumentsAreTakenAtTheCall) {
  COVERS(cuLaunchKernel);
  volatile std::uint32_t* const flag = pinned();
  const CUdeviceptr out = allocate(4);
  OK(launch(kernel("await"), {}, nullptr, address(flag), out));
  std::uint32_t value = 5;
  CUdeviceptr where = out;
  void* params[] = {&where, &value};
  OK(cuLaunchKernel(kernel("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  value = 6;
  where = 0;
  *flag = 1;
  EXPECT_EQ(read(out), 5U);
}

TEST_F(LaunchTest, ShapesWithinTheDevicesBounds) {
  COVERS(cuLaunchKernel);
  const CUfunction function = kernel("nothing");
  for (const std::array<unsigned, 6>& shape : {std::array<unsigned, 6>{1, 1, 1, 1024, 1, 1},
                                               {1, 1, 1, 1, 1024, 1},
                                               {1, 1, 1, 16, 1, 64},
                                               {2, 3, 4, 8, 8, 8}})
    OK(shaped(function, shape));
  for (const std::array<unsigned, 6>& shape : {std::array<unsigned, 6>{0, 1, 1, 1, 1, 1},
                                               {1, 0, 1, 1, 1, 1},
                                               {1, 1, 0, 1, 1, 1},
                                               {1, 1, 1, 0, 1, 1},
                                               {1, 1, 1, 1, 0, 1},
                                               {1, 1, 1, 1, 1, 0},
                                               {1, 1, 1, 1025, 1, 1},
                                               {1, 1, 1, 1, 1, 65},
                                               {1, 1, 1, 32, 33, 1},
                                               {0x80000000U, 1, 1, 1, 1, 1},
                                               {1, 65536, 1, 1, 1, 1},
                                               {1, 1, 65536, 1, 1, 1}})
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, shaped(function, shape)) << ::testing::PrintToString(shape);
  OK(shaped(kernel("of_64"), {1, 1, 1, 64, 1, 1}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, shaped(kernel("of_64"), {1, 1, 1, 32, 1, 1}));
  OK(shaped(kernel("up_to_128"), {1, 1, 1, 128, 1, 1}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, shaped(kernel("up_to_128"), {1, 1, 1, 129, 1, 1}));
  OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, EveryBlockRuns) {
  COVERS(cuLaunchKernel);
  const CUdeviceptr out = allocate(4000);
  OK(launch(kernel("iota"), {8, 128}, nullptr, out, 1000));
  const auto values = read(out, 1000);
  for (std::uint32_t i = 0; i < 1000; ++i)
    ASSERT_EQ(values[i], i);
}

TEST_F(LaunchTest, SharedMemoryUpToWhatWasAskedFor) {
  COVERS(cuLaunchKernel, cuFuncSetAttribute);
  const CUfunction function = kernel("shared_end");
  const CUdeviceptr out = allocate(4);
  constexpr unsigned kDefault = 48 * 1024, kOptIn = 227 * 1024;
  OK(launch(function, {1, 1, kDefault}, nullptr, out, kDefault));
  EXPECT_EQ(read(out), 77U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(function, {1, 1, kDefault + 1}, nullptr, out, 1U));
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kOptIn));
  OK(cuMemsetD8_v2(out, 0, 4));
  OK(launch(function, {1, 1, kOptIn}, nullptr, out, kOptIn));
  EXPECT_EQ(read(out), 77U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(function, {1, 1, kOptIn + 1}, nullptr, out, 1U));
  // Static and dynamic memory count together.
  const CUfunction fixed = kernel("shared_static");
  OK(launch(fixed, {1, 1, kDefault - 1024}, nullptr, out));
  EXPECT_EQ(read(out), 5U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(fixed, {1, 1, kDefault - 1023}, nullptr, out));
}

TEST_F(LaunchTest, CooperativeBlocksAreAllThere) {
  COVERS(cuLaunchCooperativeKernel, cuOccupancyMaxActiveBlocksPerMultiprocessor);
  const CUdeviceptr arrived = allocate(4);
  const auto cooperative = [&](unsigned blocks, unsigned threads) {
    EXPECT_CU(0, cuMemsetD32_v2(arrived, 0, 1));
    Params<CUdeviceptr> params(arrived);
    return cuLaunchCooperativeKernel(kernel("meet"), blocks, 1, 1, threads, 1, 1, 0, nullptr,
                                     params.get());
  };
  OK(cooperative(40, 1));
  EXPECT_EQ(read(arrived), 40U);
  int resident = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel("meet"), 1024, 0));
  EXPECT_EQ(resident, 2);
  EXPECT_CU(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cooperative(16 * 2 + 1, 1024));
  OK(cuCtxSynchronize());  // nothing ran, nothing failed
}

TEST_F(LaunchTest, WithAttributes) {
  COVERS(cuLaunchKernelEx);
  const CUdeviceptr arrived = allocate(4);
  OK(cuMemsetD32_v2(arrived, 0, 1));
  CUlaunchAttribute attributes[3] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].value.priority = -1;
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[2].value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = 20;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 3;
  Params<CUdeviceptr> params(arrived);
  OK(cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  EXPECT_EQ(read(arrived), 20U);
  config.gridDimX = 16 * 32 + 1;
  EXPECT_CU(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  config.gridDimX = 1;
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim = {1, 1, 1};
  OK(cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  attributes[0].value.clusterDim = {2, 1, 1};
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED,
            cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  // Kernels of a stream follow each other anyhow; events within one cannot be promised.
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[0].value.programmaticStreamSerializationAllowed = 1;
  OK(cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  for (const auto id :
       {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
        CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE}) {
    attributes[0].id = id;
    EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED,
              cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  }
  attributes[0].id = static_cast<CUlaunchAttributeID>(99);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  config.attrs = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernelEx(&config, kernel("meet"), params.get(), nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernelEx(nullptr, kernel("meet"), params.get(), nullptr));
}

TEST_F(LaunchTest, Occupancy) {
  COVERS(cuOccupancyMaxActiveBlocksPerMultiprocessor,
         cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxPotentialBlockSize,
         cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyAvailableDynamicSMemPerBlock);
  const CUfunction function = kernel("iota");
  const auto active = [&](int threads, std::size_t shared_bytes) {
    int blocks = -1, again = -1;
    EXPECT_CU(
        0, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared_bytes));
    EXPECT_CU(0, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&again, function, threads,
                                                                      shared_bytes, 1));
    EXPECT_EQ(blocks, again);
    return blocks;
  };
  EXPECT_EQ(active(32, 0), 32);          // blocks bound it
  EXPECT_EQ(active(256, 0), 8);          // 2048 threads do
  EXPECT_EQ(active(32, 56 * 1024), 4);   // 228 KiB of shared memory, 1 KiB a block kept, do
  EXPECT_EQ(active(32, 228 * 1024), 0);  // too much for one
  int blocks = 0, grid = 0, block = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 32, 0, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, garbage<CUfunction>(), 32, 0));
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  EXPECT_EQ(grid * block, 16 * 2048);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 100));
  EXPECT_LE(block, 100);
  // 1 KiB of shared memory a thread: 227 KiB and no more.
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(
      &grid, &block, function, [](int threads) { return static_cast<std::size_t>(threads) * 1024; },
      0, 0, 0));
  EXPECT_LE(block * (grid / 16), 227);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, nullptr, 0, 0, 2));
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel("of_64"), nullptr, 0, 0));
  EXPECT_EQ(block, 64);
  std::size_t bytes = 0;
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 4, 32));
  EXPECT_EQ(bytes, 56U * 1024);
  EXPECT_EQ(active(32, bytes), 4);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 33, 32));
}

TEST_F(LaunchTest, IsCounted) {
  COVERS(cuLaunchKernel);
  const std::uint64_t before = kansoku_softgpu_launches();
  for (int i = 0; i < 3; ++i)
    OK(shaped(kernel("nothing"), {1, 1, 1, 1, 1, 1}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, shaped(kernel("nothing"), {0, 1, 1, 1, 1, 1}));
  OK(cuCtxSynchronize());
  EXPECT_EQ(kansoku_softgpu_launches() - before, 3U);
}

TEST_F(LaunchTest, RefusesHandlesThatAreNone) {
  COVERS(cuLaunchKernel);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(nullptr, {}, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(garbage<CUfunction>(), {}, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(kernel("nothing"), {}, garbage<CUstream>()));
  OK(cuCtxSetCurrent(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, launch(garbage<CUfunction>(), {}, nullptr));
}

}  // namespace
}  // namespace kansoku::softcuda
