// SPDX-License-Identifier: Apache-2.0
#pragma once

// Common part of the programs that check the headers of share/softgpu/toolkit: a count of failures,
// arrays of the device, random numbers.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../gpu_check/random.h"

inline int wrong = 0;

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("line %d: not so: %s\n", __LINE__, #condition); \
      ++wrong;                                                    \
    }                                                             \
  } while (false)

// Ends the program: nothing after it would be worth looking at.
#define MUST(call)                                                                    \
  do {                                                                                \
    const cudaError_t status_ = (call);                                               \
    if (status_ != cudaSuccess) {                                                     \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

// An array of the device; at least one element, so that its address is never null.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    MUST(cudaMalloc(&data_, (count + 1) * sizeof(T)));
    MUST(cudaMemset(data_, 0, (count + 1) * sizeof(T)));
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    MUST(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  operator T*() const { return data_; }
  std::vector<T> host() const {
    MUST(cudaDeviceSynchronize());
    std::vector<T> values(count_);
    MUST(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_{nullptr};
  std::size_t count_;
};

using gpu_check::Random;

inline int report(const char* theme) {
  std::printf(wrong == 0 ? "%s: as it should be\n" : "%s: not as it should be\n", theme);
  return wrong == 0 ? 0 : 1;
}
