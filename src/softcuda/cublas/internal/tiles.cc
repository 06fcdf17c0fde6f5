// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/tiles.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace kansoku::softcuda::cublas {
namespace {

#define KANSOKU_ROWS(groups, columns) \
  {"kansoku_gemm_rows_" #groups "x" #columns, 32 * (groups), columns, false},
#define KANSOKU_DOTS(rows, columns) {"kansoku_gemm_dots_" #rows "x" #columns, rows, columns, true},
constexpr Tile kTiles[] = {KANSOKU_GEMM_TILES(KANSOKU_ROWS, KANSOKU_DOTS)};
#undef KANSOKU_ROWS
#undef KANSOKU_DOTS

// Nanoseconds of one warp instruction, or of a short sequence; one core of an AMD EPYC.
constexpr double kProduct = 7;
constexpr double kLoad = 15;         // lanes side by side, with its address
constexpr double kStridedLoad = 30;  // lanes apart
constexpr double kLoadEach = 110;    // fewer rows than lanes: addresses without a rule
constexpr double kShared = 7;        // a value of B that all lanes use
constexpr double kStaged = 30;       // of B into shared memory: 32 values
constexpr double kElement = 130;     // 32 elements of C written
constexpr double kPart = 40;         // 32 parts of sums in shared memory, there and back
constexpr double kBlock = 2500;      // what every block does once
constexpr double kWorkers = 2;       // at least; more blocks than that are spread evenly

double block_cost(const Tile& tile, const GemmArguments& problem) {
  const double depth = problem.depth;
  if (tile.is_dots) {
    const double products = tile.rows * tile.columns;
    const double steps = (depth + 31) / 32;
    return kBlock + steps * ((tile.rows + tile.columns) * kLoad + products * kProduct) +
           products * kPart;
  }
  const double groups = tile.rows / 32.0;
  const double load = problem.rows < 32 ? kLoadEach : problem.a_row == 1 ? kLoad : kStridedLoad;
  const double step = groups * load + tile.columns * kShared + groups * tile.columns * kProduct;
  return kBlock + depth * step + (depth + 31) / 32 * tile.columns * kStaged +
         groups * tile.columns * kElement;
}

}  // namespace

double cost_of(const Tile& tile, const GemmArguments& problem, long long batch_count) {
  if (tile.is_dots && (problem.a_depth != 1 || problem.b_depth != 1))
    return std::numeric_limits<double>::infinity();
  const double row_tiles = (problem.rows + tile.rows - 1) / tile.rows;
  const double column_tiles = (problem.columns + tile.columns - 1) / tile.columns;
  const double blocks = row_tiles * column_tiles * static_cast<double>(batch_count);
  return block_cost(tile, problem) * std::max(1.0, blocks / kWorkers);
}

const Tile& tile_for(const GemmArguments& problem, long long batch_count) {
  const Tile* best = &kTiles[0];
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double cost = cost_of(tile, problem, batch_count);
    if (cost >= least) continue;
    least = cost;
    best = &tile;
  }
  return *best;
}

GemmArguments exchanged(const GemmArguments& problem) {
  GemmArguments other = problem;
  std::swap(other.a, other.b);
  std::swap(other.a_batch, other.b_batch);
  std::swap(other.rows, other.columns);
  std::swap(other.c_row, other.c_column);
  other.a_row = problem.b_column;
  other.a_depth = problem.b_depth;
  other.b_depth = problem.a_depth;
  other.b_column = problem.a_row;
  return other;
}

}  // namespace kansoku::softcuda::cublas
