// SPDX-License-Identifier: Apache-2.0
// Launches, what is known of kernels, registration.
#include <gmock/gmock.h>

#include "softcuda/kernels_for_test.h"
#include "softcuda/runtime/runtime_for_test.h"

namespace kansoku::cudart {
namespace {

using testing::ElementsAre;

class KernelTest : public RuntimeTest {};

TEST_F(KernelTest, Launches) {
  COVERS(cudaLaunchKernel, __cudaGetKernel, __cudaLaunchKernel);
  REFUSES(cudaLaunchKernel, __cudaGetKernel, __cudaLaunchKernel);
  std::uint32_t* const out = allocate(4);
  OK(launch("iota", {2, 2}, nullptr, out, 4U));
  EXPECT_THAT(read(out, 4), ElementsAre(0, 1, 2, 3));
  OK(cudaSetDevice(1));  // the same kernel there
  std::uint32_t* const there = allocate();
  OK(launch("store", {}, nullptr, there, 8U));
  EXPECT_EQ(read(there), 8U);
  OK(cudaSetDevice(0));
  cudaKernel_t kernel = nullptr;
  OK(__cudaGetKernel(&kernel, stub("store")));
  Params<std::uint32_t*, std::uint32_t> params(out, 9U);
  OK(__cudaLaunchKernel(kernel, {1, 1, 1}, {1, 1, 1}, params.get(), 0, nullptr));
  EXPECT_EQ(read(out), 9U);
  EXPECT_CUDA(cudaErrorInvalidValue, __cudaGetKernel(nullptr, stub("store")));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, __cudaLaunchKernel(garbage<cudaKernel_t>(), {1, 1, 1},
                                                                 {1, 1, 1}, nullptr, 0, nullptr));
  int local = 0;
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction,
              cudaLaunchKernel(&local, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, launch("missing", {}, nullptr));  // not in the image
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch("nothing", {0, 1}, nullptr));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch("nothing", {1, 1025}, nullptr));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch("up_to_128", {1, 129}, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, launch("nothing", {1, 1, 60 << 10}, nullptr));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, launch("nothing", {}, garbage<cudaStream_t>()));
}

TEST_F(KernelTest, LaunchesWithAttributes) {
  COVERS(cudaLaunchKernelExC, cudaLaunchCooperativeKernel);
  REFUSES(cudaLaunchKernelExC, cudaLaunchCooperativeKernel);
  std::uint32_t* const arrived = allocate();
  Params<std::uint32_t*> params(arrived);
  OK(cudaLaunchCooperativeKernel(stub("meet"), {8, 1, 1}, {1, 1, 1}, params.get(), 0, nullptr));
  EXPECT_EQ(read(arrived), 8U);
  std::array<cudaLaunchAttribute, 2> attributes{};
  cudaLaunchConfig_t config{};
  config.gridDim = {8, 1, 1};
  config.blockDim = {1, 1, 1};
  config.attrs = attributes.data();
  config.numAttrs = 2;
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  OK(cudaMemset(arrived, 0, 4));
  OK(cudaLaunchKernelExC(&config, stub("meet"), params.get()));
  EXPECT_EQ(read(arrived), 8U);
  config.gridDim = {1 << 20, 1, 1};
  EXPECT_CUDA(cudaErrorCooperativeLaunchTooLarge,
              cudaLaunchKernelExC(&config, stub("meet"), params.get()));
  EXPECT_CUDA(cudaErrorCooperativeLaunchTooLarge,
              cudaLaunchCooperativeKernel(stub("meet"), config.gridDim, {1, 1, 1}, params.get(), 0,
                                          nullptr));
  config.gridDim = {1, 1, 1};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {2, 1, 1};
  EXPECT_CUDA(cudaErrorNotSupported, cudaLaunchKernelExC(&config, stub("meet"), params.get()));
  attributes[0].id = cudaLaunchAttributePriority;  // no effect
  OK(cudaLaunchKernelExC(&config, stub("meet"), params.get()));
  attributes[0].id = unknown<cudaLaunchAttributeID>(99);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaLaunchKernelExC(&config, stub("meet"), params.get()));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaLaunchKernelExC(nullptr, stub("meet"), params.get()));
}

