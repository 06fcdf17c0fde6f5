// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "softcuda/cublas/internal/driver.h"
#include "softcuda/cublas/internal/gemm.h"

namespace kansoku::softcuda::cublas {
namespace {

struct TypeRow {
  cublasComputeType_t compute;
  cudaDataType ab, c;
  GemmTypes types;
};
constexpr GemmTypes kHalfToHalf{Text::kF16, false, Scale::kF32};
constexpr GemmTypes kHalfToSingle{Text::kF16, true, Scale::kF32};
constexpr GemmTypes kBFloatToBFloat{Text::kBF16, false, Scale::kF32};
constexpr GemmTypes kBFloatToSingle{Text::kBF16, true, Scale::kF32};
constexpr GemmTypes kByteToSingle{Text::kS8, true, Scale::kF32};
constexpr GemmTypes kByteToInteger{Text::kS8, false, Scale::kS32};
#define KANSOKU_32F_ROWS(compute)                                                             \
  {compute, CUDA_R_32F, CUDA_R_32F, kSingle}, {compute, CUDA_R_16F, CUDA_R_16F, kHalfToHalf}, \
      {compute, CUDA_R_16F, CUDA_R_32F, kHalfToSingle},                                       \
      {compute, CUDA_R_16BF, CUDA_R_16BF, kBFloatToBFloat},                                   \
      {compute, CUDA_R_16BF, CUDA_R_32F, kBFloatToSingle}, {                                  \
    compute, CUDA_R_8I, CUDA_R_32F, kByteToSingle                                             \
  }
constexpr TypeRow kTypeRows[] = {
    KANSOKU_32F_ROWS(CUBLAS_COMPUTE_32F),
    KANSOKU_32F_ROWS(CUBLAS_COMPUTE_32F_PEDANTIC),
    {CUBLAS_COMPUTE_32F_FAST_16F, CUDA_R_32F, CUDA_R_32F, kSingle},
    {CUBLAS_COMPUTE_32F_FAST_16BF, CUDA_R_32F, CUDA_R_32F, kSingle},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, kSingle},
    {CUBLAS_COMPUTE_16F, CUDA_R_16F, CUDA_R_16F, kHalf},
    {CUBLAS_COMPUTE_16F_PEDANTIC, CUDA_R_16F, CUDA_R_16F, kHalf},
    {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, kDouble},
    {CUBLAS_COMPUTE_64F_PEDANTIC, CUDA_R_64F, CUDA_R_64F, kDouble},
    {CUBLAS_COMPUTE_32I, CUDA_R_8I, CUDA_R_32I, kByteToInteger},
    {CUBLAS_COMPUTE_32I_PEDANTIC, CUDA_R_8I, CUDA_R_32I, kByteToInteger},
};
#undef KANSOKU_32F_ROWS

struct ExTypes {
  cudaDataType a, b, c;
  cublasComputeType_t compute;
  cublasGemmAlgo_t algorithm;
};

bool is_algorithm(cublasGemmAlgo_t algorithm) {
  return (algorithm >= CUBLAS_GEMM_DEFAULT && algorithm <= CUBLAS_GEMM_ALGO23) ||
         (algorithm >= CUBLAS_GEMM_DEFAULT_TENSOR_OP && algorithm <= CUBLAS_GEMM_ALGO15_TENSOR_OP);
}

cublasStatus_t multiply_ex(const char* function, cublasHandle_t handle, const GemmCall& call,
                           const ExTypes& wanted) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!is_algorithm(wanted.algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const TypeRow& row : kTypeRows) {
    if (row.compute == wanted.compute && row.ab == wanted.a && row.ab == wanted.b &&
        row.c == wanted.c)
      return multiply(handle, call, row.types);
  }
  log_once(
      fmt::format("{} with the types A {}, B {}, C {} (cudaDataType) and compute type {} is not "
                  "supported by the software device",
                  function, static_cast<int>(wanted.a), static_cast<int>(wanted.b),
                  static_cast<int>(wanted.c), static_cast<int>(wanted.compute)));
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace
}  // namespace kansoku::softcuda::cublas

using namespace kansoku::softcuda::cublas;  // NOLINT(google-build-using-namespace)

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): names of the interface.
#pragma GCC visibility push(default)
extern "C" {

#define KANSOKU_GEMM(name, type, types)                                                          \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, \
                      int m, int n, int k, const type* alpha, const type* a, int lda,            \
                      const type* b, int ldb, const type* beta, type* c, int ldc) {              \
    return multiply(handle, {transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc},      \
                    types);                                                                      \
  }
#define KANSOKU_GEMM_BATCHED(name, type, types)                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,  \
                      int m, int n, int k, const type* alpha, const type* const a[], int lda,     \
                      const type* const b[], int ldb, const type* beta, type* const c[], int ldc, \
                      int batch_count) {                                                          \
    GemmCall call{transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, nullptr, ldc};            \
    call.c = const_cast<type**>(c);                                                               \
    call.is_array = true;                                                                         \
    call.batch_count = batch_count;                                                               \
    return multiply(handle, call, types);                                                         \
  }
#define KANSOKU_GEMM_STRIDED(name, type, types)                                                  \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, \
                      int m, int n, int k, const type* alpha, const type* a, int lda,            \
                      long long stride_a, const type* b, int ldb, long long stride_b,            \
                      const type* beta, type* c, int ldc, long long stride_c, int batch_count) { \
    return multiply(handle,                                                                      \
                    {transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, false,        \
                     stride_a, stride_b, stride_c, batch_count},                                 \
                    types);                                                                      \
  }

KANSOKU_GEMM(cublasSgemm_v2, float, kSingle)
KANSOKU_GEMM(cublasDgemm_v2, double, kDouble)
KANSOKU_GEMM(cublasHgemm, __half, kHalf)
KANSOKU_GEMM_BATCHED(cublasSgemmBatched, float, kSingle)
KANSOKU_GEMM_BATCHED(cublasDgemmBatched, double, kDouble)
KANSOKU_GEMM_BATCHED(cublasHgemmBatched, __half, kHalf)
KANSOKU_GEMM_STRIDED(cublasSgemmStridedBatched, float, kSingle)
KANSOKU_GEMM_STRIDED(cublasDgemmStridedBatched, double, kDouble)
KANSOKU_GEMM_STRIDED(cublasHgemmStridedBatched, __half, kHalf)
#undef KANSOKU_GEMM
#undef KANSOKU_GEMM_BATCHED
#undef KANSOKU_GEMM_STRIDED

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return multiply_ex("cublasGemmEx", handle,
                     {transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc},
                     {a_type, b_type, c_type, compute, algorithm});
}
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                   const void* const a[], cudaDataType a_type, int lda,
                                   const void* const b[], cudaDataType b_type, int ldb,
                                   const void* beta, void* const c[], cudaDataType c_type, int ldc,
                                   int batch_count, cublasComputeType_t compute,
                                   cublasGemmAlgo_t algorithm) {
  GemmCall call{transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, nullptr, ldc};
  call.c = const_cast<void**>(c);
  call.is_array = true;
  call.batch_count = batch_count;
  return multiply_ex("cublasGemmBatchedEx", handle, call,
                     {a_type, b_type, c_type, compute, algorithm});
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long stride_c, int batch_count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return multiply_ex("cublasGemmStridedBatchedEx", handle,
                     {transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, false, stride_a,
                      stride_b, stride_c, batch_count},
                     {a_type, b_type, c_type, compute, algorithm});
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)
