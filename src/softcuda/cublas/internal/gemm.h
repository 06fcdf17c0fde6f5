// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublas_v2.h>

#include "softcuda/cublas/internal/handle.h"
#include "softcuda/cublas/kernels/arguments.h"

namespace kansoku::softcuda::cublas {

/// A call of any of the products, as the program made it.
struct GemmCall {
  cublasOperation_t transa, transb;
  int m, n, k;
  const void* alpha;
  const void* a;
  int lda;
  const void* b;
  int ldb;
  const void* beta;
  void* c;
  int ldc;
  // With `is_array` a, b and c are arrays of pointers; else matrices lie strides apart.
  bool is_array{false};
  long long stride_a{0}, stride_b{0}, stride_c{0};
  int batch_count{1};
};

struct GemmTypes {
  Text text;
  bool is_other_output;
  Scale scale;
};
inline constexpr GemmTypes kSingle{Text::kF32, false, Scale::kF32};
inline constexpr GemmTypes kDouble{Text::kF64, false, Scale::kF64};
inline constexpr GemmTypes kHalf{Text::kF16, false, Scale::kF16};

/// Checks the call and launches its kernels.
[[nodiscard]] cublasStatus_t multiply(cublasHandle_t handle, const GemmCall& call,
                                      const GemmTypes& types);

/// Calls part(begin, count) for parts of a batch, none larger than a grid, until one fails.
template <class Part>
cublasStatus_t for_parts_of(int batch_count, const Part& part) {
  constexpr int kPartMax = 65535;  // blocks along y
  for (int begin = 0; begin < batch_count; begin += kPartMax) {
    const int rest = batch_count - begin;
    const cublasStatus_t status = part(begin, rest < kPartMax ? rest : kPartMax);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace kansoku::softcuda::cublas
