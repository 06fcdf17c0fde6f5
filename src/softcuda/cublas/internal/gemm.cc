// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "softcuda/cublas/internal/tiles.h"

namespace kansoku::softcuda::cublas {
namespace {

bool is_operation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

cublasStatus_t check(const GemmCall& call) {
  if (!is_operation(call.transa) || !is_operation(call.transb) || call.m < 0 || call.n < 0 ||
      call.k < 0 || call.batch_count < 0 || call.alpha == nullptr || call.beta == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const int a_rows = call.transa == CUBLAS_OP_N ? call.m : call.k;
  const int b_rows = call.transb == CUBLAS_OP_N ? call.k : call.n;
  if (call.lda < std::max(1, a_rows) || call.ldb < std::max(1, b_rows) ||
      call.ldc < std::max(1, call.m))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/// Value of a number of IEEE half precision.
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

template <class T>
T loaded_from(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// A number of the host, which every Scale fits into.
double scale_value(Scale scale, const void* at) {
  switch (scale) {
    case Scale::kF16:
      return half_value(loaded_from<std::uint16_t>(at));
    case Scale::kF32:
      return static_cast<double>(loaded_from<float>(at));
    case Scale::kF64:
      return loaded_from<double>(at);
    case Scale::kS32:
      return loaded_from<std::int32_t>(at);
  }
  return 0;
}

GemmArguments gemm_arguments(cublasHandle_t handle, const GemmCall& call, const GemmTypes& types) {
  GemmArguments problem{};
  problem.a = call.a;
  problem.b = call.b;
  problem.c = call.c;
  problem.a_row = call.transa == CUBLAS_OP_N ? 1 : call.lda;
  problem.a_depth = call.transa == CUBLAS_OP_N ? call.lda : 1;
  problem.b_depth = call.transb == CUBLAS_OP_N ? 1 : call.ldb;
  problem.b_column = call.transb == CUBLAS_OP_N ? call.ldb : 1;
  problem.c_row = 1;
  problem.c_column = call.ldc;
  problem.a_batch = call.stride_a;
  problem.b_batch = call.stride_b;
  problem.c_batch = call.stride_c;
  problem.rows = call.m;
  problem.columns = call.n;
  problem.depth = call.k;
  problem.is_array = call.is_array ? 1 : 0;
  problem.is_other_output = types.is_other_output ? 1 : 0;
  problem.scale = types.scale;
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    problem.alpha_at = call.alpha;
    problem.beta_at = call.beta;
  } else {
    problem.alpha = scale_value(types.scale, call.alpha);
    problem.beta = scale_value(types.scale, call.beta);
  }
  return problem;
}

cublasStatus_t launch_part(cublasHandle_t handle, Text text, GemmArguments arguments,
                           const Part& part, int batch_count) {
  const auto tiles = [](int count, int of_tile) {
    return (static_cast<unsigned>(count) + static_cast<unsigned>(of_tile) - 1) /
           static_cast<unsigned>(of_tile);
  };
  const unsigned row_tiles = tiles(arguments.rows, part.tile->rows);
  const unsigned column_tiles = tiles(part.column_end - part.column_begin, part.tile->columns);
  arguments.row_tiles = static_cast<int>(row_tiles);
  arguments.column_begin = part.column_begin;
  arguments.columns = part.column_end;
  return for_parts_of(batch_count, [&](int begin, int count) {
    arguments.batch_begin = begin;
    return launch(handle, {text, part.tile->name},
                  {row_tiles * column_tiles, static_cast<unsigned>(count)}, &arguments);
  });
}

}  // namespace

cublasStatus_t multiply(cublasHandle_t handle, const GemmCall& call, const GemmTypes& types) {
  if (!is_valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = check(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (call.m == 0 || call.n == 0 || call.batch_count == 0) return CUBLAS_STATUS_SUCCESS;
  if (call.c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;

  const Plan plan = plan_for(gemm_arguments(handle, call, types), call.batch_count);
  for (int i = 0; i < plan.part_count; ++i) {
    const cublasStatus_t status =
        launch_part(handle, types.text, plan.arguments, plan.parts[i], call.batch_count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace kansoku::softcuda::cublas
