// SPDX-License-Identifier: Apache-2.0
#pragma once

// Common part of checks with kernels: errors of the runtime, arrays of the device, kernels that
// hold one PTX instruction beside the host's expectation of it.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"

namespace gpu_check {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

inline const char* runtime_error_name(int error) {
  return cudaGetErrorName(static_cast<cudaError_t>(error));
}

// The call succeeds, or the check ends.
#define NEED(call)                                                                              \
  do {                                                                                          \
    const cudaError_t status_ = (call);                                                         \
    c.need(std::string(#call) + " gives " + cudaGetErrorName(status_), status_ == cudaSuccess); \
  } while (false)
// The call returns `wanted`. The error is taken back from the thread.
#define EXPECT_ERROR(wanted, call)                                   \
  do {                                                               \
    c.error(#call, (call), (wanted), gpu_check::runtime_error_name); \
    (void)cudaGetLastError();                                        \
  } while (false)

/// An array of the device; at least one element, so that its address is never null.
template <class T>
class Array {
 public:
  Array(Check& c, std::size_t count) : c_(c), count_(count) {
    NEED(cudaMalloc(reinterpret_cast<void**>(&data_), (count + 1) * sizeof(T)));
    NEED(cudaMemset(data_, 0, (count + 1) * sizeof(T)));
    // Filled before streams that do not wait for this one may use it.
    NEED(cudaStreamSynchronize(cudaStreamLegacy));
  }
  Array(Check& c, const std::vector<T>& values) : Array(c, values.size()) { set(values); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  operator T*() const { return data_; }
  void set(const std::vector<T>& values) {
    Check& c = c_;
    NEED(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  /// After all work before.
  std::vector<T> host() const {
    Check& c = c_;
    NEED(cudaGetLastError());
    NEED(cudaDeviceSynchronize());
    std::vector<T> values(count_);
    NEED(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  T first() const { return host().at(0); }

 private:
  Check& c_;
  T* data_{nullptr};
  std::size_t count_;
};

inline int attribute(cudaDeviceAttr which) {
  int value = 0;
  cudaDeviceGetAttribute(&value, which, 0);
  return value;
}
template <class To, class... From>
std::vector<To> run_on(void (*kernel)(int, To*, const From*...), int count, const Array<To>& out,
                       const Array<From>&... in) {
  kernel<<<(count + 127) / 128, 128>>>(count, out, static_cast<const From*>(in)...);
  return out.host();
}
/// out[i] = kernel(in[i]...), one thread an element.
template <class To, class... From>
std::vector<To> map(Check& c, void (*kernel)(int, To*, const From*...),
                    const std::vector<From>&... in) {
  const std::size_t sizes[] = {in.size()...};
  return run_on(kernel, static_cast<int>(sizes[0]), Array<To>(c, sizes[0]), Array<From>(c, in)...);
}

// One instruction a kernel, `id`, of registers of type T and constraint r ("r", "l", "f", "d",
// "h"); id_want(a, ...) is what the host expects.
#define PTX_FORM_1(id, To, ro, T, r, ptx, ...)                \
  __global__ void id(int n, To* out, const T* a) {            \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x); \
    if (i >= n) return;                                       \
    To d;                                                     \
    asm volatile(ptx : "=" ro(d) : r(a[i]));                  \
    out[i] = d;                                               \
  }                                                           \
  To id##_want(T a) {                                         \
    return __VA_ARGS__;                                       \
  }
#define PTX_FORM_2(id, To, ro, T, r, ptx, ...)                 \
  __global__ void id(int n, To* out, const T* a, const T* b) { \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);  \
    if (i >= n) return;                                        \
    To d;                                                      \
    asm volatile(ptx : "=" ro(d) : r(a[i]), r(b[i]));          \
    out[i] = d;                                                \
  }                                                            \
  To id##_want(T a, T b) {                                     \
    return __VA_ARGS__;                                        \
  }
#define PTX_FORM_3(id, To, ro, T, r, ptx, ...)                              \
  __global__ void id(int n, To* out, const T* a, const T* b, const T* d0) { \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);               \
    if (i >= n) return;                                                     \
    To d;                                                                   \
    asm volatile(ptx : "=" ro(d) : r(a[i]), r(b[i]), r(d0[i]));             \
    out[i] = d;                                                             \
  }                                                                         \
  To id##_want(T a, T b, T d) {                                             \
    return __VA_ARGS__;                                                     \
  }

template <class T>
T one_nan(T value) {
  return value;
}
template <>
inline float one_nan(float value) {
  return std::isnan(value) ? std::nanf("") : value;
}
template <>
inline double one_nan(double value) {
  return std::isnan(value) ? std::nan("") : value;
}
/// Runs `kernel` on the inputs, and compares with `want` bit by bit; all NaNs are one.
template <class To, class... From>
void compare(Check& c, const char* form, void (*kernel)(int, To*, const From*...),
             To (*want)(From...), const std::vector<From>&... in) {
  std::vector<To> got = map(c, kernel, in...), wanted(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    got[i] = one_nan(got[i]);
    wanted[i] = one_nan(want(in[i]...));
  }
  c.all_equal(form, got, wanted);
}
#define COMPARE(id, ...) compare(c, #id, id, id##_want, __VA_ARGS__)

/// Edges and random numbers: every pair of edges, then random ones; column k of `columns`.
template <class T>
std::vector<std::vector<T>> inputs(int columns, const std::vector<T>& edges,
                                   T (*draw)(Random& random), std::size_t random_count) {
  std::vector<std::vector<T>> all(static_cast<std::size_t>(columns));
  Random random(42);
  for (std::size_t i = 0; i < edges.size(); ++i)
    for (std::size_t j = 0; j < edges.size(); ++j) {
      all[0].push_back(edges[i]);
      if (columns > 1) all[1].push_back(edges[j]);
      if (columns > 2) all[2].push_back(edges[(i + 3 * j + 1) % edges.size()]);
    }
  for (std::size_t i = 0; i < random_count; ++i)
    for (std::vector<T>& column : all)
      column.push_back(draw(random));
  return all;
}

inline float float_of(u32 bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline u32 bits_of(float value) {
  u32 bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline double double_of(u64 bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<std::vector<u32>> words(int columns);
std::vector<std::vector<u64>> long_words(int columns);
std::vector<std::vector<float>> floats(int columns);
std::vector<std::vector<double>> doubles(int columns);

}  // namespace gpu_check
