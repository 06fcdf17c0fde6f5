// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA runtime library, on top of the driver's public interface: what programs
// that were compiled for the runtime need in order to run on the software device. Lazy like the
// real one: nothing is loaded before the first call that needs a device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/abi.h"

namespace kansoku::softcuda {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): this library stands on it.

}  // namespace

// The driver's functions used here.
extern "C" {
CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int*);
CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGet(CUdevice*, int);
CUresult cuDeviceGetName(char*, int, CUdevice);
CUresult cuDeviceGetUuid_v2(CUuuid*, CUdevice);
CUresult cuDeviceTotalMem_v2(std::size_t*, CUdevice);
CUresult cuDeviceGetAttribute(int*, CUdevice_attribute, CUdevice);
CUresult cuDeviceCanAccessPeer(int*, CUdevice, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxGetCurrent(CUcontext*);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxGetDevice(CUdevice*);
CUresult cuCtxSynchronize();
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule, const char*);
CUresult cuFuncGetAttribute(int*, CUfunction_attribute, CUfunction);
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int);
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t);
CUresult cuMemAllocManaged(CUdeviceptr*, std::size_t, unsigned);
CUresult cuMemAllocAsync(CUdeviceptr*, std::size_t, CUstream);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemHostAlloc(void**, std::size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemGetInfo_v2(std::size_t*, std::size_t*);
CUresult cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, std::size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D*);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, std::size_t);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, std::size_t, CUstream);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime(float*, CUevent, CUevent);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void**);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int*, CUfunction, int, std::size_t);
}

