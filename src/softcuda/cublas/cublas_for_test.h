// SPDX-License-Identifier: Apache-2.0
#pragma once

// libcublas and the software device's driver as a program has them: opened, functions found by
// name.

#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/abi.h"

#define EXPECT_CUBLAS(expected, call) EXPECT_EQ(static_cast<int>(call), static_cast<int>(expected))

namespace kansoku::softcuda::cublas {

/// Symbol of libcublas.so.12; the test program ends if there is none.
[[nodiscard]] void* cublas_symbol(const char* name);
[[nodiscard]] void* driver_symbol(const char* name);

/// By that name in tests, with the type that the header gives it.
#define KANSOKU_CUBLAS(name) \
  (reinterpret_cast<decltype(&::name)>(::kansoku::softcuda::cublas::cublas_symbol(#name)))
template <class... Args>
int drive(const char* name, Args... args) {
  return reinterpret_cast<int (*)(Args...)>(driver_symbol(name))(args...);
}

/// Numbers of a type as the device has them.
[[nodiscard]] std::size_t bytes_of(cudaDataType type);
/// `value` rounded to the type.
void encode(cudaDataType type, double value, std::byte* to);
[[nodiscard]] double decode(cudaDataType type, const std::byte* from);

/// Kernels that the device ran in this process so far; waits for those that are on their way.
[[nodiscard]] std::uint64_t launches();

/// A handle on device 0, whose primary context is current. Memory ends with the test.
class CublasTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  void* allocate(std::size_t bytes);
  /// In device memory.
  void* stored(const std::vector<std::byte>& bytes);
  template <class T>
  T* stored(const std::vector<T>& values) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    return static_cast<T*>(
        stored(std::vector<std::byte>(bytes, bytes + values.size() * sizeof(T))));
  }
  std::vector<std::byte> read(const void* from, std::size_t bytes);
  template <class T>
  std::vector<T> read_values(const T* from, std::size_t count) {
    const auto bytes = read(from, count * sizeof(T));
    std::vector<T> values(count);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  cublasHandle_t handle_{nullptr};

 private:
  std::vector<std::uint64_t> memory_;
};

/// A piece of a test that runs in a process of its own, before which nothing happened to the
/// libraries; it returns the exit code. Register at namespace level.
struct Child {
  Child(const char* name, int (*body)());
};
/// Runs a registered child with environment variables "NAME=value" on top; its exit code.
[[nodiscard]] int run_child(const std::string& name, const std::vector<std::string>& environment);

}  // namespace kansoku::softcuda::cublas
