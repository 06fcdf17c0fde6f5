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

/// Estimated nanoseconds of the interpreter for the products with this tile, from measured costs of
/// its instructions. Infinite if the tile does not fit the strides.
[[nodiscard]] double cost_of(const Tile& tile, const GemmArguments& problem, long long batch_count);
/// The cheapest tile.
[[nodiscard]] const Tile& tile_for(const GemmArguments& problem, long long batch_count);
/// The same product with rows and columns exchanged: C' = B' * A'.
[[nodiscard]] GemmArguments exchanged(const GemmArguments& problem);

}  // namespace kansoku::softcuda::cublas
