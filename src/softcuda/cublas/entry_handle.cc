// SPDX-License-Identifier: Apache-2.0
// Handles, their settings, and the library's version.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <memory>

#include "softcuda/cublas/internal/driver.h"
#include "softcuda/cublas/internal/handle.h"
#include "softcuda/cublas/internal/version.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr std::uintptr_t kWorkspaceAlignment = 256;
constexpr int kMathFlags = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;

struct StatusText {
  cublasStatus_t status;
  const char* name;
  const char* text;
};
constexpr StatusText kStatusTexts[] = {
#define KANSOKU_ROW(name, text) \
  { name, #name, text }
    KANSOKU_ROW(CUBLAS_STATUS_SUCCESS, "success"),
    KANSOKU_ROW(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    KANSOKU_ROW(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
    KANSOKU_ROW(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed"),
    KANSOKU_ROW(CUBLAS_STATUS_ARCH_MISMATCH, "the device lacks a feature that is needed"),
    KANSOKU_ROW(CUBLAS_STATUS_MAPPING_ERROR, "an access to device memory failed"),
    KANSOKU_ROW(CUBLAS_STATUS_EXECUTION_FAILED, "the kernel could not be launched"),
    KANSOKU_ROW(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
    KANSOKU_ROW(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality requested is not supported"),
    KANSOKU_ROW(CUBLAS_STATUS_LICENSE_ERROR, "a license is missing"),
#undef KANSOKU_ROW
};

/// The context of the caller, or else the first device's primary one.
cublasStatus_t find_context(cublasContext& handle) {
  const Driver& driver = *handle.driver;
  if (driver.init(0) != cuda::CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (driver.context_current(&handle.context) != cuda::CUDA_SUCCESS)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle.context != nullptr) return CUBLAS_STATUS_SUCCESS;
  cuda::CUdevice device = 0;
  if (driver.device_get(&device, 0) != cuda::CUDA_SUCCESS ||
      driver.primary_retain(&handle.context, device) != cuda::CUDA_SUCCESS)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  handle.retained = device;
  return CUBLAS_STATUS_SUCCESS;
}

bool is_math_mode(cublasMath_t mode) {
  switch (static_cast<int>(mode) & ~kMathFlags) {
    case CUBLAS_DEFAULT_MATH:
    case CUBLAS_TENSOR_OP_MATH:
    case CUBLAS_PEDANTIC_MATH:
    case CUBLAS_TF32_TENSOR_OP_MATH:
      return true;
    default:
      return false;
  }
}

/// A setting of a handle, read or written.
template <class T>
cublasStatus_t read_setting(cublasHandle_t handle, T cublasContext::*member, T* value) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *value = handle->*member;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t write_setting(cublasHandle_t handle, T cublasContext::*member, T value,
                             bool is_allowed) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!is_allowed) return CUBLAS_STATUS_INVALID_VALUE;
  handle->*member = value;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace kansoku::softcuda::cublas

using namespace kansoku::softcuda::cublas;  // NOLINT(google-build-using-namespace)

// NOLINTBEGIN(readability-identifier-naming): names of the interface.
#pragma GCC visibility push(default)
extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = nullptr;
  const Driver* const functions = driver();
  if (functions == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  auto made = std::make_unique<cublasContext>();
  made->driver = functions;
  const cublasStatus_t status = find_context(*made);
  if (status == CUBLAS_STATUS_SUCCESS) *handle = made.release();
  return status;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const std::unique_ptr<cublasContext> last(handle);
  last->magic = 0;  // a second call finds it, as long as the memory has no other use
  if (last->retained >= 0) last->driver->primary_release(last->retained);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *version = kVersion.major * 10000 + kVersion.minor * 100 + kVersion.patch;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  if (value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (type) {
    case MAJOR_VERSION:
      *value = kVersion.major;
      return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = kVersion.minor;
      return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = kVersion.patch;
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  for (const StatusText& row : kStatusTexts) {
    if (row.status == status) return row.name;
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasGetStatusString(cublasStatus_t status) {
  for (const StatusText& row : kStatusTexts) {
    if (row.status == status) return row.text;
  }
  return "unknown status";
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return write_setting(handle, &cublasContext::stream,
                       reinterpret_cast<kansoku::cuda::CUstream>(stream), true);
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  return read_setting(handle, &cublasContext::stream,
                      reinterpret_cast<kansoku::cuda::CUstream*>(stream));
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment == 0;
  return is_aligned ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return write_setting(handle, &cublasContext::pointer_mode, mode,
                       mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE);
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return read_setting(handle, &cublasContext::pointer_mode, mode);
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return write_setting(handle, &cublasContext::atomics_mode, mode,
                       mode == CUBLAS_ATOMICS_NOT_ALLOWED || mode == CUBLAS_ATOMICS_ALLOWED);
}
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  return read_setting(handle, &cublasContext::atomics_mode, mode);
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return write_setting(handle, &cublasContext::math_mode, mode, is_math_mode(mode));
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return read_setting(handle, &cublasContext::math_mode, mode);
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
