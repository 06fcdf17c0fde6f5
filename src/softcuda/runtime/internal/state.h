// SPDX-License-Identifier: Apache-2.0
#pragma once

// State of the runtime: the driver's functions, contexts by device, registrations of compilers, and
// state of each thread.

// The library exports exactly the declarations of the interface's headers.
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace kansoku::cudart {

/// The driver's functions, as cuGetProcAddress gave them.
struct Driver {
#define KANSOKU_DRIVER(name, base, version) decltype(&::name) name{nullptr};
#include "softcuda/runtime/driver_functions.inc"
#undef KANSOKU_DRIVER
};

using LookUp = CUresult (*)(const char* name, void** function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* query);
/// cuGetProcAddress_v2 of libcuda.so.1; null if there is no driver, or one that lacks it.
[[nodiscard]] LookUp find_driver();

/// Finds and initialises the driver, once: cudaErrorInsufficientDriver, cudaErrorNoDevice,
/// cudaErrorInitializationError.
[[nodiscard]] cudaError_t start();
/// After start() succeeded.
[[nodiscard]] const Driver& driver();
/// True if the driver is initialised already.
[[nodiscard]] bool is_started();
/// True once the process ends: functions of atexit run.
[[nodiscard]] bool is_ending();

/// start(), and the primary context of the thread's device is current, unless the program has made
/// a context of its own current.
[[nodiscard]] cudaError_t enter();
/// The primary context of the device, kept until cudaDeviceReset. cudaErrorInvalidDevice.
[[nodiscard]] cudaError_t primary_of(int device, CUcontext& context);
/// The context that enter() left current.
[[nodiscard]] CUcontext current_context();

/// enter(), and the kernel behind a host's stub in the current context; loads its image if that is
/// not there yet. cudaErrorInvalidDeviceFunction, or the error of loading.
[[nodiscard]] cudaError_t enter_kernel(const void* stub, CUfunction& kernel);
/// enter(), and a variable of the device behind the host's shadow. cudaErrorInvalidSymbol.
struct Place {
  CUdeviceptr address{0};
  std::size_t bytes{0};
};
[[nodiscard]] cudaError_t enter_variable(const void* shadow, Place& place);

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes{0};
  cudaStream_t stream{nullptr};
};

/// State of one thread; lives as long as the thread.
struct ThreadState {
  static constexpr int kDefault = -1;
  int device{kDefault};  // cudaSetDevice
  cudaError_t last{cudaSuccess};
  CUcontext bound{nullptr};  // seen to be right for the thread in this epoch
  std::uint64_t epoch{0};
  std::unordered_map<const void*, CUfunction> kernels;  // by stub, of `bound`, in this epoch
  std::vector<Configuration> configurations;            // pushed and not yet popped
};
[[nodiscard]] ThreadState& thread();
/// The device of this thread.
[[nodiscard]] int device_of_thread();

/// An image of the program, loaded in a context when that first needs it.
struct Image {
  struct Loaded {
    CUmodule module{nullptr};
    CUresult status{CUDA_SUCCESS};
  };
  struct Managed {
    void** host{nullptr};  // the program's pointer
    std::string name;
  };
  const void* wrapper{nullptr};
  std::map<CUcontext, Loaded> modules;
  std::vector<Managed> managed;
};
struct Symbol {
  Image* image{nullptr};
  std::string name;
};

/// Registered by static constructors of the program, in any order, so made on first use and never
/// destroyed. Guarded by its mutex, but for `epoch`.
struct State {
  std::mutex mutex;
  std::map<void**, std::unique_ptr<Image>> images;
  std::unordered_map<const void*, Symbol> kernels;    // by the host's stub
  std::unordered_map<const void*, Symbol> variables;  // by the host's shadow
  std::map<int, CUcontext> primary;                   // retained, by device
  std::atomic<int> first_device{0};                   // of threads that have not chosen
  /// Changes when the threads' memory of handles may be wrong.
  std::atomic<std::uint64_t> epoch{1};
};
[[nodiscard]] State& state();

/// Remembers an error for cudaGetLastError; numbers of driver and runtime agree.
cudaError_t noted(cudaError_t error);
inline cudaError_t noted(CUresult status) {
  return noted(static_cast<cudaError_t>(status));
}

/// A value of the runtime's type as the driver's of the same meaning: addresses as numbers, other
/// enumerations and structures of equal layout.
template <class From>
struct As {
  From value;
  template <class To>
  operator To() const {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_enum_v<From>) {
      static_assert(std::is_enum_v<To> && sizeof(From) == sizeof(To));
      return static_cast<To>(value);
    } else if constexpr (std::is_same_v<From, const void*> && std::is_pointer_v<To>) {
      static_assert(std::is_const_v<std::remove_pointer_t<To>>);
      return static_cast<To>(value);
    } else {
      static_assert(std::is_pointer_v<From> && sizeof(From) == sizeof(To));
      return reinterpret_cast<To>(value);
    }
  }
};
template <class From>
[[nodiscard]] As<From> as(From value) {
  return {value};
}
[[nodiscard]] inline unsigned char byte(int value) {
  return static_cast<unsigned char>(value);
}
[[nodiscard]] inline void* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

#define KANSOKU_CUDART_TRY(expression)                                                        \
  do {                                                                                        \
    if (const cudaError_t error_ = (expression); error_ != cudaSuccess) return noted(error_); \
  } while (false)

}  // namespace kansoku::cudart
