// SPDX-License-Identifier: Apache-2.0
// Triangular systems.
#include <cublas_v2.h>

#include <algorithm>

#include "softcuda/cublas/internal/gemm.h"
#include "softcuda/cublas/internal/handle.h"
#include "softcuda/cublas/kernels/arguments.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr Kernel kSolve{Text::kSolve, "kansoku_solve_f32"};

struct SolveCall {
  cublasSideMode_t side;
  cublasFillMode_t uplo;
  cublasOperation_t trans;
  cublasDiagType_t diag;
  int m, n;
  const float* alpha;
  const void* a;
  int lda;
  void* b;
  int ldb;
  bool is_array{false};
  int batch_count{1};
};

cublasStatus_t check_solve(const SolveCall& call) {
  const bool is_known =
      (call.side == CUBLAS_SIDE_LEFT || call.side == CUBLAS_SIDE_RIGHT) &&
      (call.uplo == CUBLAS_FILL_MODE_LOWER || call.uplo == CUBLAS_FILL_MODE_UPPER) &&
      (call.trans == CUBLAS_OP_N || call.trans == CUBLAS_OP_T || call.trans == CUBLAS_OP_C) &&
      (call.diag == CUBLAS_DIAG_NON_UNIT || call.diag == CUBLAS_DIAG_UNIT);
  if (!is_known || call.m < 0 || call.n < 0 || call.batch_count < 0 || call.alpha == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const int size = call.side == CUBLAS_SIDE_LEFT ? call.m : call.n;
  if (call.lda < std::max(1, size) || call.ldb < std::max(1, call.m))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/// X * op(A) = B is op(A)' * X' = B', and an upper triangle is a lower one read backwards.
SolveArguments solve_arguments(const SolveCall& call) {
  const bool is_left = call.side == CUBLAS_SIDE_LEFT;
  const bool is_transposed = (call.trans != CUBLAS_OP_N) == is_left;
  SolveArguments arguments{};
  arguments.a = call.a;
  arguments.b = call.b;
  arguments.a_row = is_transposed ? call.lda : 1;
  arguments.a_column = is_transposed ? 1 : call.lda;
  arguments.b_row = is_left ? 1 : call.ldb;
  arguments.b_system = is_left ? call.ldb : 1;
  arguments.size = is_left ? call.m : call.n;
  arguments.systems = is_left ? call.n : call.m;
  arguments.is_array = call.is_array ? 1 : 0;
  arguments.is_unit_diagonal = call.diag == CUBLAS_DIAG_UNIT ? 1 : 0;
  if ((call.uplo == CUBLAS_FILL_MODE_LOWER) == is_transposed) {
    arguments.a_begin = (arguments.size - 1) * (arguments.a_row + arguments.a_column);
    arguments.b_begin = (arguments.size - 1) * arguments.b_row;
    arguments.a_row = -arguments.a_row;
    arguments.a_column = -arguments.a_column;
    arguments.b_row = -arguments.b_row;
  }
  return arguments;
}

cublasStatus_t solve(cublasHandle_t handle, const SolveCall& call) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = check_solve(call); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (call.m == 0 || call.n == 0 || call.batch_count == 0) return CUBLAS_STATUS_SUCCESS;
  SolveArguments arguments = solve_arguments(call);
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    arguments.alpha_at = call.alpha;
  } else {
    arguments.alpha = static_cast<double>(*call.alpha);
  }
  const unsigned blocks = (static_cast<unsigned>(arguments.systems) + 31) / 32;
  return for_parts_of(call.batch_count, [&](int begin, int count) {
    arguments.batch_begin = begin;
    return launch(handle, kSolve, {blocks, static_cast<unsigned>(count)}, &arguments);
  });
}

}  // namespace
}  // namespace kansoku::softcuda::cublas

using namespace kansoku::softcuda::cublas;  // NOLINT(google-build-using-namespace)

// NOLINTBEGIN(readability-identifier-naming): names of the interface.
#pragma GCC visibility push(default)
extern "C" {

cublasStatus_t cublasStrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                              cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                              const float* alpha, const float* a, int lda, float* b, int ldb) {
  return solve(handle, {side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb});
}
cublasStatus_t cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
                                  cublasFillMode_t uplo, cublasOperation_t trans,
                                  cublasDiagType_t diag, int m, int n, const float* alpha,
                                  const float* const a[], int lda, float* const b[], int ldb,
                                  int batch_count) {
  return solve(handle, {side, uplo, trans, diag, m, n, alpha, a, lda, const_cast<float**>(b), ldb,
                        true, batch_count});
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
