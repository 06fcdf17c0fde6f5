// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstring>
#include <fstream>

namespace gpu_check {

namespace {

__global__ void nothing() {}

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// The file that this process has loaded under a name that begins with `library`.
std::string loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.rfind('/');
    if (slash != std::string::npos && line.compare(slash + 1, library.size(), library) == 0)
      return line.substr(line.find('/'));
  }
  return "not loaded";
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__CUDACC_VER_MAJOR__)
  return "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
         std::to_string(__CUDACC_VER_MINOR__) + "." + std::to_string(__CUDACC_VER_BUILD__) +
         ", host g++ " __VERSION__;
#else
  return "unknown";
#endif
}

std::string architectures() {
#ifdef __CUDA_ARCH_LIST__
  std::string text;
  const int list[] = {__CUDA_ARCH_LIST__};
  for (const int arch : list)
    text += (text.empty() ? "sm_" : " sm_") + std::to_string(arch / 10);
  return text;
#else
  return "unknown";
#endif
}

}  // namespace

Facts collect_facts() {
  Facts facts;
#if defined(__clang__)
  const bool is_nvcc = false;
#else
  const bool is_nvcc = true;
#endif
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  cudaDeviceProp properties;
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, 0);
  if (status != cudaSuccess) {
    facts.error = cudaGetErrorString(status);
    return facts;
  }
  facts.is_software = std::strncmp(properties.name, "Kansoku software device", 23) == 0;
  if (is_nvcc && facts.is_software) {
    facts.error = "this build is nvcc's, which runs on NVIDIA's GPUs alone, and the device is " +
                  std::string(properties.name);
    return facts;
  }
  nothing<<<1, 1>>>();
  status = cudaGetLastError();
  if (status == cudaSuccess) status = cudaDeviceSynchronize();
  if (status != cudaSuccess) {
    facts.error = std::string("an empty kernel: ") + cudaGetErrorString(status);
    return facts;
  }
  int driver = 0, runtime = 0, cublas = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cublasHandle_t handle = nullptr;
  if (cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS) {
    cublasGetVersion(handle, &cublas);
    cublasDestroy(handle);
  }
  facts.values = {
      {"device", properties.name},
      {"compute_capability",
       std::to_string(properties.major) + "." + std::to_string(properties.minor)},
      {"multiprocessors", std::to_string(properties.multiProcessorCount)},
      {"build", is_nvcc ? "nvcc" : "softgpu-clang"},
      {"compiler", compiler()},
      {"architectures", architectures()},
      {"headers_version", version(CUDART_VERSION)},
      {"driver_version", version(driver)},
      {"runtime_version", version(runtime)},
      {"cublas_version", std::to_string(cublas)},
      {"libcuda", loaded("libcuda.so")},
      {"libcudart", loaded("libcudart.so")},
      {"libcublas", loaded("libcublas.so")},
  };
  return facts;
}

std::string context_error() {
  const cudaError_t status = cudaDeviceSynchronize();
  (void)cudaGetLastError();
  return status == cudaSuccess ? "" : cudaGetErrorName(status);
}

}  // namespace gpu_check
