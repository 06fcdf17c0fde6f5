// SPDX-License-Identifier: Apache-2.0
#pragma once

// Common part of the samples: errors end the program, and results are told in one line.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                      \
  do {                                                                   \
    const cudaError_t status_ = (call);                                  \
    if (status_ != cudaSuccess) {                                        \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(status_));                         \
      std::exit(2);                                                      \
    }                                                                    \
  } while (false)

// A copy of `host` in the memory of the device; cudaFree gives it back.
template <class T>
T* upload(const std::vector<T>& host) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}
// Contents of device memory, after all work before.
template <class T>
std::vector<T> download(const T* device, size_t count) {
  std::vector<T> host(count);
  CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

// Numbers from 0 to 1 that look random, the same in each run.
inline std::vector<float> numbers(size_t count, unsigned seed = 1) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(seed >> 8) / 16777216.0F;
  }
  return values;
}

// The line of the sample, and what main returns.
inline int finish(const char* name, bool is_right) {
  std::printf("%s: %s\n", name, is_right ? "PASSED" : "FAILED");
  return is_right ? 0 : 1;
}
// Tells the first value that is not the expected one.
template <class T>
bool equal(const std::vector<T>& got, const std::vector<T>& expected, double tolerance = 0) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    if (difference <= tolerance && difference >= -tolerance) continue;
    std::printf("  element %zu is %g, not %g\n", i, static_cast<double>(got[i]),
                static_cast<double>(expected[i]));
    return false;
  }
  return true;
}
