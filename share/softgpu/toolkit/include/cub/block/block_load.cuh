/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../util_type.cuh"

namespace cub {

/* How items come to threads: blocked (thread t has items t N to t N + N - 1) in all but STRIPED
 * (item i of thread t is i threads + t). The ways to read them give the same; here all of them
 * read directly. */
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};

/* Where item i of a thread lies. */
namespace detail {
template <int Threads, int Items, bool IsStriped>
__device__ inline int item_place(int i) {
  const int thread = static_cast<int>(thread_of_block());
  return IsStriped ? i * Threads + thread : thread * Items + i;
}
} /* namespace detail */

/* Loads Items items for each thread of a block of x * y * z threads. */
template <class T, int BlockX, int Items, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT,
          int BlockY = 1, int BlockZ = 1, int = 0>
class BlockLoad {
 public:
  struct TempStorage {};
  __device__ inline BlockLoad() {}
  __device__ inline explicit BlockLoad(TempStorage&) {}

  template <class Iterator>
  __device__ inline void Load(Iterator from, T (&items)[Items]) {
#pragma unroll
    for (int i = 0; i < Items; ++i)
      items[i] = from[place(i)];
  }
  /* The first valid_items of the block; other items keep their values. */
  template <class Iterator>
  __device__ inline void Load(Iterator from, T (&items)[Items], int valid_items) {
#pragma unroll
    for (int i = 0; i < Items; ++i)
      if (place(i) < valid_items) items[i] = from[place(i)];
  }
  /* The others become `otherwise`. */
  template <class Iterator, class Default>
  __device__ inline void Load(Iterator from, T (&items)[Items], int valid_items,
                              Default otherwise) {
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      items[i] = otherwise;
      if (place(i) < valid_items) items[i] = from[place(i)];
    }
  }

 private:
  __device__ static inline int place(int i) {
    return detail::item_place<BlockX * BlockY * BlockZ, Items, Algorithm == BLOCK_LOAD_STRIPED>(i);
  }
};

} /* namespace cub */
