// SPDX-License-Identifier: Apache-2.0
// Errors: the last of a thread, names, texts.
#include <algorithm>

#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

struct Row {
  cudaError_t code;
  const char* name;
  const char* text;
};

/// Errors that the runtime tells in its own words, or alone.
struct Own {
  cudaError_t code;
  const char* text;
};
constexpr Own kOwn[] = {
    {cudaErrorProfilerDisabled, "profiler disabled while using external profiling tool"},
    {cudaErrorInvalidConfiguration, "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "invalid device symbol"},
    {cudaErrorInvalidHostPointer, "invalid host pointer"},
    {cudaErrorInvalidDevicePointer, "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorMissingConfiguration, "__global__ function call is not configured"},
    {cudaErrorInvalidDeviceFunction, "invalid device function"},
    {cudaErrorSharedObjectInitFailed, "shared object initialization failed"},
    {cudaErrorSystemNotReady, "system not yet initialized"},
};

const Row* find(cudaError_t code) {
  static constexpr Row kRows[] = {
#define KANSOKU_ERROR(code, text) {code, #code, text},
#include "softcuda/runtime/errors.inc"
#undef KANSOKU_ERROR
  };
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows),
                                         [&](const Row& row) { return row.code == code; });
  return found == std::end(kRows) ? nullptr : found;
}

constexpr char kUnknown[] = "unrecognized error code";

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t last = thread().last;
  thread().last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() {
  return thread().last;
}
const char* cudaGetErrorName(cudaError_t error) {
  const Row* const row = find(error);
  return row == nullptr ? kUnknown : row->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const Own& own : kOwn) {
    if (own.code == error) return own.text;
  }
  const Row* const row = find(error);
  return row == nullptr ? kUnknown : row->text;
}

}  // extern "C"
