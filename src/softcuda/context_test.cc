// SPDX-License-Identifier: Apache-2.0
// Devices and contexts.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "softcuda/driver_for_test.h"
#include "softcuda/kernels_for_test.h"

namespace kansoku::softcuda {
namespace {

class ContextTest : public DriverTest {};

int before_init() {
  COVERS(cuInit, cuDriverGetVersion);
  int count = 0, version = 0;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  const bool is_refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuMemAlloc_v2(&pointer, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuStreamDestroy_v2(nullptr) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuLibraryUnload(nullptr) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuGraphDestroy(nullptr) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuMemRelease(0) == CUDA_ERROR_NOT_INITIALIZED &&
                          cuInit(1) == CUDA_ERROR_INVALID_VALUE;
  // The version is known without.
  const bool is_versioned = cuDriverGetVersion(&version) == CUDA_SUCCESS && version == 13000;
  const bool is_ready = cuInit(0) == CUDA_SUCCESS && cuInit(0) == CUDA_SUCCESS &&
                        cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 2 &&
                        cuMemAlloc_v2(&pointer, 1) == CUDA_ERROR_INVALID_CONTEXT;
  return is_refused && is_versioned && is_ready ? 0 : 1;
}
const Child kBeforeInit("before_init", before_init);

TEST(ContextProcessTest, NothingWorksBeforeInit) {
  COVERS(cuInit, cuDriverGetVersion);
  EXPECT_EQ(run_child("before_init", {}).exit_code, 0);
}

int no_device() {
  int count = -1;
  return cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 100;
}
const Child kCountDevices("count_devices", no_device);

TEST(ContextProcessTest, CountOfDevicesIsASetting) {
  COVERS(cuDeviceGetCount);
  EXPECT_EQ(run_child("count_devices", {"KANSOKU_SOFTGPU_DEVICES=3"}).exit_code, 3);
  EXPECT_EQ(run_child("count_devices", {"KANSOKU_SOFTGPU_DEVICES=nonsense"}).exit_code, 1);
}

/// Places of the first allocations of two devices.
int bases() {
  for (CUdevice device = 0; device < 2; ++device) {
    CUcontext context = nullptr;
    CUdeviceptr pointer = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc_v2(&pointer, 1) != CUDA_SUCCESS)
      return 1;
    std::printf("%llx ", static_cast<unsigned long long>(pointer));
  }
  return 0;
}
const Child kBases("bases", bases);

TEST(ContextProcessTest, WhereMemoryBeginsIsASetting) {
  COVERS(cuMemAlloc_v2);
  EXPECT_EQ(run_child("bases", {"KANSOKU_SOFTGPU_BASE=0x7e8000000000"}).output,
            "7e8000000000 7e9000000000 ");
  const ChildRun anywhere = run_child("bases", {"KANSOKU_SOFTGPU_BASE=0x7e8000000001"});
  EXPECT_EQ(anywhere.exit_code, 0) << "no multiple of 2 MiB: anywhere, with a line in the log";
  EXPECT_NE(anywhere.output, "7e8000000001 7e9000000001 ");
}

/// The machine's numbers of the devices that this process sees, from the right, as a number.
int visible() {
  int count = 0, out = 0;
  if (cuInit(0) == CUDA_ERROR_NO_DEVICE) return 100;
  if (cuDeviceGetCount(&count) != CUDA_SUCCESS) return 101;
  for (CUdevice device = count - 1; device >= 0; --device) {
    int bus = 0;
    char text[32] = "";
    CUdevice again = -1;
    CUuuid uuid{};
    const bool agrees =
        cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device) == CUDA_SUCCESS &&
        cuDeviceGetPCIBusId(&text[0], sizeof text, device) == CUDA_SUCCESS &&
        cuDeviceGetByPCIBusId(&again, &text[0]) == CUDA_SUCCESS && again == device &&
        cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS && uuid.bytes[15] == bus - 1;
    if (!agrees) return 102;
    out = out * 5 + bus;
  }
  return out;
}
const Child kVisible("visible", visible);

TEST(ContextProcessTest, VisibleDevicesAreASetting) {
  COVERS(cuDeviceGetCount, cuDeviceGetPCIBusId, cuDeviceGetByPCIBusId);
  const auto of = [](const char* setting) {
    return run_child("visible",
                     {"KANSOKU_SOFTGPU_DEVICES=4", std::string("CUDA_VISIBLE_DEVICES=") + setting})
        .exit_code;
  };
  EXPECT_EQ(of("1"), 2);
  EXPECT_EQ(of("3, 0"), 4 + 5 * 1);
  EXPECT_EQ(of("2,7,0"), 3) << "the first that is none ends the list";
  EXPECT_EQ(of("2,1,2"), 3 + 5 * 2) << "and so does a second time";
  EXPECT_EQ(of(""), 100);
  EXPECT_EQ(of("-1"), 100);
  EXPECT_EQ(of("GPU-4b414e53-4f4b-552d-534f-465400000001,0"), 2 + 5 * 1);
  EXPECT_EQ(of("GPU-4b"), 100) << "which of them?";
}

/// The capability as major * 10 + minor, if the driver's two ways agree.
int capability() {
  if (cuInit(0) != CUDA_SUCCESS) return 0;
  int major = 0, minor = 0, by_attribute = 0;
  if (cuDeviceComputeCapability(&major, &minor, 0) != CUDA_SUCCESS) return 1;
  if (cuDeviceGetAttribute(&by_attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0) !=
      CUDA_SUCCESS)
    return 2;
  return by_attribute == minor ? major * 10 + minor : 3;
}
const Child kCapability("capability", capability);

TEST(ContextProcessTest, ArchitectureIsASetting) {
  COVERS(cuDeviceComputeCapability, cuDeviceGetAttribute);
  const auto of = [](const char* setting) {
    return run_child("capability",
                     {std::string("KANSOKU_SOFTGPU_ARCH=") + setting, "KANSOKU_SOFTGPU_LOG=off"})
        .exit_code;
  };
  EXPECT_EQ(of("sm_61"), 61);
  EXPECT_EQ(of("sm_80"), 80);
  EXPECT_EQ(of("sm_12"), 80) << "an unknown one is logged and not taken";
}

int launch_three_times() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  const bool is_ready = cuInit(0) == CUDA_SUCCESS &&
                        cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
                        cuModuleLoadData(&module, kTestKernels) == CUDA_SUCCESS &&
                        cuModuleGetFunction(&nothing, module, "nothing") == CUDA_SUCCESS;
  if (!is_ready) return 1;
  for (int i = 0; i < 3; ++i) {
    if (cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS)
      return 2;
  }
  return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 3;
}
/// With the exit handlers of an ordinary end.
int launch_and_exit() {
  std::exit(launch_three_times());
}
const Child kLaunchAndExit("launch_and_exit", launch_and_exit);

