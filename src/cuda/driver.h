// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "cuda/abi.h"

namespace kansoku::cuda {

/// The functions of a CUDA driver, loaded at run time: NVIDIA's, or the software device's. Members
/// and their types come from interface/api.txt. Any thread; the library stays loaded for as long as
/// the object lives.
struct Driver {
#define KANSOKU_DRIVER_FUNCTION(member, symbol, is_optional, types) \
  CUresult(*member) types{nullptr};
#include "cuda/interface/functions.inc"
#undef KANSOKU_DRIVER_FUNCTION
  std::string path;               // of the library
  std::shared_ptr<void> library;  // closes it
};

/// dlopen of `path` ("libcuda.so.1": as the loader finds it) and all functions above; kUnavailable
/// if there is no such library or it lacks one that is not optional, naming it. Calls no function
/// of it.
[[nodiscard]] Result<Driver> load_driver(const std::string& path = "libcuda.so.1");

/// "launch kernel: CUDA_ERROR_INVALID_VALUE (1): invalid argument".
[[nodiscard]] Error driver_error(std::string_view operation, CUresult code);

}  // namespace kansoku::cuda
