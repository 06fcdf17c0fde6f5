// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>

namespace {
__global__ void add(int* value) {
  *value += 40;
}
}  // namespace

/// 42 by a kernel; less if the driver or cuBLAS is missing.
int sum() {
  int result = 0, devices = 0, *value = nullptr;
  cublasHandle_t handle = nullptr;
  if (cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&devices) == CUDA_SUCCESS) result += devices;
  if (cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS) result += 1;
  cublasDestroy(handle);
  cudaMalloc(&value, sizeof *value);
  cudaMemcpy(value, &result, sizeof result, cudaMemcpyHostToDevice);
  add<<<1, 1>>>(value);
  cudaMemcpy(&result, value, sizeof result, cudaMemcpyDeviceToHost);
  cudaFree(value);
  return result;
}