TEST_F(KernelTest, AttributesOfKernels) {
  COVERS(cudaFuncGetAttributes, cudaFuncSetAttribute, cudaFuncSetCacheConfig,
         cudaFuncSetSharedMemConfig, cudaFuncGetName, cudaGetFuncBySymbol);
  REFUSES(cudaFuncGetAttributes, cudaFuncSetAttribute, cudaFuncSetCacheConfig,
          cudaFuncSetSharedMemConfig, cudaFuncGetName, cudaGetFuncBySymbol);
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, stub("shared_static")));
  EXPECT_EQ(attributes.sharedSizeBytes, 1024U);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  EXPECT_GT(attributes.numRegs, 0);
  OK(cudaFuncGetAttributes(&attributes, stub("of_64")));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 64);
  std::uint32_t* const out = allocate();
  EXPECT_CUDA(cudaErrorInvalidValue, launch("shared_end", {1, 1, 90'000}, nullptr, out, 90'000U));
  OK(cudaFuncSetAttribute(stub("shared_end"), cudaFuncAttributeMaxDynamicSharedMemorySize, 90'000));
  OK(launch("shared_end", {1, 1, 90'000}, nullptr, out, 90'000U));
  EXPECT_EQ(read(out), 77U);
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaFuncSetAttribute(stub("shared_end"), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   1 << 20));
  OK(cudaFuncSetCacheConfig(stub("nothing"), cudaFuncCachePreferL1));
  OK(cudaFuncSetSharedMemConfig(stub("nothing"), cudaSharedMemBankSizeFourByte));
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, stub("nothing")));
  EXPECT_STREQ(name, "nothing");
  cudaFunction_t function = nullptr;
  OK(cudaGetFuncBySymbol(&function, stub("nothing")));
  EXPECT_NE(function, nullptr);
  const void* const none = &attributes;
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&attributes, none));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFuncGetAttributes(nullptr, stub("nothing")));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaFuncSetCacheConfig(none, cudaFuncCachePreferL1));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaFuncSetSharedMemConfig(stub("nothing"), unknown<cudaSharedMemConfig>(7)));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaFuncGetName(&name, none));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaGetFuncBySymbol(&function, none));
}

TEST_F(KernelTest, Occupancy) {
  COVERS(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
         cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         cudaOccupancyAvailableDynamicSMemPerBlock);
  REFUSES(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
          cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
          cudaOccupancyAvailableDynamicSMemPerBlock);
  cudaDeviceProp device;
  OK(cudaGetDeviceProperties(&device, 0));
  int blocks = 0, same = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, stub("nothing"), 256, 0));
  EXPECT_EQ(blocks, device.maxThreadsPerMultiProcessor / 256);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&same, stub("nothing"), 256, 0,
                                                            cudaOccupancyDefault));
  EXPECT_EQ(same, blocks);
  std::size_t bytes = 0;
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, stub("nothing"), 2, 256));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, stub("nothing"), 256, bytes));
  EXPECT_EQ(blocks, 2);
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, stub("nothing"), 0, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                                         &blocks, stub("nothing"), 256, 0, 77));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, stub("nothing"), 0, 256));
}

