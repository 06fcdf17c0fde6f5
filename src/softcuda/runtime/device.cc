// SPDX-License-Identifier: Apache-2.0
// Which device a thread uses, and the primary contexts.
#include <algorithm>

#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

constexpr unsigned kDeviceFlagsMask =
    cudaDeviceScheduleMask | cudaDeviceMapHost | cudaDeviceLmemResizeToMax | 0x80;  // synchronous

cudaError_t check_device(int device) {
  if (const cudaError_t error = start(); error != cudaSuccess) return error;
  int count = 0;
  driver().cuDeviceGetCount(&count);
  return device < 0 || device >= count ? cudaErrorInvalidDevice : cudaSuccess;
}

/// Host memory can always be mapped, so that flag is not the driver's.
cudaError_t set_flags(int device, unsigned flags) {
  if ((flags & ~kDeviceFlagsMask) != 0) return cudaErrorInvalidValue;
  return static_cast<cudaError_t>(driver().cuDevicePrimaryCtxSetFlags_v2(
      device, flags & ~static_cast<unsigned>(cudaDeviceMapHost)));
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return noted(cudaErrorInvalidValue);
  *count = 0;
  KANSOKU_CUDART_TRY(start());
  return noted(driver().cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return noted(cudaErrorInvalidValue);
  CUcontext current = nullptr;
  if (is_started() && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
      driver().cuCtxGetDevice(device) == CUDA_SUCCESS)
    return cudaSuccess;
  *device = device_of_thread();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  KANSOKU_CUDART_TRY(check_device(device));
  CUcontext context = nullptr;
  KANSOKU_CUDART_TRY(primary_of(device, context));
  thread().device = device;
  return noted(driver().cuCtxSetCurrent(context));
}
cudaError_t cudaSetValidDevices(int* devices, int count) {
  if (count < 0 || (count > 0 && devices == nullptr)) return noted(cudaErrorInvalidValue);
  for (int i = 0; i < count; ++i)
    KANSOKU_CUDART_TRY(check_device(devices[i]));
  state().first_device = count == 0 ? 0 : devices[0];
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  constexpr unsigned kFlagsAreValid = 1;  // the device's flags are to be taken
  KANSOKU_CUDART_TRY(check_device(device));
  if ((flags & ~kFlagsAreValid) != 0) return noted(cudaErrorInvalidValue);
  if (flags != 0) KANSOKU_CUDART_TRY(set_flags(device, device_flags));
  CUcontext context = nullptr;
  return noted(primary_of(device, context));
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  KANSOKU_CUDART_TRY(start());
  return noted(set_flags(device_of_thread(), flags));
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return noted(cudaErrorInvalidValue);
  KANSOKU_CUDART_TRY(start());
  int is_active = 0;
  KANSOKU_CUDART_TRY(static_cast<cudaError_t>(
      driver().cuDevicePrimaryCtxGetState(device_of_thread(), flags, &is_active)));
  *flags |= cudaDeviceMapHost;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() {
  KANSOKU_CUDART_TRY(start());
  const int device = device_of_thread();
  {
    State& all = state();
    const std::scoped_lock lock(all.mutex);
    const auto primary = all.primary.find(device);
    if (primary == all.primary.end()) return cudaSuccess;
    for (auto& [handle, image] : all.images)
      image->modules.erase(primary->second);
    all.primary.erase(primary);
    ++all.epoch;
  }
  // Without the lock: it waits for functions of the host, which may try to call the runtime.
  driver().cuCtxSetCurrent(nullptr);
  return noted(driver().cuDevicePrimaryCtxReset_v2(device));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  KANSOKU_CUDART_TRY(enter());
  KANSOKU_CUDART_TRY(check_device(peer));
  CUcontext context = nullptr;
  KANSOKU_CUDART_TRY(primary_of(peer, context));
  if (context == current_context()) return noted(cudaErrorInvalidDevice);  // itself
  return noted(driver().cuCtxEnablePeerAccess(context, flags));
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  KANSOKU_CUDART_TRY(enter());
  KANSOKU_CUDART_TRY(check_device(peer));
  CUcontext context = nullptr;
  KANSOKU_CUDART_TRY(primary_of(peer, context));
  return noted(driver().cuCtxDisablePeerAccess(context));
}

/// 0 without a driver, as documented.
cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = 0;
  const cudaError_t error = start();
  if (error == cudaErrorInsufficientDriver) return cudaSuccess;
  return noted(driver().cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
