// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "common/result.h"
#include "cuda/abi.h"
#include "softcuda/nccl/internal/status.h"

namespace kansoku::softcuda::nccl {

// The result of clang-format is not stable for these macros.
// clang-format off
/// The driver's functions that the stand-in calls: field, exported symbol, parameters.
#define KANSOKU_NCCL_DRIVER_FUNCTIONS(X)                                                           \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(device_count, "cuDeviceGetCount", (int* count))                                                \
  X(device_get, "cuDeviceGet", (cuda::CUdevice* device, int ordinal))                              \
  X(device_name, "cuDeviceGetName", (char* name, int bytes, cuda::CUdevice device))                \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (cuda::CUcontext* context, cuda::CUdevice device)) \
  X(ctx_get_current, "cuCtxGetCurrent", (cuda::CUcontext* context))                                \
  X(ctx_set_current, "cuCtxSetCurrent", (cuda::CUcontext context))                                 \
  X(ctx_device, "cuCtxGetDevice", (cuda::CUdevice* device))                                        \
  X(pointer_attribute, "cuPointerGetAttribute",                                                    \
    (void* data, cuda::CUpointer_attribute attribute, cuda::CUdeviceptr pointer))                  \
  X(stream_query, "cuStreamQuery", (cuda::CUstream stream))                                        \
  X(stream_is_capturing, "cuStreamIsCapturing", (cuda::CUstream stream, cuda::CUstreamCaptureStatus* status))              \
  X(launch_host, "cuLaunchHostFunc",                                                               \
    (cuda::CUstream stream, cuda::CUhostFn function, void* user_data))
// clang-format on

/// A device's ordinal and a context of it.
struct DeviceContext {
  int device{0};
  cuda::CUcontext context{nullptr};
};

/// The driver of the process, as far as it is needed here. Any thread.
class Driver {
 public:
  /// The libcuda.so.1 that the program has loaded already, else that which the loader finds.
  /// ncclUnhandledCudaError if there is none or it lacks a function; ncclInvalidUsage if it is not
  /// the software device's, whose memory only is memory of this process.
  [[nodiscard]] static Status load(Driver& driver);

  /// Current context of this thread; without one, the first device's primary context.
  [[nodiscard]] Status current(DeviceContext& into) const;
  /// The primary context of a device, retained for good.
  [[nodiscard]] Status primary(int device, DeviceContext& into) const;
  [[nodiscard]] Status device_count(int& count) const;
  /// ncclInvalidArgument unless the array begins and ends in memory that the device knows.
  [[nodiscard]] Status check_array(cuda::CUcontext context, const std::byte* array,
                                   std::size_t bytes) const;
  /// Enqueues `function` on a stream of `context`. ncclInvalidUsage while the stream captures.
  [[nodiscard]] Status enqueue(cuda::CUcontext context, cuda::CUstream stream,
                               cuda::CUhostFn function, void* user_data) const;
  /// State of a stream's work: CUDA_SUCCESS done, CUDA_ERROR_NOT_READY, or why it failed.
  [[nodiscard]] cuda::CUresult query(cuda::CUcontext context, cuda::CUstream stream) const;

 private:
  struct Functions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): names and lists of parameters
#define KANSOKU_NCCL_X(field, symbol, parameters) cuda::CUresult(*field) parameters{nullptr};
    KANSOKU_NCCL_DRIVER_FUNCTIONS(KANSOKU_NCCL_X)
#undef KANSOKU_NCCL_X
  };
  Functions call_;
};

/// "launch host function: CUDA_ERROR_INVALID_HANDLE (400)".
[[nodiscard]] Status cuda_status(std::string_view operation, cuda::CUresult code);

}  // namespace kansoku::softcuda::nccl
