// SPDX-License-Identifier: Apache-2.0
#pragma once

// The runtime as a program sees it: linked, its kernels registered as compilers do. Two devices, of
// 64 MiB. The same tests are built for both versions.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

/// The functions whose effect, and an error of which, a test looks at: for tools/gen_cudart.py.
#define COVERS(...) static_assert(true)
#define REFUSES(...) static_assert(true)
#define EXPECT_CUDA(expected, call) EXPECT_STREQ(cudaGetErrorName(call), #expected)
#define OK(call) ASSERT_STREQ(cudaGetErrorName(call), "cudaSuccess")

namespace kansoku::cudart {

/// The host's stub of a kernel of kTestKernels; the test program's static registration has it.
[[nodiscard]] const void* stub(const std::string& kernel);
/// The host's shadow of the variables `counter` and `table`.
extern std::uint32_t g_counter;
extern std::uint32_t g_table[4];

/// A fatbin around a text, behind the wrapper that compilers make.
class Wrapped {
 public:
  explicit Wrapped(std::string text);
  Wrapped(const Wrapped&) = delete;
  Wrapped& operator=(const Wrapped&) = delete;
  void* get() { return &wrapper_; }

 private:
  std::string fatbin_;
  struct {
    std::uint32_t magic, version;
    const void* data;
    const void* link;
  } wrapper_{};
};

/// Ends all that the test made: both devices are reset.
class RuntimeTest : public ::testing::Test {
 protected:
  void TearDown() override;

  static std::uint32_t* allocate(std::size_t count = 1);
  static std::uint32_t* pinned(std::size_t count = 1);
  static std::vector<std::uint32_t> read(const void* from, std::size_t count);
  static std::uint32_t read(const void* from) { return read(from, 1)[0]; }
  static cudaStream_t make_stream();
  static cudaEvent_t make_event();
};

/// A handle or pointer that nobody gave.
template <class Handle>
[[nodiscard]] Handle garbage() {
  return reinterpret_cast<Handle>(std::uintptr_t{0x5a5a5a5a50});
}

/// A number as an enumeration that does not have it.
template <class Enumeration>
[[nodiscard]] Enumeration unknown(int number) {
  static_assert(sizeof(Enumeration) == sizeof number);
  Enumeration value{};
  std::memcpy(&value, &number, sizeof value);
  return value;
}

/// Arguments as launches want them; keeps them.
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

struct Size {
  unsigned blocks{1}, threads{1};
  std::size_t shared_bytes{0};
};
template <class... Args>
cudaError_t launch(const char* kernel, Size size, cudaStream_t stream, Args... args) {
  Params<Args...> params(args...);
  return cudaLaunchKernel(stub(kernel), dim3{size.blocks, 1, 1}, dim3{size.threads, 1, 1},
                          params.get(), size.shared_bytes, stream);
}

/// A piece of the test that runs in a process of its own, before which nothing happened: it returns
/// the exit code, within a minute. Register at namespace level.
struct Child {
  Child(const char* name, int (*body)());
};
[[nodiscard]] int run_child(const std::string& name);

}  // namespace kansoku::cudart
