// SPDX-License-Identifier: Apache-2.0
// Devices, contexts, errors, and the process around them.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "softcuda/runtime/runtime_for_test.h"

namespace kansoku::cudart {
namespace {

class DeviceTest : public RuntimeTest {};

TEST_F(DeviceTest, AreCountedAndChosenByThread) {
  COVERS(cudaGetDeviceCount, cudaGetDevice, cudaSetDevice, cudaSetValidDevices, cudaInitDevice);
  REFUSES(cudaGetDeviceCount, cudaGetDevice, cudaSetDevice, cudaSetValidDevices, cudaInitDevice);
  int count = 0, device = 7;
  OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  std::thread([] {
    int mine = 7;
    OK(cudaGetDevice(&mine));
    EXPECT_EQ(mine, 0);
    int valid[] = {1, 0};
    OK(cudaSetValidDevices(valid, 2));
    OK(cudaGetDevice(&mine));
    EXPECT_EQ(mine, 1);  // it has not chosen
    OK(cudaSetValidDevices(nullptr, 0));
    void* pointer = nullptr;
    OK(cudaMalloc(&pointer, 16));
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, pointer));
    EXPECT_EQ(attributes.device, 0);
  }).join();
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, allocate()));
  EXPECT_EQ(attributes.device, 1);
  int invalid = 5;
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(2));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(-1));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetValidDevices(&invalid, 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaSetValidDevices(nullptr, 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetDeviceCount(nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetDevice(nullptr));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaInitDevice(9, 0, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaInitDevice(0, 0, 2));
  OK(cudaInitDevice(0, cudaDeviceScheduleYield, 1));
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);  // stays
  OK(cudaSetDevice(0));
  unsigned flags = 0;
  OK(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags, unsigned{cudaDeviceScheduleYield | cudaDeviceMapHost});
}

TEST_F(DeviceTest, PropertiesAgreeWithAttributes) {
  COVERS(cudaGetDeviceProperties, cudaDeviceGetAttribute, cudaChooseDevice);
  REFUSES(cudaGetDeviceProperties, cudaDeviceGetAttribute, cudaChooseDevice);
  cudaDeviceProp properties;
  OK(cudaGetDeviceProperties(&properties, 1));
  EXPECT_STREQ(properties.name, "Kansoku software device");
  EXPECT_EQ(properties.totalGlobalMem, std::size_t{64} << 20);
  EXPECT_EQ(properties.pciBusID, 2);
  const std::pair<cudaDeviceAttr, std::size_t> same[] = {
    {cudaDevAttrWarpSize, static_cast<std::size_t>(properties.warpSize)},
    {cudaDevAttrMaxSharedMemoryPerBlock, properties.sharedMemPerBlock},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, properties.sharedMemPerBlockOptin},
    {cudaDevAttrMultiProcessorCount, static_cast<std::size_t>(properties.multiProcessorCount)},
    {cudaDevAttrMaxBlockDimZ, static_cast<std::size_t>(properties.maxThreadsDim[2])},
    {cudaDevAttrMaxGridDimX, static_cast<std::size_t>(properties.maxGridSize[0])},
    {cudaDevAttrReservedSharedMemoryPerBlock, properties.reservedSharedMemPerBlock},
    {cudaDevAttrCooperativeLaunch, static_cast<std::size_t>(properties.cooperativeLaunch)},
#if CUDART_VERSION < 13000
    {cudaDevAttrClockRate, static_cast<std::size_t>(properties.clockRate)},
    {cudaDevAttrMemoryClockRate, static_cast<std::size_t>(properties.memoryClockRate)},
#endif
    {cudaDevAttrComputeCapabilityMajor, static_cast<std::size_t>(properties.major)}
  };
  for (const auto& [attribute, value] : same) {
    int answer = 0;
    OK(cudaDeviceGetAttribute(&answer, attribute, 1));
    EXPECT_EQ(static_cast<std::size_t>(answer), value) << attribute;
    EXPECT_NE(answer, 0) << attribute;
  }
  int device = -1;
  OK(cudaChooseDevice(&device, &properties));
  EXPECT_EQ(device, 0);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaChooseDevice(nullptr, &properties));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaGetDeviceProperties(&properties, 2));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetDeviceProperties(nullptr, 0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&device, cudaDevAttrWarpSize, 2));
}

