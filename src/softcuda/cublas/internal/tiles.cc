// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/tiles.h"

#include <algorithm>
#include <iterator>
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
constexpr double kProduct = 8;
constexpr double kLoad = 15;         // lanes side by side, with its address
constexpr double kStridedLoad = 30;  // lanes apart
constexpr double kFarLoad = 60;      // of lines that are in no near cache
constexpr double kLoadEach = 110;    // fewer rows than lanes: addresses without a rule
constexpr double kShared = 7;        // a value of B that all lanes use
constexpr double kStaged = 30;       // of B into shared memory: 32 values
constexpr double kElement = 130;     // 32 elements of C written
constexpr double kPart = 40;         // 32 parts of sums in shared memory, there and back
constexpr double kBlock = 2500;      // work that every block does once
constexpr double kLaunch = 4000;
constexpr double kWorkers = 2;  // at least; more blocks than that are spread evenly

// Size of a near cache, and the distance of lines that share a place in it, in elements of four
// bytes.
constexpr double kNear = 256 << 10;
constexpr Stride kSamePlace = 1024;

/// One value of A for each lane of a group.
double load_cost(const GemmArguments& problem) {
  if (problem.rows < 32) return kLoadEach;
  if (problem.a_row != 1) return problem.a_row % kSamePlace == 0 ? kFarLoad : kStridedLoad;
  const double size = static_cast<double>(problem.a_depth) * problem.depth;
  return size > kNear ? kFarLoad : kLoad;
}

double block_cost(const Tile& tile, const GemmArguments& problem) {
  const double depth = problem.depth;
  if (tile.is_dots) {
    const double products = tile.rows * tile.columns;
    const double steps = (depth + 31) / 32;
    const bool is_far = problem.a_row % kSamePlace == 0 || problem.b_column % kSamePlace == 0;
    const double loads = (tile.rows + tile.columns) * (is_far ? kFarLoad : kLoad);
    return kBlock + steps * (loads + products * kProduct) + products * kPart;
  }
  const double groups = tile.rows / 32.0;
  const double step =
      groups * load_cost(problem) + tile.columns * kShared + groups * tile.columns * kProduct;
  return kBlock + depth * step + (depth + 31) / 32 * tile.columns * kStaged +
         groups * tile.columns * kElement;
}

/// Nanoseconds of a launch; infinite if the tile does not fit the strides.
double cost_of(const Tile& tile, const GemmArguments& problem, int columns, long long batch_count) {
  if (tile.is_dots && (problem.a_depth != 1 || problem.b_depth != 1))
    return std::numeric_limits<double>::infinity();
  const int row_tiles = (problem.rows + tile.rows - 1) / tile.rows;
  const int column_tiles = (columns + tile.columns - 1) / tile.columns;
  const double blocks =
      static_cast<double>(row_tiles) * column_tiles * static_cast<double>(batch_count);
  return kLaunch + block_cost(tile, problem) * std::max(1.0, blocks / kWorkers);
}

const Tile& tile_for(const GemmArguments& problem, int columns, long long batch_count) {
  const auto cost = [&](const Tile& tile) { return cost_of(tile, problem, columns, batch_count); };
  return *std::min_element(std::begin(kTiles), std::end(kTiles),
                           [&](const Tile& a, const Tile& b) { return cost(a) < cost(b); });
}

/// The same product with rows and columns exchanged.
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

struct Choice {
  Plan plan;
  double cost;
};
Choice choice_for(const GemmArguments& problem, long long batch_count) {
  const int columns = problem.columns;
  const Tile& whole = tile_for(problem, columns, batch_count);
  Choice best{{problem, {{&whole, 0, columns}, {}}, 1},
              cost_of(whole, problem, columns, batch_count)};
  for (const Tile& tile : kTiles) {
    const int rest = columns % tile.columns;
    if (rest == 0 || rest == columns) continue;
    const Tile& last = tile_for(problem, rest, batch_count);
    const double cost = cost_of(tile, problem, columns - rest, batch_count) +
                        cost_of(last, problem, rest, batch_count);
    if (cost >= best.cost) continue;
    best = {{problem, {{&tile, 0, columns - rest}, {&last, columns - rest, columns}}, 2}, cost};
  }
  return best;
}

}  // namespace

Plan plan_for(const GemmArguments& problem, long long batch_count) {
  const Choice plain = choice_for(problem, batch_count);
  const Choice other = choice_for(exchanged(problem), batch_count);
  return other.cost < plain.cost ? other.plan : plain.plan;
}

}  // namespace kansoku::softcuda::cublas
