// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublas_v2.h>

#include <cstdint>

#include "softcuda/cublas/internal/driver.h"
#include "softcuda/cublas/internal/kernels.h"

/// State behind a handle. Like cuBLAS's own it is used by one thread at a time.
struct cublasContext {
  static constexpr std::uint64_t kMagic = 0x6b616e636275626c;
  std::uint64_t magic{kMagic};  // 0 once it is destroyed
  const kansoku::softcuda::cublas::Driver* driver{nullptr};
  kansoku::cuda::CUcontext context{nullptr};
  kansoku::cuda::CUdevice retained{-1};  // the device whose primary context the handle keeps
  kansoku::cuda::CUstream stream{nullptr};
  cublasPointerMode_t pointer_mode{CUBLAS_POINTER_MODE_HOST};
  cublasMath_t math_mode{CUBLAS_DEFAULT_MATH};
  cublasAtomicsMode_t atomics_mode{CUBLAS_ATOMICS_NOT_ALLOWED};
};

namespace kansoku::softcuda::cublas {

[[nodiscard]] inline bool is_valid(const cublasContext* handle) {
  return handle != nullptr && handle->magic == cublasContext::kMagic;
}

struct Grid {
  unsigned x{1}, y{1};  // blocks; each is one warp
};
/// Puts a launch on the handle's stream, in the handle's context. `arguments`: the kernel's only
/// parameter.
[[nodiscard]] cublasStatus_t launch(cublasHandle_t handle, Kernel kernel, Grid grid,
                                    void* arguments);

}  // namespace kansoku::softcuda::cublas