namespace {

constexpr int kVersion = CUDART_VERSION;

constexpr std::pair<cudaError_t, const char*> kErrorNames[] = {
#define KANSOKU_ROW(name) \
  { name, #name }
    KANSOKU_ROW(cudaSuccess),
    KANSOKU_ROW(cudaErrorInvalidValue),
    KANSOKU_ROW(cudaErrorMemoryAllocation),
    KANSOKU_ROW(cudaErrorInitializationError),
    KANSOKU_ROW(cudaErrorCudartUnloading),
    KANSOKU_ROW(cudaErrorInvalidConfiguration),
    KANSOKU_ROW(cudaErrorInvalidSymbol),
    KANSOKU_ROW(cudaErrorInvalidDevicePointer),
    KANSOKU_ROW(cudaErrorInvalidMemcpyDirection),
    KANSOKU_ROW(cudaErrorInvalidDeviceFunction),
    KANSOKU_ROW(cudaErrorNoDevice),
    KANSOKU_ROW(cudaErrorInvalidDevice),
    KANSOKU_ROW(cudaErrorInvalidKernelImage),
    KANSOKU_ROW(cudaErrorDeviceUninitialized),
    KANSOKU_ROW(cudaErrorNoKernelImageForDevice),
    KANSOKU_ROW(cudaErrorPeerAccessUnsupported),
    KANSOKU_ROW(cudaErrorInvalidPtx),
    KANSOKU_ROW(cudaErrorUnsupportedPtxVersion),
    KANSOKU_ROW(cudaErrorFileNotFound),
    KANSOKU_ROW(cudaErrorOperatingSystem),
    KANSOKU_ROW(cudaErrorInvalidResourceHandle),
    KANSOKU_ROW(cudaErrorIllegalState),
    KANSOKU_ROW(cudaErrorSymbolNotFound),
    KANSOKU_ROW(cudaErrorNotReady),
    KANSOKU_ROW(cudaErrorIllegalAddress),
    KANSOKU_ROW(cudaErrorLaunchOutOfResources),
    KANSOKU_ROW(cudaErrorLaunchTimeout),
    KANSOKU_ROW(cudaErrorPeerAccessAlreadyEnabled),
    KANSOKU_ROW(cudaErrorPeerAccessNotEnabled),
    KANSOKU_ROW(cudaErrorContextIsDestroyed),
    KANSOKU_ROW(cudaErrorHostMemoryAlreadyRegistered),
    KANSOKU_ROW(cudaErrorHostMemoryNotRegistered),
    KANSOKU_ROW(cudaErrorHardwareStackError),
    KANSOKU_ROW(cudaErrorIllegalInstruction),
    KANSOKU_ROW(cudaErrorMisalignedAddress),
    KANSOKU_ROW(cudaErrorLaunchFailure),
    KANSOKU_ROW(cudaErrorCooperativeLaunchTooLarge),
    KANSOKU_ROW(cudaErrorNotPermitted),
    KANSOKU_ROW(cudaErrorNotSupported),
    KANSOKU_ROW(cudaErrorStreamCaptureUnsupported),
    KANSOKU_ROW(cudaErrorStreamCaptureInvalidated),
    KANSOKU_ROW(cudaErrorStreamCaptureUnmatched),
    KANSOKU_ROW(cudaErrorStreamCaptureUnjoined),
    KANSOKU_ROW(cudaErrorStreamCaptureImplicit),
    KANSOKU_ROW(cudaErrorCapturedEvent),
    KANSOKU_ROW(cudaErrorUnknown),
#undef KANSOKU_ROW
};

/// An image of the program, loaded on a device when that device first needs it.
struct Image {
  const void* wrapper{nullptr};
  std::map<int, CUmodule> modules;  // by device
};
struct Symbol {
  Image* image{nullptr};
  std::string name;
};
struct KernelSymbol : Symbol {
  std::map<int, CUfunction> functions;  // by device
};

/// Registered by static constructors of the program, in any order, so made on first use and never
/// destroyed. Guarded by its mutex.
struct State {
  std::mutex mutex;
  std::map<void**, std::unique_ptr<Image>> images;
  std::map<const void*, KernelSymbol> kernels;  // by the host's stub
  std::map<const void*, Symbol> variables;      // by the host's shadow
  std::map<int, CUcontext> primary;             // retained, by device
};
State& state() {
  static State& all = *std::make_unique<State>().release();
  return all;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes{0};
  cudaStream_t stream{nullptr};
};
struct ThreadState {
  int device{0};
  cudaError_t last{cudaSuccess};
  std::vector<Configuration> configurations;  // pushed and not yet popped
};
ThreadState& thread() {
  thread_local ThreadState mine;
  return mine;
}

/// Numbers of errors agree; what the runtime lacks is unknown to it.
cudaError_t noted(cudaError_t error) {
  // A query that finds work going on is no error to remember.
  if (error != cudaSuccess && error != cudaErrorNotReady) thread().last = error;
  return error;
}
cudaError_t noted(CUresult status) {
  return noted(static_cast<cudaError_t>(status));
}

CUstream driver(cudaStream_t stream) {
  return reinterpret_cast<CUstream>(stream);
}
CUevent driver(cudaEvent_t event) {
  return reinterpret_cast<CUevent>(event);
}
CUdeviceptr driver(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}
void* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

CUresult start() {
  static const CUresult status = cuInit(0);
  return status;
}

/// The primary context of the thread's device is current, unless the program has made another one
/// current itself.
CUresult enter() {
  if (const CUresult status = start(); status != CUDA_SUCCESS) return status;
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const bool is_primary =
      current == nullptr || std::any_of(all.primary.begin(), all.primary.end(),
                                        [&](const auto& row) { return row.second == current; });
  if (!is_primary) return CUDA_SUCCESS;
  CUcontext& mine = all.primary[thread().device];
  if (mine == nullptr) {
    const CUresult status = cuDevicePrimaryCtxRetain(&mine, thread().device);
    if (status != CUDA_SUCCESS) return status;
  }
  return mine == current ? CUDA_SUCCESS : cuCtxSetCurrent(mine);
}

#define KANSOKU_ENTER()                                                        \
  do {                                                                         \
    if (const CUresult enter_status_ = enter(); enter_status_ != CUDA_SUCCESS) \
      return noted(enter_status_);                                             \
  } while (false)

/// The module of an image on the thread's device. The state's mutex is held.
CUresult module_of(Image& image, CUmodule& module) {
  CUmodule& mine = image.modules[thread().device];
  if (mine == nullptr) {
    const CUresult status = cuModuleLoadData(&mine, image.wrapper);
    if (status != CUDA_SUCCESS) return status;
  }
  module = mine;
  return CUDA_SUCCESS;
}

cudaError_t function_of(const void* stub, CUfunction& function) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.kernels.find(stub);
  if (found == all.kernels.end()) return cudaErrorInvalidDeviceFunction;
  CUfunction& mine = found->second.functions[thread().device];
  if (mine == nullptr) {
    CUmodule module = nullptr;
    CUresult status = module_of(*found->second.image, module);
    if (status == CUDA_SUCCESS)
      status = cuModuleGetFunction(&mine, module, found->second.name.c_str());
    if (status != CUDA_SUCCESS) return static_cast<cudaError_t>(status);
  }
  function = mine;
  return cudaSuccess;
}

cudaError_t variable_of(const void* shadow, CUdeviceptr& pointer, std::size_t& bytes) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.variables.find(shadow);
  if (found == all.variables.end()) return cudaErrorInvalidSymbol;
  CUmodule module = nullptr;
  CUresult status = module_of(*found->second.image, module);
  if (status == CUDA_SUCCESS)
    status = cuModuleGetGlobal_v2(&pointer, &bytes, module, found->second.name.c_str());
  return static_cast<cudaError_t>(status);
}

