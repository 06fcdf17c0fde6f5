// SPDX-License-Identifier: Apache-2.0
#pragma once

// Before cuda/abi.h in every file, as it declares some of the driver's structures, too.
#include <cublas_v2.h>

#include <string_view>

#include "cuda/abi.h"

namespace kansoku::softcuda::cublas {

/// The driver's functions that this library uses, found by name as every program does.
struct Driver {
  cuda::CUresult (*init)(unsigned flags);
  cuda::CUresult (*device_get)(cuda::CUdevice* device, int ordinal);
  cuda::CUresult (*primary_retain)(cuda::CUcontext* context, cuda::CUdevice device);
  cuda::CUresult (*primary_release)(cuda::CUdevice device);
  cuda::CUresult (*context_current)(cuda::CUcontext* context);
  cuda::CUresult (*context_push)(cuda::CUcontext context);
  cuda::CUresult (*context_pop)(cuda::CUcontext* context);
  cuda::CUresult (*context_id)(cuda::CUcontext context, unsigned long long* id);
  cuda::CUresult (*module_load)(cuda::CUmodule* module, const void* image);
  cuda::CUresult (*module_function)(cuda::CUfunction* function, cuda::CUmodule module,
                                    const char* name);
  cuda::CUresult (*launch)(cuda::CUfunction function, unsigned grid_x, unsigned grid_y,
                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, cuda::CUstream stream, void** params,
                           void** extra);
};

/// Null if there is no libcuda.so.1 or if it lacks one of them; logged. Looked up once. Any thread.
[[nodiscard]] const Driver* driver();

/// A line of the software device's log, but each text only once in the life of the process.
void log_once(std::string_view text);

}  // namespace kansoku::softcuda::cublas
