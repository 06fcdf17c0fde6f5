// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace kansoku::cuda {
namespace {

Code code_of(CUresult code) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
      return Code::kLimit;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_INVALID_DEVICE:
      return Code::kUnavailable;
    case CUDA_ERROR_NOT_FOUND:
      return Code::kNotFound;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return Code::kUnsupported;
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return Code::kTimeout;
    case CUDA_ERROR_NOT_PERMITTED:
      return Code::kPermission;
    default:
      return Code::kCorrupt;
  }
}

}  // namespace

Error driver_error(std::string_view operation, CUresult code) {
  const char* const name = error_name(code);
  const char* const text = error_text(code);
  return Error{code_of(code),
               fmt::format("{}: {} ({}){}{}", operation, name == nullptr ? "unknown error" : name,
                           static_cast<int>(code), text == nullptr ? "" : ": ",
                           text == nullptr ? "" : text)};
}

Result<Driver> load_driver(const std::string& path) {
  Driver driver;
  driver.path = path;
  driver.library =
      std::shared_ptr<void>(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* library) {
        if (library != nullptr) dlclose(library);
      });
  if (driver.library == nullptr) {
    return Error{Code::kUnavailable, fmt::format("load CUDA driver {}: {}", path, dlerror()),
                 "without a GPU, use the software GPU: kansoku run --softgpu -- CMD"};
  }
  std::string missing;
#define KANSOKU_DRIVER_FUNCTION(member, symbol, is_optional, types)                         \
  driver.member = reinterpret_cast<CUresult(*) types>(dlsym(driver.library.get(), symbol)); \
  if (driver.member == nullptr && !(is_optional) && missing.empty()) missing = symbol;
#include "cuda/interface/functions.inc"
#undef KANSOKU_DRIVER_FUNCTION
  if (!missing.empty())
    return Error{Code::kUnavailable,
                 fmt::format("load CUDA driver {}: it lacks {}", path, missing)};
  return driver;
}

}  // namespace kansoku::cuda
