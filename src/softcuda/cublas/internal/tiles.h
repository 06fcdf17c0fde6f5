// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softcuda/cublas/kernels/arguments.h"

namespace kansoku::softcuda::cublas {

/// A kernel's way to divide the work, of KANSOKU_GEMM_TILES.
struct Tile {
  const char* name;   // of the kernel
  int rows, columns;  // of C, a warp
  bool is_dots;
};

/// One launch.
struct Part {
  const Tile* tile;
  int column_begin, column_end;
};
struct Plan {
  GemmArguments arguments;  // as wanted, or with rows and columns exchanged
  Part parts[2];
  int part_count;
};
/// The cheapest way to compute products of this shape, by measured costs of the interpreter's
/// instructions: the tile, rows and columns as they are or exchanged (C' = B' * A'), and whether
/// the columns that fill no tile are a launch of their own.
[[nodiscard]] Plan plan_for(const GemmArguments& problem, long long batch_count);

}  // namespace kansoku::softcuda::cublas