TEST(ContextProcessTest, TimesOfKernelsAreASetting) {
  const auto run =
      run_child("launch_and_exit", {"KANSOKU_SOFTGPU_TIMES=5", "KANSOKU_SOFTGPU_LOG=/dev/stdout"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("in 3 launches of 1 kernels"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("3 launches  nothing"), std::string::npos) << run.output;
}

// LeakSanitizer does not know that a child of fork has none of its parent's threads.
constexpr char kNoLeakCheck[] = "ASAN_OPTIONS=detect_leaks=0";

/// Status of a child of fork that ends in the ordinary way.
int end_in_a_fork() {
  if (const int status = launch_three_times(); status != 0) return status;
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}
const Child kEndInAFork("end_in_a_fork", end_in_a_fork);

TEST(ContextProcessTest, AChildOfForkEndsWithoutATableOfTimes) {
  EXPECT_EQ(run_child("end_in_a_fork",
                      {"KANSOKU_SOFTGPU_TIMES=5", "KANSOKU_SOFTGPU_LOG=off", kNoLeakCheck})
                .exit_code,
            0);
}

TEST_F(ContextTest, Devices) {
  COVERS(cuDeviceGet, cuDeviceGetCount, cuDeviceGetName, cuDeviceTotalMem_v2, cuDeviceGetUuid,
         cuDeviceGetUuid_v2, cuDeviceComputeCapability, cuDeviceGetProperties);
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  CUdevice device = -1;
  OK(cuDeviceGet(&device, 1));
  EXPECT_EQ(device, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(nullptr));

  char name[64] = "";
  OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ(name, "Kansoku software device");
  OK(cuDeviceGetName(name, 8, 0));
  EXPECT_STREQ(name, "Kansoku");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, 0, 0));

  std::size_t bytes = 0;
  OK(cuDeviceTotalMem_v2(&bytes, 0));
  EXPECT_EQ(bytes, kDeviceBytes);
  CUuuid first{}, second{}, again{};
  OK(cuDeviceGetUuid(&first, 0));
  OK(cuDeviceGetUuid_v2(&again, 0));
  OK(cuDeviceGetUuid_v2(&second, 1));
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);

  int major = 0, minor = -1;
  OK(cuDeviceComputeCapability(&major, &minor, 0));
  EXPECT_EQ(major * 10 + minor, 80);
  CUdevprop properties{};
  OK(cuDeviceGetProperties(&properties, 0));
  EXPECT_EQ(properties.maxThreadsPerBlock, 1024);
  EXPECT_EQ(properties.maxThreadsDim[2], 64);
  EXPECT_EQ(properties.SIMDWidth, 32);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetProperties(&properties, 7));
}

