// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "cuda/abi.h"

namespace kansoku::cuda {

// The result of clang-format is not stable for these macros.
// clang-format off
/// The driver's functions that Kansoku itself calls: field, exported symbol, parameters.
#define KANSOKU_DRIVER_FUNCTIONS(X)                                                                \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driver_version, "cuDriverGetVersion", (int* version))                                          \
  X(device_count, "cuDeviceGetCount", (int* count))                                                \
  X(device_get, "cuDeviceGet", (CUdevice* device, int ordinal))                                    \
  X(device_name, "cuDeviceGetName", (char* name, int bytes, CUdevice device))                      \
  X(device_total_mem, "cuDeviceTotalMem_v2", (std::size_t* bytes, CUdevice device))                \
  X(device_attribute, "cuDeviceGetAttribute",                                                      \
    (int* value, CUdevice_attribute attribute, CUdevice device))                                   \
  X(device_uuid, "cuDeviceGetUuid_v2", (CUuuid* uuid, CUdevice device))                            \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (CUcontext* context, CUdevice device))             \
  X(primary_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                            \
  X(ctx_set_current, "cuCtxSetCurrent", (CUcontext context))                                       \
  X(ctx_synchronize, "cuCtxSynchronize", ())                                                       \
  X(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr* pointer, std::size_t bytes))                         \
  X(mem_free, "cuMemFree_v2", (CUdeviceptr pointer))                                               \
  X(mem_info, "cuMemGetInfo_v2", (std::size_t* free_bytes, std::size_t* total_bytes))              \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                        \
    (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                        \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                          \
    (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                              \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                                        \
    (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                        \
  X(fill, "cuMemsetD8Async",                                                                       \
    (CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream))                     \
  X(module_load, "cuModuleLoadData", (CUmodule* module, const void* image))                        \
  X(module_unload, "cuModuleUnload", (CUmodule module))                                            \
  X(module_function, "cuModuleGetFunction",                                                        \
    (CUfunction* function, CUmodule module, const char* name))                                     \
  X(module_global, "cuModuleGetGlobal_v2",                                                         \
    (CUdeviceptr* pointer, std::size_t* bytes, CUmodule module, const char* name))                 \
  X(launch_kernel, "cuLaunchKernel",                                                               \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params,    \
     void** extra))                                                                                \
  X(stream_create, "cuStreamCreate", (CUstream* stream, unsigned flags))                           \
  X(stream_destroy, "cuStreamDestroy_v2", (CUstream stream))                                       \
  X(stream_synchronize, "cuStreamSynchronize", (CUstream stream))                                  \
  X(stream_query, "cuStreamQuery", (CUstream stream))                                              \
  X(stream_wait_event, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))      \
  X(event_create, "cuEventCreate", (CUevent* event, unsigned flags))                               \
  X(event_destroy, "cuEventDestroy_v2", (CUevent event))                                           \
  X(event_record, "cuEventRecord", (CUevent event, CUstream stream))                               \
  X(event_synchronize, "cuEventSynchronize", (CUevent event))                                      \
  X(event_elapsed, "cuEventElapsedTime", (float* ms, CUevent begin, CUevent end))
// clang-format on

/// The functions of a CUDA driver, loaded at run time: NVIDIA's, or the software device's. Any
/// thread; the library stays loaded for as long as the object lives.
struct Driver {
#define KANSOKU_CUDA_X(field, symbol, parameters) CUresult(*field) parameters{nullptr};
  KANSOKU_DRIVER_FUNCTIONS(KANSOKU_CUDA_X)
#undef KANSOKU_CUDA_X
  std::string path;               // of the library
  std::shared_ptr<void> library;  // closes it
};

/// dlopen of `path` ("libcuda.so.1": as the loader finds it) and all functions above; kUnavailable
/// if there is no such library or it lacks one, naming it. Calls no function of it.
[[nodiscard]] Result<Driver> load_driver(const std::string& path = "libcuda.so.1");

/// "launch kernel: CUDA_ERROR_INVALID_VALUE (1): invalid argument".
[[nodiscard]] Error driver_error(std::string_view operation, CUresult code);

}  // namespace kansoku::cuda