TEST_F(KernelTest, ConfigurationsAreAStack) {
  COVERS(__cudaPushCallConfiguration, __cudaPopCallConfiguration);
  REFUSES(__cudaPopCallConfiguration);
  EXPECT_EQ(__cudaPushCallConfiguration({1, 2, 3}, {4, 5, 6}, 7, garbage<cudaStream_t>()), 0U);
  EXPECT_EQ(__cudaPushCallConfiguration({9, 1, 1}, {1, 1, 1}, 0, nullptr), 0U);
  dim3 grid{0, 0, 0}, block{0, 0, 0};
  std::size_t bytes = 1;
  cudaStream_t stream = nullptr;
  OK(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
  EXPECT_EQ(grid.x, 9U);
  EXPECT_EQ(bytes, 0U);
  OK(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
  EXPECT_EQ(grid.z, 3U);
  EXPECT_EQ(block.y, 5U);
  EXPECT_EQ(bytes, 7U);
  EXPECT_EQ(stream, garbage<cudaStream_t>());
  EXPECT_CUDA(cudaErrorMissingConfiguration,
              __cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
}

TEST_F(KernelTest, ImagesComeAndGo) {
  COVERS(__cudaRegisterFatBinary, __cudaRegisterFatBinaryEnd, __cudaUnregisterFatBinary,
         __cudaRegisterFunction, __cudaInitModule, __cudaRegisterManagedVar);
  REFUSES(__cudaUnregisterFatBinary, __cudaRegisterFunction, __cudaInitModule,
          __cudaRegisterManagedVar);
  Wrapped image(softcuda::kTestKernels);
  static const char mine = 0;
  const auto launch_mine = [&] {
    return cudaLaunchKernel(&mine, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr);
  };
  void** const handle = __cudaRegisterFatBinary(image.get());
  __cudaRegisterFunction(handle, &mine, nullptr, "nothing", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  std::uint32_t* managed = nullptr;
  __cudaRegisterManagedVar(handle, reinterpret_cast<void**>(&managed), nullptr, "counter", 0, 4, 0,
                           0);
  __cudaRegisterFatBinaryEnd(handle);
  EXPECT_EQ(__cudaInitModule(handle), 1);
  ASSERT_NE(managed, nullptr);
  EXPECT_EQ(*managed, 7U);  // the image's value; the host reads it
  OK(launch_mine());
  OK(cudaSetDevice(1));
  EXPECT_CUDA(cudaErrorNotSupported, launch_mine());  // its memory is the first device's
  OK(cudaSetDevice(0));
  OK(launch_mine());
  __cudaUnregisterFatBinary(handle);
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, launch_mine());
  __cudaUnregisterFatBinary(handle);  // none any more
  EXPECT_EQ(__cudaInitModule(handle), 0);
  __cudaRegisterFunction(handle, &mine, nullptr, "nothing", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, launch_mine());
  void* pointer = nullptr;
  __cudaRegisterManagedVar(garbage<void**>(), &pointer, nullptr, "counter", 0, 4, 0, 0);
  EXPECT_CUDA(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&pointer, &pointer));
}

TEST_F(KernelTest, ImagesThatAreNoneSayWhy) {
  const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  const std::pair<std::string, cudaError_t> rows[] = {
      {"//\n// Generated by NVIDIA NVVM Compiler\n//\n" + head + ".visible .entry k() { ret; }",
       cudaErrorUnsupportedPtxVersion},
      {head + ".visible .entry k() { nonsense; }", cudaErrorInvalidPtx},
      {".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }", cudaSuccess}};
  for (const auto& [text, error] : rows) {
    Wrapped image(text);
    static const char mine = 0;
    void** const handle = __cudaRegisterFatBinary(image.get());
    __cudaRegisterFunction(handle, &mine, nullptr, "k", -1, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    for (int i = 0; i < 2; ++i)
      EXPECT_STREQ(
          cudaGetErrorName(cudaLaunchKernel(&mine, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr)),
          cudaGetErrorName(error))
          << text;
    __cudaUnregisterFatBinary(handle);
  }
}

TEST_F(KernelTest, AnImageThatDoesNotFitLoadsOnceThereIsRoom) {
  COVERS(cudaLaunchKernel);
  Wrapped image(
      ".version 8.0\n.target sm_80\n.address_size 64\n.global .b8 first[20971520];\n"
      ".global .b8 second[20971520];\n.visible .entry k() { ret; }\n");
  static const char mine = 0;
  void** const handle = __cudaRegisterFatBinary(image.get());
  __cudaRegisterFunction(handle, &mine, nullptr, "k", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  const auto launch_mine = [&] {
    return cudaLaunchKernel(&mine, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr);
  };
  void* held = nullptr;
  OK(cudaMalloc(&held, std::size_t{40} << 20));
  std::size_t before = 0, after = 0, total = 0;
  OK(cudaMemGetInfo(&before, &total));
  // The first variable fits.
  EXPECT_CUDA(cudaErrorMemoryAllocation, launch_mine());
  EXPECT_CUDA(cudaErrorMemoryAllocation, launch_mine());
  OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
  OK(launch("nothing", {}, nullptr));
  OK(cudaFree(held));
  OK(launch_mine());
  OK(cudaDeviceSynchronize());
  __cudaUnregisterFatBinary(handle);
}

}  // namespace
}  // namespace kansoku::cudart