TEST_F(DeviceTest, PciAddresses) {
  COVERS(cudaDeviceGetPCIBusId, cudaDeviceGetByPCIBusId);
  REFUSES(cudaDeviceGetPCIBusId, cudaDeviceGetByPCIBusId);
  std::array<char, 32> text{};
  int device = -1;
  OK(cudaDeviceGetPCIBusId(text.data(), 32, 1));
  OK(cudaDeviceGetByPCIBusId(&device, text.data()));
  EXPECT_EQ(device, 1);
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceGetPCIBusId(text.data(), 32, 2));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceGetByPCIBusId(&device, nullptr));
}

TEST_F(DeviceTest, Settings) {
  COVERS(cudaDeviceGetLimit, cudaDeviceSetLimit, cudaDeviceGetCacheConfig, cudaDeviceSetCacheConfig,
         cudaDeviceGetSharedMemConfig, cudaDeviceSetSharedMemConfig, cudaSetDeviceFlags,
         cudaGetDeviceFlags, cudaDeviceGetStreamPriorityRange);
  REFUSES(cudaDeviceGetLimit, cudaDeviceSetLimit, cudaDeviceGetCacheConfig,
          cudaDeviceSetCacheConfig, cudaDeviceGetSharedMemConfig, cudaDeviceSetSharedMemConfig,
          cudaSetDeviceFlags, cudaGetDeviceFlags, cudaDeviceGetStreamPriorityRange);
  std::size_t bytes = 0;
  OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
  OK(cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
  EXPECT_EQ(bytes, std::size_t{2} << 20);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceGetLimit(nullptr, cudaLimitStackSize));
  EXPECT_NE(cudaDeviceSetLimit(unknown<cudaLimit>(99), 1), cudaSuccess);
  cudaFuncCache cache{};
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  OK(cudaDeviceGetCacheConfig(&cache));
  EXPECT_EQ(cache, cudaFuncCachePreferL1);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceSetCacheConfig(unknown<cudaFuncCache>(9)));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceGetCacheConfig(nullptr));
  cudaSharedMemConfig banks{};
  OK(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
  OK(cudaDeviceGetSharedMemConfig(&banks));
  EXPECT_EQ(banks, cudaSharedMemBankSizeEightByte);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceSetSharedMemConfig(unknown<cudaSharedMemConfig>(9)));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDeviceGetSharedMemConfig(nullptr));
  unsigned flags = 0;
  OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync | cudaDeviceMapHost));
  OK(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags, unsigned{cudaDeviceScheduleBlockingSync | cudaDeviceMapHost});
  EXPECT_CUDA(cudaErrorInvalidValue, cudaSetDeviceFlags(3));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaSetDeviceFlags(0x4000));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetDeviceFlags(nullptr));
  int least = 7, greatest = 7;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  // A fault ends the context: nothing of it can be asked any more.
  OK(launch("stop", {}, nullptr));
  const cudaError_t fault = cudaDeviceSynchronize();
  EXPECT_NE(fault, cudaSuccess);
  EXPECT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), fault);
}

