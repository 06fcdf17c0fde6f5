// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/handle.h"

#include <fmt/format.h>

namespace kansoku::softcuda::cublas {
namespace {

constexpr unsigned kWarp = 32;

/// Makes a context current for as long as it lives.
class Entered {
 public:
  Entered(const Driver& driver, cuda::CUcontext context) : driver_(driver) {
    cuda::CUcontext current = nullptr;
    status_ = driver.context_current(&current);
    if (status_ != cuda::CUDA_SUCCESS || current == context) return;
    status_ = driver.context_push(context);
    is_pushed_ = status_ == cuda::CUDA_SUCCESS;
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() {
    cuda::CUcontext popped = nullptr;
    if (is_pushed_) driver_.context_pop(&popped);
  }
  [[nodiscard]] cuda::CUresult status() const { return status_; }

 private:
  const Driver& driver_;
  cuda::CUresult status_;
  bool is_pushed_{false};
};

}  // namespace

cublasStatus_t launch(cublasHandle_t handle, Kernel kernel, Grid grid, void* arguments) {
  const Driver& driver = *handle->driver;
  const Entered entered(driver, handle->context);
  cuda::CUfunction function = nullptr;
  cuda::CUresult status = entered.status();
  if (status == cuda::CUDA_SUCCESS) status = function_of(driver, kernel, function);
  if (status == cuda::CUDA_ERROR_OUT_OF_MEMORY) return CUBLAS_STATUS_ALLOC_FAILED;
  if (status == cuda::CUDA_SUCCESS) {
    void* params[] = {arguments};
    status =
        driver.launch(function, grid.x, grid.y, 1, kWarp, 1, 1, 0, handle->stream, params, nullptr);
  }
  if (status == cuda::CUDA_SUCCESS) return CUBLAS_STATUS_SUCCESS;
  log_once(fmt::format("{}: the driver's error {}", kernel.name, static_cast<int>(status)));
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace kansoku::softcuda::cublas
