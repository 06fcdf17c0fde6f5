/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "block_load.cuh"

namespace cub {

/* As BlockLoadAlgorithm. */
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

/* Stores Items items of each thread of a block of x * y * z threads. */
template <class T, int BlockX, int Items, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT,
          int BlockY = 1, int BlockZ = 1, int = 0>
class BlockStore {
 public:
  struct TempStorage {};
  __device__ inline BlockStore() {}
  __device__ inline explicit BlockStore(TempStorage&) {}

  template <class Iterator>
  __device__ inline void Store(Iterator to, T (&items)[Items]) {
#pragma unroll
    for (int i = 0; i < Items; ++i)
      to[place(i)] = items[i];
  }
  /* The first valid_items of the block. */
  template <class Iterator>
  __device__ inline void Store(Iterator to, T (&items)[Items], int valid_items) {
#pragma unroll
    for (int i = 0; i < Items; ++i)
      if (place(i) < valid_items) to[place(i)] = items[i];
  }

 private:
  __device__ static inline int place(int i) {
    return detail::item_place<BlockX * BlockY * BlockZ, Items, Algorithm == BLOCK_STORE_STRIPED>(i);
  }
};

} /* namespace cub */