TEST_F(ContextTest, AttributesAgreeWithTheRest) {
  COVERS(cuDeviceGetAttribute);
  const auto attribute = [](CUdevice_attribute which) {
    int value = -1;
    EXPECT_CU(0, cuDeviceGetAttribute(&value, which, 1));
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 2);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED), 0) << "free memory is the device's";
  // Known, but not there: texture units.
  EXPECT_EQ(attribute(static_cast<CUdevice_attribute>(21)), 0);
  int value = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE,
            cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
}

TEST_F(ContextTest, PciAddresses) {
  COVERS(cuDeviceGetPCIBusId, cuDeviceGetByPCIBusId);
  char text[16] = "";
  OK(cuDeviceGetPCIBusId(text, sizeof text, 1));
  EXPECT_STREQ(text, "0000:02:00.0");
  CUdevice device = -1;
  OK(cuDeviceGetByPCIBusId(&device, text));
  EXPECT_EQ(device, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(text, 12, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&device, "0000:09:00.0"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&device, nullptr));
}

TEST_F(ContextTest, PrimaryIsCountedAndOneForAll) {
  COVERS(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxGetState);
  CUcontext first = nullptr, second = nullptr;
  unsigned flags = 9;
  int is_active = -1;
  OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(is_active, 0);
  OK(cuDevicePrimaryCtxRetain(&first, 1));
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, context_);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(is_active, 1);
  OK(cuCtxSetCurrent(first));
  const CUdeviceptr memory = allocate(1 << 20);
  EXPECT_NE(memory, 0U);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(is_active, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  // Its allocations went with it.
  OK(cuDevicePrimaryCtxRetain(&first, 1));
  OK(cuCtxSetCurrent(first));
  std::size_t free_bytes = 0, total_bytes = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  EXPECT_EQ(free_bytes, total_bytes);
}

TEST_F(ContextTest, ResetEndsEverythingOfIt) {
  COVERS(cuDevicePrimaryCtxReset_v2);
  const CUfunction function = kernel("nothing");
  const CUdeviceptr memory = allocate(4096);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  void* host = nullptr;
  OK(cuStreamCreate(&stream, 0));
  OK(cuEventCreate(&event, 0));
  OK(cuMemAllocHost_v2(&host, 4096));
  OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  CUcontext fresh = nullptr;
  OK(cuDevicePrimaryCtxRetain(&fresh, 0));
  OK(cuCtxSetCurrent(fresh));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(function, {}, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(event));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  std::size_t free_bytes = 0;
  OK(cuMemGetInfo_v2(&free_bytes, nullptr));
  EXPECT_EQ(free_bytes, kDeviceBytes);
  // Two retained it; the reset changed nothing about that.
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

TEST_F(ContextTest, PrimaryFlags) {
  COVERS(cuDevicePrimaryCtxSetFlags_v2, cuCtxGetFlags, cuCtxSetFlags);
  OK(cuDevicePrimaryCtxSetFlags_v2(0, 4));
  unsigned flags = 0;
  OK(cuDevicePrimaryCtxGetState(0, &flags, nullptr));
  EXPECT_EQ(flags, 4U);
  OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, 4U);
  OK(cuCtxSetFlags(1));
  OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, 1U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags_v2(0, 0x100));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxSetFlags(3));  // spin and yield
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxSetFlags_v2(5, 0));
}

TEST_F(ContextTest, OwnContexts) {
  COVERS(cuCtxCreate_v2, cuCtxCreate_v4, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxGetDevice,
         cuCtxGetDevice_v2, cuCtxGetId, cuCtxGetApiVersion);
  CUcontext first = nullptr, second = nullptr, current = nullptr;
  OK(cuCtxCreate_v2(&first, 2, 0));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, first);
  OK(cuCtxCreate_v4(&second, nullptr, 0, 1));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, second);
  CUdevice device = -1;
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  OK(cuCtxGetDevice_v2(&device, first));
  EXPECT_EQ(device, 0);
  unsigned long long a = 0, b = 0;
  OK(cuCtxGetId(first, &a));
  OK(cuCtxGetId(nullptr, &b));
  EXPECT_NE(a, b);
  unsigned version = 0;
  OK(cuCtxGetApiVersion(nullptr, &version));
  EXPECT_EQ(version, 3020U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&first, 0xffff0000U, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&current, 0, 9));
  // Primary contexts are not destroyed; a destroyed one goes from the top of the stack.
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context_));
  OK(cuCtxDestroy_v2(second));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, first);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(second));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetId(second, &a));
  OK(cuCtxDestroy_v2(first));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
}