TEST_F(DeviceTest, Peers) {
  COVERS(cudaDeviceCanAccessPeer, cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess,
         cudaDeviceGetP2PAttribute);
  REFUSES(cudaDeviceCanAccessPeer, cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess,
          cudaDeviceGetP2PAttribute);
  int can = 0;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cudaDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&can, 0, 2));
  OK(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_CUDA(cudaErrorInvalidDevice,
              cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 2));
  OK(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(2, 0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
  OK(cudaDeviceDisablePeerAccess(1));
  EXPECT_CUDA(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
}

TEST_F(DeviceTest, SynchronizeWaitsAndResetForgets) {
  COVERS(cudaDeviceSynchronize, cudaDeviceReset);
  REFUSES(cudaDeviceSynchronize);
  volatile std::uint32_t* const flag = pinned(2);
  flag[0] = 0;
  flag[1] = 0;
  OK(launch("await", {}, nullptr, &flag[0], &flag[1]));
  std::thread setter([&] { flag[0] = 3; });
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(flag[1], 3U);
  setter.join();
  OK(cudaDeviceReset());
  std::size_t free_bytes = 0, total = 0;
  OK(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, total);
  // Kernels are found again, and so they are by a thread that knew them before.
  const std::uint32_t* const out = allocate();
  OK(launch("store", {}, nullptr, out, 5U));
  EXPECT_EQ(read(out), 5U);
  OK(launch("stop", {}, nullptr));
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(DeviceTest, Versions) {
  COVERS(cudaDriverGetVersion, cudaRuntimeGetVersion);
  REFUSES(cudaDriverGetVersion, cudaRuntimeGetVersion);
  int version = 0;
  OK(cudaRuntimeGetVersion(&version));
  EXPECT_EQ(version, CUDART_VERSION);
  OK(cudaDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaDriverGetVersion(nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaRuntimeGetVersion(nullptr));
}

TEST_F(DeviceTest, ErrorsAreRememberedByThread) {
  COVERS(cudaGetLastError, cudaPeekAtLastError, cudaGetErrorName, cudaGetErrorString);
  REFUSES(cudaGetErrorName, cudaGetErrorString);
  EXPECT_CUDA(cudaSuccess, cudaGetLastError());
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(77));
  std::thread([] { EXPECT_CUDA(cudaSuccess, cudaPeekAtLastError()); }).join();
  OK(cudaSetDevice(0));  // success does not forget
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaPeekAtLastError());
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaGetLastError());
  EXPECT_CUDA(cudaSuccess, cudaGetLastError());
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidSymbol), "invalid device symbol");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorGraphExecUpdateFailure),
               "cudaErrorGraphExecUpdateFailure");
  EXPECT_STREQ(cudaGetErrorName(unknown<cudaError_t>(12345)), "unrecognized error code");
  EXPECT_STREQ(cudaGetErrorString(unknown<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(DeviceTest, ProfilersMayBeStarted) {
  COVERS(cudaProfilerStart, cudaProfilerStop);
  REFUSES(cudaProfilerStart, cudaProfilerStop, cudaDeviceReset);
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
  // A child of fork has no driver.
  EXPECT_EQ(run_child("forked"), 0);
}

int forked() {
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, 16) != cudaSuccess) return 1;
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const cudaError_t all[] = {cudaDeviceReset(),
                               cudaProfilerStart(),
                               cudaProfilerStop(),
                               cudaMalloc(&pointer, 16),
                               cudaDeviceSynchronize(),
                               cudaGetDeviceCount(&count),
                               launch("nothing", {}, nullptr)};
    for (const cudaError_t error : all) {
      if (error != cudaErrorInitializationError) std::exit(100 + error);
    }
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): its destructors must not hang either
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return 2;
  return cudaFree(pointer) == cudaSuccess ? 0 : 3;
}
const Child kForked{"forked", forked};

/// A global object that uses the runtime when main has returned.
struct Late {
  void* pointer{nullptr};
  ~Late() {
    if (pointer != nullptr &&
        (launch("nothing", {}, nullptr) != cudaSuccess || cudaFree(pointer) != cudaSuccess))
      _exit(9);
  }
};
Late g_late;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
int late() {
  return cudaMalloc(&g_late.pointer, 64) == cudaSuccess &&
                 launch("nothing", {}, nullptr) == cudaSuccess
             ? 0
             : 1;
}
const Child kLate{"late", late};

TEST_F(DeviceTest, GlobalObjectsMayCallBehindMain) {
  EXPECT_EQ(run_child("late"), 0);
  // Kernels are decoded once more, to be counted or watched, perhaps as late as that.
  for (const char* const setting : {"KANSOKU_SOFTGPU_CLOCK=model", "KANSOKU_SOFTGPU_CHECK=1"}) {
    std::string name(setting);
    const std::size_t mark = name.find('=');
    setenv(name.substr(0, mark).c_str(), name.c_str() + mark + 1, 1);
    EXPECT_EQ(run_child("late"), 0) << setting;
    unsetenv(name.substr(0, mark).c_str());
  }
}

/// Ends with a kernel that may run for 120 s, as programs do that were interrupted.
int leaves() {
  return launch("for_ever", {}, nullptr) == cudaSuccess && cudaStreamQuery(nullptr) != cudaSuccess
             ? 0
             : 1;
}
const Child kLeaves{"leaves", leaves};

TEST_F(DeviceTest, AProcessEndsWithoutItsKernels) {
  EXPECT_EQ(run_child("leaves"), 0);
}

TEST_F(DeviceTest, FunctionsOfTheHostMayNotCall) {
  static std::atomic<int> error{-1};
  static constexpr std::chrono::milliseconds kWork{50};
  OK(cudaLaunchHostFunc(
      nullptr,
      [](void*) {
        // Right without it, too: only the reset is more likely to be under way.
        std::this_thread::sleep_for(kWork);  // allowed: work of the watched function
        void* pointer = nullptr;
        error = cudaMalloc(&pointer, 16);
      },
      nullptr));
  OK(cudaDeviceReset());  // waits for it, and it does not wait for this
  EXPECT_EQ(error, cudaErrorNotPermitted);
}

}  // namespace
}  // namespace kansoku::cudart
