// SPDX-License-Identifier: Apache-2.0
#pragma once

// The software device's driver as a program sees it: its library is opened, its entry points are
// found by name. The test program's main sets the devices up: two, of 64 MiB.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cuda/abi.h"
#include "softcuda/kernels_for_test.h"

/// The entry points whose effect a test looks at, for tools/gen_softcuda.py. At the beginning of
/// the test, which has to call each of them, itself or in a child.
#define COVERS(...) const ::kansoku::softcuda::Covered covered_here(#__VA_ARGS__)
#define EXPECT_CU(expected, call) EXPECT_EQ(static_cast<int>(call), static_cast<int>(expected))
#define OK(call) ASSERT_EQ(static_cast<int>(call), 0)

namespace kansoku::softcuda {

// NOLINTNEXTLINE(google-build-using-namespace): the tests speak the interface's language.
using namespace cuda;

/// Address of an exported symbol; the test program ends if there is none.
[[nodiscard]] void* driver_symbol(const char* name);
/// True if the tests go through another library that stands before the driver.
[[nodiscard]] bool is_another_before();
template <class F>
[[nodiscard]] F* entry(const char* name) {
  return reinterpret_cast<F*>(driver_symbol(name));
}

// By that name in these tests: a pointer to the library's function.
#define KANSOKU_ENTRY_POINT(result, name, parameters) \
  inline result(*const name) parameters = entry<result parameters>(#name);
#include "softcuda/entry_points.inc"
#undef KANSOKU_ENTRY_POINT

/// Names of the implemented functions.
inline constexpr const char* kImplemented[] = {
#define KANSOKU_ENTRY_POINT(result, name, parameters) #name,
#include "softcuda/entry_points.inc"
#undef KANSOKU_ENTRY_POINT
};

/// Calls of a function so far, by this process and children that ended by themselves.
[[nodiscard]] long calls_of(const std::string& name);

/// Names of functions; fails the test if one was not called until this ends.
class Covered {
 public:
  explicit Covered(const char* names);
  Covered(const Covered&) = delete;
  Covered& operator=(const Covered&) = delete;
  ~Covered();

 private:
  std::vector<std::pair<std::string, long>> before_;
};

/// Memory of device 0 and of the host in these tests.
inline constexpr std::size_t kDeviceBytes = std::size_t{64} << 20;

/// Two devices; the primary context of the first is current. Ends with all that the test made.
class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Kernel of kTestKernels in the current context, loaded when first asked for.
  CUfunction kernel(const char* name);
  CUdeviceptr allocate(std::size_t bytes);
  /// Pinned memory, zeroed.
  template <class T = std::uint32_t>
  volatile T* pinned(std::size_t count = 1) {
    void* memory = nullptr;
    EXPECT_CU(0, cuMemAllocHost_v2(&memory, count * sizeof(T)));
    return static_cast<volatile T*>(memory);
  }
  static CUdeviceptr address(const volatile void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }
  template <class T = std::uint32_t>
  static T read(CUdeviceptr from) {
    T value{};
    EXPECT_CU(0, cuMemcpyDtoH_v2(&value, from, sizeof value));
    return value;
  }
  template <class T = std::uint32_t>
  static std::vector<T> read(CUdeviceptr from, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_CU(0, cuMemcpyDtoH_v2(values.data(), from, count * sizeof(T)));
    return values;
  }

  CUcontext context_{nullptr};

 private:
  std::vector<std::pair<unsigned long long, CUmodule>> modules_;  // by context
};

/// Arguments as kernelParams wants them; keeps them.
template <class... Args>
class Params {
 public:
  explicit Params(Args... args) : values_(args...) {
    std::apply([this](auto&... value) { places_ = {static_cast<void*>(&value)...}; }, values_);
  }
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;
  void** get() { return places_.data(); }

 private:
  std::tuple<Args...> values_;
  std::vector<void*> places_;
};

/// A handle that nobody gave.
template <class Handle>
[[nodiscard]] Handle garbage() {
  return reinterpret_cast<Handle>(std::uintptr_t{0x5a5a5a5a50});
}

struct Size {
  unsigned blocks{1}, threads{1}, shared_bytes{0};
};
/// cuLaunchKernel with one dimension.
template <class... Args>
CUresult launch(CUfunction function, Size size, CUstream stream, Args... args) {
  Params<Args...> params(args...);
  return cuLaunchKernel(function, size.blocks, 1, 1, size.threads, 1, 1, size.shared_bytes, stream,
                        params.get(), nullptr);
}

/// A piece of the test that runs in a process of its own, before which nothing happened to the
/// driver: it returns the process's exit code. Register at namespace level.
struct Child {
  Child(const char* name, int (*body)());
};
struct ChildRun {
  int exit_code{-1};
  std::string output;  // of stdout
};
/// Runs a registered child with environment variables "NAME=value" on top; descriptors without
/// CLOEXEC are its, too.
[[nodiscard]] ChildRun run_child(const std::string& name,
                                 std::initializer_list<std::string> environment);

}  // namespace kansoku::softcuda