TEST_F(ContextTest, ADestroyedOneStaysCurrentElsewhereAndIsOfNoUse) {
  COVERS(cuCtxDestroy_v2, cuCtxSetCurrent);
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(cuCtxSetCurrent(context_));
  std::thread([&] {
    EXPECT_CU(0, cuCtxSetCurrent(own));
    const CUdeviceptr memory = allocate(1000);
    EXPECT_NE(memory, 0U);
    EXPECT_CU(0, cuCtxDestroy_v2(context_) == CUDA_SUCCESS ? 1 : 0);
  }).join();
  std::size_t before = 0, after = 0;
  OK(cuMemGetInfo_v2(&before, nullptr));
  OK(cuCtxPushCurrent_v2(own));
  OK(cuCtxPushCurrent_v2(context_));
  OK(cuCtxDestroy_v2(own));
  OK(cuMemGetInfo_v2(&after, nullptr));
  EXPECT_EQ(after, before + 1000);
  CUcontext popped = nullptr;
  OK(cuCtxPopCurrent_v2(&popped));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  CUstream stream = nullptr;
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&stream, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(own));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(own));
}

TEST_F(ContextTest, EveryThreadHasItsOwnStack) {
  COVERS(cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuCtxSetCurrent, cuCtxGetCurrent);
  CUcontext other = nullptr, current = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxPushCurrent_v2(other));
  std::thread([&] {
    CUcontext mine = other;
    EXPECT_CU(0, cuCtxGetCurrent(&mine));
    EXPECT_EQ(mine, nullptr);
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&mine));
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    EXPECT_CU(0, cuCtxSetCurrent(context_));
    EXPECT_CU(0, cuCtxGetCurrent(&mine));
    EXPECT_EQ(mine, context_);
  }).join();
  // Setting replaces the top.
  OK(cuCtxSetCurrent(context_));
  OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(current, context_);
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  // Null takes it away.
  OK(cuCtxSetCurrent(nullptr));
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, nullptr);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(nullptr));
}

TEST_F(ContextTest, Limits) {
  COVERS(cuCtxGetLimit, cuCtxSetLimit);
  std::size_t value = 0;
  OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 1024U);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 4096U);
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(static_cast<CUlimit>(99), 1));
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, static_cast<CUlimit>(99)));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  // They are the context's own.
  CUcontext other = nullptr;
  OK(cuCtxCreate_v2(&other, 0, 0));
  OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 1024U);
  OK(cuCtxDestroy_v2(other));
}

TEST_F(ContextTest, SettingsAreKept) {
  COVERS(cuCtxGetCacheConfig, cuCtxSetCacheConfig, cuCtxGetSharedMemConfig, cuCtxSetSharedMemConfig,
         cuCtxGetStreamPriorityRange, cuProfilerStart, cuProfilerStop);
  int value = -1;
  OK(cuCtxSetCacheConfig(2));
  OK(cuCtxGetCacheConfig(&value));
  EXPECT_EQ(value, 2);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxSetCacheConfig(4));
  OK(cuCtxSetSharedMemConfig(1));
  OK(cuCtxGetSharedMemConfig(&value));
  EXPECT_EQ(value, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxSetSharedMemConfig(-1));
  int least = 9, greatest = 9;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
  OK(cuCtxGetStreamPriorityRange(nullptr, nullptr));
  OK(cuProfilerStart());
  OK(cuProfilerStop());
  OK(cuCtxSetCurrent(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuProfilerStart());
}

TEST_F(ContextTest, SynchronizeWaitsForAllStreams) {
  COVERS(cuCtxSynchronize, cuCtxSynchronize_v2);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, kStreamNonBlocking));
  volatile std::uint32_t* const flag = pinned();
  const CUdeviceptr out = allocate(4);
  OK(launch(kernel("await"), {}, stream, address(flag), out));
  std::thread release([&] { *flag = 5; });
  OK(cuCtxSynchronize());
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(stream));
  release.join();
  EXPECT_EQ(read(out), 5U);
  // A stream of a context that is not current.
  *flag = 0;
  OK(launch(kernel("await"), {}, stream, address(flag), out));
  OK(cuCtxSetCurrent(nullptr));
  std::thread again([&] { *flag = 6; });
  OK(cuCtxSynchronize_v2(context_));
  again.join();
  OK(cuCtxSetCurrent(context_));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(read(out), 6U);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize_v2(garbage<CUcontext>()));
}

