// SPDX-License-Identifier: Apache-2.0
// Triangular systems by forward substitution, compiled to PTX: a lane has a system.
#include "softcuda/cublas/kernels/arguments.h"
#include "softcuda/cublas/kernels/device.h"

namespace kansoku::softcuda::cublas::device {
namespace {

constexpr int kRows =
    8;  // solved at a time: each value that is known already is loaded once for them

/// Rows [row, row + count) of the lane's system; those before are known.
template <int count>
inline void solve_rows(const SolveArguments& args, const float* a, float* b, float alpha, int row) {
  float values[count];
#pragma unroll
  for (int i = 0; i < count; ++i)
    values[i] = alpha * b[(row + i) * args.b_row];
  const float* line = a + row * args.a_row;
#pragma unroll 1
  for (int q = 0; q < row; ++q) {
    const float known = b[q * args.b_row];
#pragma unroll
    for (int i = 0; i < count; ++i)
      values[i] = __nvvm_fma_rn_f(-line[i * args.a_row], known, values[i]);
    line += args.a_column;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const float* const own = a + (row + i) * args.a_row + row * args.a_column;
#pragma unroll
    for (int q = 0; q < i; ++q)
      values[i] = __nvvm_fma_rn_f(-own[q * args.a_column], values[q], values[i]);
    if (args.is_unit_diagonal == 0) values[i] = __nvvm_div_rn_f(values[i], own[i * args.a_column]);
    b[(row + i) * args.b_row] = values[i];
  }
}

}  // namespace
}  // namespace kansoku::softcuda::cublas::device

KANSOKU_KERNEL void kansoku_solve_f32(kansoku::softcuda::cublas::SolveArguments args) {
  using namespace kansoku::softcuda::cublas::device;
  const int system = block_x() * kLanes + lane();
  if (system >= args.systems) return;
  const int batch = args.batch_begin + block_y();
  const float* a = static_cast<const float*>(args.a);
  float* b = static_cast<float*>(args.b);
  if (args.is_array != 0) {
    a = static_cast<const float* const*>(args.a)[batch];
    b = static_cast<float* const*>(args.b)[batch];
  }
  a += args.a_begin;
  b += args.b_begin + system * args.b_system;
  float alpha = static_cast<float>(args.alpha);
  if (args.alpha_at != nullptr) alpha = *static_cast<const float*>(args.alpha_at);
  if (alpha == 0) {  // then A is not read
#pragma unroll 1
    for (int row = 0; row < args.size; ++row)
      b[row * args.b_row] = 0;
    return;
  }
  int row = 0;
#pragma unroll 1
  for (; row + kRows <= args.size; row += kRows)
    solve_rows<kRows>(args, a, b, alpha, row);
#pragma unroll 1
  for (; row < args.size; ++row)
    solve_rows<1>(args, a, b, alpha, row);
}
