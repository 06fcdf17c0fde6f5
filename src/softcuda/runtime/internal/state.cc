// SPDX-License-Identifier: Apache-2.0
// The driver, contexts and threads.
#include "softcuda/runtime/internal/state.h"

#include <algorithm>
#include <cstdlib>

#include "common/no_destructor.h"
#include "common/of_thread.h"

namespace kansoku::cudart {
namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): the runtime is one a process
Driver g_driver;
std::atomic<bool> g_is_started{false}, g_is_ending{false};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

cudaError_t load_driver() {
  const LookUp look_up = find_driver();
  if (look_up == nullptr) return cudaErrorInsufficientDriver;
  const auto find = [&](auto& function, const char* name, int version) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult query{};
    if (look_up(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &query) != CUDA_SUCCESS)
      return false;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    return address != nullptr;
  };
#define KANSOKU_DRIVER(name, base, version) \
  if (!find(g_driver.name, base, version)) return cudaErrorInsufficientDriver;
#include "softcuda/runtime/driver_functions.inc"
#undef KANSOKU_DRIVER
  // Versions of one major number go together.
  constexpr int kMajor = 1000;
  int version = 0;
  if (g_driver.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
      version < CUDART_VERSION / kMajor * kMajor)
    return cudaErrorInsufficientDriver;
  const auto status = static_cast<cudaError_t>(g_driver.cuInit(0));
  // Behind what compilers register before main, so it is called before that.
  std::atexit([] { g_is_ending = true; });
  if (status == cudaSuccess) g_is_started.store(true, std::memory_order_release);
  return status;
}

/// The state's mutex is held.
cudaError_t retain_primary(State& all, int device, CUcontext& context) {
  const auto found = all.primary.find(device);
  if (found != all.primary.end()) {
    context = found->second;
    return cudaSuccess;
  }
  const CUresult status = g_driver.cuDevicePrimaryCtxRetain(&context, device);
  if (status == CUDA_SUCCESS) all.primary.emplace(device, context);
  return static_cast<cudaError_t>(status);
}

/// The slow way: the thread has no context, or another one than last time.
cudaError_t bind(ThreadState& mine, CUcontext current) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  mine.kernels.clear();
  mine.epoch = all.epoch.load();
  mine.bound = nullptr;
  const auto its = std::find_if(all.primary.begin(), all.primary.end(),
                                [&](const auto& row) { return row.second == current; });
  unsigned version = 0;
  if (current != nullptr && its == all.primary.end() &&
      g_driver.cuCtxGetApiVersion(current, &version) != CUDA_SUCCESS)
    current = nullptr;  // it has been destroyed or reset
  if (current == nullptr) {
    if (const cudaError_t error = retain_primary(all, device_of_thread(), current);
        error != cudaSuccess)
      return error;
    if (const CUresult status = g_driver.cuCtxSetCurrent(current); status != CUDA_SUCCESS)
      return static_cast<cudaError_t>(status);
  } else if (its != all.primary.end()) {
    mine.device = its->first;  // the program chose it through the driver
  }
  mine.bound = current;
  return cudaSuccess;
}

/// The module of an image in the current context. The state's mutex is held. An image that cannot
/// be loaded is tried once in a context; if memory was short, each time.
CUresult module_of(Image& image, CUcontext context, CUmodule& module) {
  const auto [row, is_new] = image.modules.try_emplace(context);
  Image::Loaded& loaded = row->second;
  if (is_new) {
    // A capture of this thread goes on: what is loaded is no part of it.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    g_driver.cuThreadExchangeStreamCaptureMode(&mode);
    loaded.status = g_driver.cuModuleLoadData(&loaded.module, image.wrapper);
    g_driver.cuThreadExchangeStreamCaptureMode(&mode);
    for (const Image::Managed& variable : image.managed) {
      if (loaded.status != CUDA_SUCCESS) break;
      // One memory for all devices: only the first can have it.
      CUdeviceptr address = 0;
      loaded.status = image.modules.size() > 1
                          ? CUDA_ERROR_NOT_SUPPORTED
                          : g_driver.cuModuleGetGlobal_v2(&address, nullptr, loaded.module,
                                                          variable.name.c_str());
      if (loaded.status == CUDA_SUCCESS) *variable.host = pointer_of(address);
    }
  }
  module = loaded.module;
  const CUresult status = loaded.status;
  if (status == CUDA_ERROR_OUT_OF_MEMORY) image.modules.erase(row);
  return status;
}

}  // namespace

cudaError_t start() {
  static const cudaError_t kStatus = load_driver();
  return kStatus;
}
const Driver& driver() {
  return g_driver;
}
bool is_started() {
  return g_is_started.load(std::memory_order_acquire);
}

bool is_ending() {
  return g_is_ending;
}

ThreadState& thread() {
  return OfThread<ThreadState>::get();
}
int device_of_thread() {
  const int chosen = thread().device;
  return chosen == ThreadState::kDefault ? state().first_device.load() : chosen;
}

State& state() {
  static NoDestructor<State> all;
  return all.get();
}

cudaError_t noted(cudaError_t error) {
  // A query that finds work going on is no error to remember.
  if (error != cudaSuccess && error != cudaErrorNotReady) thread().last = error;
  return error;
}

cudaError_t enter() {
  if (const cudaError_t error = start(); error != cudaSuccess) return error;
  CUcontext current = nullptr;
  if (const CUresult status = g_driver.cuCtxGetCurrent(&current); status != CUDA_SUCCESS)
    return static_cast<cudaError_t>(status);
  ThreadState& mine = thread();
  const bool is_known = current != nullptr && current == mine.bound &&
                        mine.epoch == state().epoch.load(std::memory_order_relaxed);
  return is_known ? cudaSuccess : bind(mine, current);
}

CUcontext current_context() {
  return thread().bound;
}

cudaError_t primary_of(int device, CUcontext& context) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  return retain_primary(all, device, context);
}

cudaError_t enter_kernel(const void* stub, CUfunction& kernel) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  ThreadState& mine = thread();
  if (const auto known = mine.kernels.find(stub); known != mine.kernels.end()) {
    kernel = known->second;
    return cudaSuccess;
  }
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.kernels.find(stub);
  if (found == all.kernels.end()) return cudaErrorInvalidDeviceFunction;
  CUmodule module = nullptr;
  CUresult status = module_of(*found->second.image, mine.bound, module);
  if (status != CUDA_SUCCESS) return static_cast<cudaError_t>(status);
  status = g_driver.cuModuleGetFunction(&kernel, module, found->second.name.c_str());
  if (status == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
  if (status != CUDA_SUCCESS) return static_cast<cudaError_t>(status);
  mine.kernels.emplace(stub, kernel);
  return cudaSuccess;
}

cudaError_t enter_variable(const void* shadow, Place& place) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.variables.find(shadow);
  if (found == all.variables.end()) return cudaErrorInvalidSymbol;
  CUmodule module = nullptr;
  CUresult status = module_of(*found->second.image, thread().bound, module);
  if (status == CUDA_SUCCESS)
    status = g_driver.cuModuleGetGlobal_v2(&place.address, &place.bytes, module,
                                           found->second.name.c_str());
  return status == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : static_cast<cudaError_t>(status);
}

}  // namespace kansoku::cudart