TEST_F(ContextTest, PeersSeeEachOtherOnlyWhenTheyAsk) {
  COVERS(cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, cuCtxEnablePeerAccess,
         cuCtxDisablePeerAccess);
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cuDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  OK(cuDeviceGetP2PAttribute(&can, 2, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute(&can, 9, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&can, 2, 0, 4));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  const CUdeviceptr theirs = allocate(4);
  OK(cuMemsetD32_v2(theirs, 41, 1));
  OK(cuCtxSetCurrent(context_));
  const CUdeviceptr out = allocate(4);
  OK(cuCtxEnablePeerAccess(other, 0));
  EXPECT_CU(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(other, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(context_, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(other, 1));
  OK(launch(kernel("next"), {}, nullptr, theirs, out));
  EXPECT_EQ(read(out), 42U);
  // Device 1 did not ask.
  OK(cuCtxSetCurrent(other));
  OK(launch(kernel("store"), {}, nullptr, out, 1U));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(read(out), 42U);
  OK(cuCtxDisablePeerAccess(other));
  EXPECT_CU(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(other));
  OK(launch(kernel("next"), {}, nullptr, theirs, out));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(ContextTest, AnotherContextOfTheDeviceIsNoPeer) {
  COVERS(cuCtxEnablePeerAccess);
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 0));
  EXPECT_CU(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context_, 0));
  OK(cuCtxDestroy_v2(own));
}

TEST_F(ContextTest, DestroyingOneEndsItsKernels) {
  COVERS(cuCtxDestroy_v2);
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(launch(kernel("for_ever"), {}, nullptr));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, kStreamNonBlocking));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuCtxDestroy_v2(own));
  EXPECT_CU(CUDA_SUCCESS, cuCtxSynchronize());
}

/// In a child of fork: what the driver says to a call of each kind.
int forked() {
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc_v2(&pointer, 64) != CUDA_SUCCESS)
    return 1;
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const CUresult all[] = {cuInit(0),
                            cuDeviceGetCount(&count),
                            cuCtxGetCurrent(&context),
                            cuCtxSetCurrent(context),
                            cuCtxSynchronize(),
                            cuMemFree_v2(pointer),
                            cuMemsetD8_v2(pointer, 1, 64),
                            cuStreamSynchronize(nullptr),
                            cuDevicePrimaryCtxReset_v2(0)};
    for (const CUresult status : all) {
      if (status != CUDA_ERROR_NOT_INITIALIZED) std::exit(100 + status);
    }
    if (fork() == 0) std::exit(cuInit(0));
    int its_child = 0;
    if (wait(&its_child) == -1 || !WIFEXITED(its_child) ||
        WEXITSTATUS(its_child) != CUDA_ERROR_NOT_INITIALIZED)
      std::exit(1);
    std::exit(0);  // its destructors must not hang either
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return 2;
  return cuMemFree_v2(pointer) == CUDA_SUCCESS ? 0 : 3;  // the parent goes on
}
const Child kForked{"forked", forked};

TEST_F(ContextTest, AChildOfForkIsToldThatNothingIsThere) {
  EXPECT_EQ(run_child("forked", {"KANSOKU_SOFTGPU_TIME_LIMIT=10s", kNoLeakCheck}).exit_code, 0);
}

/// Calls behind main, when thread-local objects are gone: global objects of programs make them.
int late_calls() {
  CUcontext context = nullptr;
  static CUdeviceptr pointer = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc_v2(&pointer, 64) != CUDA_SUCCESS)
    return 1;
  std::atexit([] {
    const bool is_done = cuStreamSynchronize(kPerThreadStream) == CUDA_SUCCESS &&
                         cuMemFree_v2(pointer) == CUDA_SUCCESS;
    _exit(is_done ? 42 : 2);
  });
  if (cuStreamSynchronize(kPerThreadStream) != CUDA_SUCCESS) return 3;
  std::exit(4);
}
const Child kLateCalls{"late_calls", late_calls};

TEST_F(ContextTest, CallsOfStaticDestructorsAreAnswered) {
  EXPECT_EQ(run_child("late_calls", {}).exit_code, 42);
}

}  // namespace
}  // namespace kansoku::softcuda