cudaError_t launch(const void* stub, dim3 grid, dim3 block, void** args, std::size_t shared_bytes,
                   cudaStream_t stream, bool is_cooperative) {
  KANSOKU_ENTER();
  CUfunction function = nullptr;
  if (const cudaError_t error = function_of(stub, function); error != cudaSuccess)
    return noted(error);
  const auto shared = static_cast<unsigned>(shared_bytes);
  const CUresult status =
      is_cooperative ? cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                 block.z, shared, driver(stream), args)
                     : cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                      shared, driver(stream), args, nullptr);
  // The runtime's own word for a shape that cannot be launched.
  return noted(status == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration
                                                  : static_cast<cudaError_t>(status));
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream, bool is_async) {
  KANSOKU_ENTER();
  if (bytes == 0) return cudaSuccess;
  const CUstream queue = driver(stream);
  switch (kind) {
    case cudaMemcpyHostToHost:
      if (is_async) return noted(cuMemcpyAsync(driver(to), driver(from), bytes, queue));
      std::memcpy(to, from, bytes);
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
      return noted(is_async ? cuMemcpyHtoDAsync_v2(driver(to), from, bytes, queue)
                            : cuMemcpyHtoD_v2(driver(to), from, bytes));
    case cudaMemcpyDeviceToHost:
      return noted(is_async ? cuMemcpyDtoHAsync_v2(to, driver(from), bytes, queue)
                            : cuMemcpyDtoH_v2(to, driver(from), bytes));
    case cudaMemcpyDeviceToDevice:
      return noted(is_async ? cuMemcpyDtoDAsync_v2(driver(to), driver(from), bytes, queue)
                            : cuMemcpyDtoD_v2(driver(to), driver(from), bytes));
    case cudaMemcpyDefault:
      return noted(is_async ? cuMemcpyAsync(driver(to), driver(from), bytes, queue)
                            : cuMemcpy(driver(to), driver(from), bytes));
  }
  return noted(cudaErrorInvalidMemcpyDirection);
}

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  cuDeviceGetAttribute(&value, which, device);
  return value;
}

}  // namespace
}  // namespace kansoku::softcuda

