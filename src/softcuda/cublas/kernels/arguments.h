// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arguments that the host passes to the kernels: read by both compilers, so plain types only.
// Lengths and strides count elements; a stride may be negative.

namespace kansoku::softcuda::cublas {

using Stride = long long;

/// Type of alpha and beta in device memory.
enum class Scale : int { kF16, kF32, kF64, kS32 };

/// C = alpha * A * B + beta * C for each batch; transposed matrices differ in their strides only.
/// Row i, depth p, column j: A(i, p) = a[i * a_row + p * a_depth], and so on.
struct GemmArguments {
  // Matrices, or with `is_array` arrays of pointers to them; all in device memory.
  const void* a;
  const void* b;
  void* c;
  Stride a_row, a_depth, b_depth, b_column, c_row, c_column;
  Stride a_batch, b_batch, c_batch;  // not with is_array
  // In device memory, or null: the values follow, which hold every number of a Scale exactly.
  const void* alpha_at;
  const void* beta_at;
  double alpha, beta;
  int rows, columns, depth;
  int column_begin;  // the launch is for columns column_begin to columns - 1
  int row_tiles;     // block x is tile x % row_tiles, x / row_tiles
  int batch_begin;   // block y is batch batch_begin + y
  int is_array;
  int is_other_output;  // the second one of the element: Element::Other
  Scale scale;
};

/// T * X = alpha * B with a lower triangle T, X in the place of B, for each batch. Row r, system s:
/// T(r, q) = a[r * a_row + q * a_column], B(r, s) = b[r * b_row + s * b_system].
struct SolveArguments {
  const void* a;  // as above
  void* b;
  Stride a_begin, a_row, a_column, b_begin, b_row, b_system;
  const void* alpha_at;
  double alpha;
  int size, systems;
  int batch_begin;
  int is_array;
  int is_unit_diagonal;
};

/// Shapes of the tiles that one warp computes: ROWS(G, C): 32 * G rows, a lane each, by C columns.
/// DOTS(R, C): R rows by C columns, the lanes along the depth, which must be the contiguous
/// direction of both matrices.
#define KANSOKU_GEMM_TILES(ROWS, DOTS) \
  ROWS(4, 16)                          \
  ROWS(4, 8)                           \
  ROWS(4, 4)                           \
  ROWS(4, 2) ROWS(2, 8) ROWS(1, 8) ROWS(1, 2) DOTS(8, 16) DOTS(8, 8) DOTS(8, 2) DOTS(2, 2)

}  // namespace kansoku::softcuda::cublas
