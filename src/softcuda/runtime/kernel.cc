// SPDX-License-Identifier: Apache-2.0
// Launches, and what is known of a kernel.
#include <cstring>

#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

/// The runtime has a word of its own for a shape that no device, or not this kernel, can have.
cudaError_t explain(CUresult status, CUfunction kernel, dim3 grid, dim3 block) {
  if (status != CUDA_ERROR_INVALID_VALUE) return static_cast<cudaError_t>(status);
  int threads_max = 0;
  driver().cuFuncGetAttribute(&threads_max, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel);
  constexpr unsigned kBlockZMax = 64, kGridXMax = 0x7fffffff, kGridMax = 65535, kBlockMax = 1024;
  const auto is_within = [](unsigned extent, unsigned most) {
    return extent != 0 && extent <= most;
  };
  const bool is_shape =
      is_within(grid.x, kGridXMax) && is_within(grid.y, kGridMax) && is_within(grid.z, kGridMax) &&
      is_within(block.x, kBlockMax) && is_within(block.y, kBlockMax) &&
      is_within(block.z, kBlockZMax) &&
      std::uint64_t{block.x} * block.y * block.z <= static_cast<std::uint64_t>(threads_max);
  return is_shape ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}

struct Shape {
  dim3 grid, block;
  std::size_t shared_bytes{0};
  cudaStream_t stream{nullptr};
};

cudaError_t launch(const void* stub, const Shape& shape, void** args, bool is_cooperative) {
  CUfunction kernel = nullptr;
  KANSOKU_CUDART_TRY(enter_kernel(stub, kernel));
  const auto& [grid, block, shared_bytes, stream] = shape;
  if (shared_bytes > UINT32_MAX) return noted(cudaErrorInvalidValue);
  const auto shared = static_cast<unsigned>(shared_bytes);
  const CUresult status =
      is_cooperative ? driver().cuLaunchCooperativeKernel(kernel, grid.x, grid.y, grid.z, block.x,
                                                          block.y, block.z, shared, stream, args)
                     : driver().cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y,
                                               block.z, shared, stream, args, nullptr);
  return status == CUDA_SUCCESS ? cudaSuccess : noted(explain(status, kernel, grid, block));
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): names of the interface.
extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     CUstream_st* stream) {
  thread().configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  auto& configurations = thread().configurations;
  if (configurations.empty()) return noted(cudaErrorMissingConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return cudaSuccess;
}
/// A kernel's handle is its stub: the device is only known at the launch.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  if (kernel == nullptr) return noted(cudaErrorInvalidValue);
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, {grid, block, shared_bytes, stream}, args, false);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return launch(function, {grid, block, shared_bytes, stream}, args, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  return launch(function, {grid, block, shared_bytes, stream}, args, true);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** args) {
  CUfunction kernel = nullptr;
  KANSOKU_CUDART_TRY(enter_kernel(function, kernel));
  if (config == nullptr || config->dynamicSmemBytes > UINT32_MAX)
    return noted(cudaErrorInvalidValue);
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute) &&
                offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value));
  const auto& [grid, block, shared_bytes, stream, attrs, count] = *config;
  const CUlaunchConfig its{grid.x,
                           grid.y,
                           grid.z,
                           block.x,
                           block.y,
                           block.z,
                           static_cast<unsigned>(shared_bytes),
                           stream,
                           reinterpret_cast<CUlaunchAttribute*>(attrs),
                           count};
  const CUresult status = driver().cuLaunchKernelEx(&its, kernel, args, nullptr);
  return status == CUDA_SUCCESS ? cudaSuccess : noted(explain(status, kernel, grid, block));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  CUfunction kernel = nullptr;
  KANSOKU_CUDART_TRY(enter_kernel(function, kernel));
  if (attributes == nullptr) return noted(cudaErrorInvalidValue);
  const auto get = [&](CUfunction_attribute which) {
    int value = 0;
    driver().cuFuncGetAttribute(&value, which, kernel);
    return value;
  };
  const auto size = [&](CUfunction_attribute which) {
    return static_cast<std::size_t>(get(which));
  };
  *attributes = {};
  attributes->sharedSizeBytes = size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  attributes->constSizeBytes = size(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  attributes->localSizeBytes = size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  attributes->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attributes->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  attributes->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  attributes->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  attributes->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
  attributes->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  attributes->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* stub) {
  CUfunction kernel = nullptr;
  KANSOKU_CUDART_TRY(enter_kernel(stub, kernel));
  if (function == nullptr) return noted(cudaErrorInvalidValue);
  *function = kernel;
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