using namespace kansoku::softcuda;  // NOLINT(google-build-using-namespace)
using namespace kansoku::cuda;      // NOLINT(google-build-using-namespace)

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): names of the interface.
#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  auto image = std::make_unique<Image>();
  image->wrapper = wrapper;
  void** const handle = reinterpret_cast<void**>(image.get());
  all.images.emplace(handle, std::move(image));
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) {
  return 1;
}
void __cudaUnregisterFatBinary(void** handle) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.images.find(handle);
  if (found == all.images.end()) return;
  const Image* const image = found->second.get();
  std::erase_if(all.kernels, [&](const auto& row) { return row.second.image == image; });
  std::erase_if(all.variables, [&](const auto& row) { return row.second.image == image; });
  all.images.erase(found);  // the driver's modules go with the process
}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto image = all.images.find(handle);
  if (image == all.images.end()) return;
  KernelSymbol symbol;
  symbol.image = image->second.get();
  symbol.name = name;
  all.kernels[host] = std::move(symbol);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, std::size_t, int,
                       int) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto image = all.images.find(handle);
  if (image == all.images.end()) return;
  all.variables[host] = {image->second.get(), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     CUstream_st* stream) {
  thread().configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  auto& configurations = thread().configurations;
  if (configurations.empty()) return noted(cudaErrorInvalidConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return cudaSuccess;
}
/// A kernel's handle is its stub: the device is only known at the launch.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, grid, block, args, shared_bytes, stream, false);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return launch(function, grid, block, args, shared_bytes, stream, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  return launch(function, grid, block, args, shared_bytes, stream, true);
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return noted(cudaErrorInvalidValue);
  *count = 0;
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  return noted(cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return noted(cudaErrorInvalidValue);
  *device = thread().device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  cuDeviceGetCount(&count);
  if (device < 0 || device >= count) return noted(cudaErrorInvalidDevice);
  thread().device = device;
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  if (current != nullptr) cuCtxSetCurrent(nullptr);
  KANSOKU_ENTER();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (properties == nullptr) return noted(cudaErrorInvalidValue);
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  CUdevice number = 0;
  if (cuDeviceGet(&number, device) != CUDA_SUCCESS) return noted(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  cuDeviceGetName(properties->name, sizeof properties->name, number);
  CUuuid uuid{};
  cuDeviceGetUuid_v2(&uuid, number);
  std::memcpy(properties->uuid.bytes, uuid.bytes, sizeof uuid.bytes);
  cuDeviceTotalMem_v2(&properties->totalGlobalMem, number);
  const auto get = [&](CUdevice_attribute which) { return attribute(which, number); };
  const auto size = [&](CUdevice_attribute which) { return static_cast<std::size_t>(get(which)); };
  properties->sharedMemPerBlock = size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties->memPitch = size(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  properties->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] =
        get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    properties->maxGridSize[i] =
        get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  properties->totalConstMem = size(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  properties->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties->textureAlignment = size(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  properties->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties->integrated = get(CU_DEVICE_ATTRIBUTE_INTEGRATED);
  properties->canMapHostMemory = get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  properties->concurrentKernels = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  properties->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  properties->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  properties->unifiedAddressing = get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  properties->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  properties->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  properties->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  properties->streamPrioritiesSupported = get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  properties->sharedMemPerMultiprocessor =
      size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  properties->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  properties->managedMemory = get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  properties->concurrentManagedAccess = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  properties->cooperativeLaunch = get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  properties->sharedMemPerBlockOptin = size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  properties->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  return noted(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device));
}
cudaError_t cudaDeviceSynchronize() {
  KANSOKU_ENTER();
  return noted(cuCtxSynchronize());
}
cudaError_t cudaDeviceReset() {
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const int device = thread().device;
  if (all.primary.erase(device) == 0) return cudaSuccess;
  for (auto& [handle, image] : all.images)
    image->modules.erase(device);
  for (auto& [stub, kernel] : all.kernels)
    kernel.functions.erase(device);
  cuCtxSetCurrent(nullptr);
  return noted(cuDevicePrimaryCtxReset_v2(device));
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (const CUresult status = start(); status != CUDA_SUCCESS) return noted(status);
  return noted(cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  KANSOKU_ENTER();
  CUcontext context = nullptr;
  {
    State& all = state();
    const std::scoped_lock lock(all.mutex);
    CUcontext& mine = all.primary[peer];
    if (mine == nullptr) {
      const CUresult status = cuDevicePrimaryCtxRetain(&mine, peer);
      if (status != CUDA_SUCCESS) {
        all.primary.erase(peer);
        return noted(status);
      }
    }
    context = mine;
  }
  return noted(cuCtxEnablePeerAccess(context, flags));
}
cudaError_t cudaDriverGetVersion(int* version) {
  return noted(cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  KANSOKU_ENTER();
  if (pointer == nullptr) return noted(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  CUdeviceptr address = 0;
  const CUresult status = cuMemAlloc_v2(&address, bytes);
  *pointer = pointer_of(address);
  return noted(status);
}
cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  KANSOKU_ENTER();
  if (pointer == nullptr) return noted(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const CUresult status = cuMemAllocManaged(&address, bytes, flags);
  *pointer = pointer_of(address);
  return noted(status);
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  KANSOKU_ENTER();
  return noted(cuMemHostAlloc(pointer, bytes, 0));
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  KANSOKU_ENTER();
  return noted(cuMemHostAlloc(pointer, bytes, flags));
}
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  KANSOKU_ENTER();
  if (pointer == nullptr) return noted(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const CUresult status = cuMemAllocAsync(&address, bytes, driver(stream));
  *pointer = pointer_of(address);
  return noted(status);
}
cudaError_t cudaFree(void* pointer) {
  KANSOKU_ENTER();
  return noted(cuMemFree_v2(driver(pointer)));
}
cudaError_t cudaFreeHost(void* pointer) {
  KANSOKU_ENTER();
  return pointer == nullptr ? cudaSuccess : noted(cuMemFreeHost(pointer));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(cuMemFreeAsync(driver(pointer), driver(stream)));
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  KANSOKU_ENTER();
  return noted(cuMemGetInfo_v2(free_bytes, total_bytes));
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  KANSOKU_ENTER();
  if (attributes == nullptr) return noted(cudaErrorInvalidValue);
  std::memset(attributes, 0, sizeof *attributes);
  attributes->device = -2;  // none
  const CUdeviceptr address = driver(pointer);
  CUmemorytype type{};
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) {
    attributes->hostPointer = const_cast<void*>(pointer);  // memory that the driver does not know
    return cudaSuccess;
  }
  int is_managed = 0;
  cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
  cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->type = is_managed != 0                ? cudaMemoryTypeManaged
                     : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                    : cudaMemoryTypeHost;
  if (attributes->type != cudaMemoryTypeDevice)
    attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, false);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, true);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  KANSOKU_ENTER();
  if (width > to_pitch || width > from_pitch) return noted(static_cast<cudaError_t>(12));
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return noted(cudaErrorInvalidMemcpyDirection);
  const bool is_from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  const bool is_to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  const bool is_any = kind == cudaMemcpyDefault;
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = is_any         ? CU_MEMORYTYPE_UNIFIED
                        : is_from_host ? CU_MEMORYTYPE_HOST
                                       : CU_MEMORYTYPE_DEVICE;
  shape.dstMemoryType = is_any       ? CU_MEMORYTYPE_UNIFIED
                        : is_to_host ? CU_MEMORYTYPE_HOST
                                     : CU_MEMORYTYPE_DEVICE;
  shape.srcHost = from;
  shape.srcDevice = driver(from);
  shape.srcPitch = from_pitch;
  shape.dstHost = to;
  shape.dstDevice = driver(to);
  shape.dstPitch = to_pitch;
  shape.WidthInBytes = width;
  shape.Height = height;
  return noted(cuMemcpy2D_v2(&shape));
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  KANSOKU_ENTER();
  return noted(cuMemsetD8_v2(driver(to), static_cast<unsigned char>(value), bytes));
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(
      cuMemsetD8Async(driver(to), static_cast<unsigned char>(value), bytes, driver(stream)));
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  KANSOKU_ENTER();
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  if (const cudaError_t error = variable_of(symbol, address, bytes); error != cudaSuccess)
    return noted(error);
  *pointer = pointer_of(address);
  return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  KANSOKU_ENTER();
  CUdeviceptr address = 0;
  return noted(variable_of(symbol, address, *bytes));
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  KANSOKU_ENTER();
  CUdeviceptr address = 0;
  std::size_t total = 0;
  if (const cudaError_t error = variable_of(symbol, address, total); error != cudaSuccess)
    return noted(error);
  if (offset > total || bytes > total - offset) return noted(cudaErrorInvalidValue);
  return copy(pointer_of(address + offset), from, bytes, kind, nullptr, false);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  KANSOKU_ENTER();
  CUdeviceptr address = 0;
  std::size_t total = 0;
  if (const cudaError_t error = variable_of(symbol, address, total); error != cudaSuccess)
    return noted(error);
  if (offset > total || bytes > total - offset) return noted(cudaErrorInvalidValue);
  return copy(to, pointer_of(address + offset), bytes, kind, nullptr, false);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  KANSOKU_ENTER();
  return noted(cuStreamCreate(reinterpret_cast<CUstream*>(stream), 0));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  KANSOKU_ENTER();
  return noted(cuStreamCreate(reinterpret_cast<CUstream*>(stream), flags));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(cuStreamDestroy_v2(driver(stream)));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(cuStreamSynchronize(driver(stream)));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(cuStreamQuery(driver(stream)));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  KANSOKU_ENTER();
  return noted(cuStreamWaitEvent(driver(stream), driver(event), flags));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  KANSOKU_ENTER();
  return noted(cuLaunchHostFunc(driver(stream), function, user_data));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  KANSOKU_ENTER();
  return noted(cuEventCreate(reinterpret_cast<CUevent*>(event), 0));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  KANSOKU_ENTER();
  return noted(cuEventCreate(reinterpret_cast<CUevent*>(event), flags));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  KANSOKU_ENTER();
  return noted(cuEventDestroy_v2(driver(event)));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  KANSOKU_ENTER();
  return noted(cuEventRecord(driver(event), driver(stream)));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  KANSOKU_ENTER();
  return noted(cuEventQuery(driver(event)));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  KANSOKU_ENTER();
  return noted(cuEventSynchronize(driver(event)));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  KANSOKU_ENTER();
  return noted(cuEventElapsedTime(ms, driver(begin), driver(end)));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  KANSOKU_ENTER();
  CUfunction function = nullptr;
  if (attributes == nullptr) return noted(cudaErrorInvalidValue);
  if (const cudaError_t error = function_of(stub, function); error != cudaSuccess)
    return noted(error);
  std::memset(attributes, 0, sizeof *attributes);
  const auto get = [&](CUfunction_attribute which) {
    int value = 0;
    cuFuncGetAttribute(&value, which, function);
    return value;
  };
  attributes->sharedSizeBytes = static_cast<std::size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  attributes->constSizeBytes = static_cast<std::size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
  attributes->localSizeBytes = static_cast<std::size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  attributes->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attributes->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  attributes->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  attributes->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  attributes->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  attributes->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute which, int value) {
  KANSOKU_ENTER();
  CUfunction function = nullptr;
  if (const cudaError_t error = function_of(stub, function); error != cudaSuccess)
    return noted(error);
  return noted(cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(which), value));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub,
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  KANSOKU_ENTER();
  CUfunction function = nullptr;
  if (const cudaError_t error = function_of(stub, function); error != cudaSuccess)
    return noted(error);
  return noted(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_bytes));
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = thread().last;
  // An error of a kernel stays; anything else is forgotten once it has been asked for.
  thread().last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() {
  return thread().last;
}
const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& [code, name] : kErrorNames) {
    if (code == error) return name;
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidSymbol:
      return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    default:
      break;
  }
  const char* const text = error_text(static_cast<CUresult>(error));
  return text == nullptr ? "unrecognized error code" : text;
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
