/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../thread/thread_operators.cuh"

namespace cub {

/* All of them give the same here: warp by warp, in order. */
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};

/* One value of those of all threads of a block: in thread 0 alone. All threads call; before the
 * storage is used again they meet at a barrier of the caller's. */
template <class T, int BlockX, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int BlockY = 1,
          int BlockZ = 1, int = 0>
class BlockReduce {
  static constexpr int kThreads = BlockX * BlockY * BlockZ, kWarps = (kThreads + 31) / 32;

 public:
  struct TempStorage {
    detail::room<T, kWarps> of_warps;
  };
  __device__ inline BlockReduce() : storage_(own_storage()) {}
  __device__ inline explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  __device__ inline T Sum(T input) { return Reduce(input, cub::Sum()); }
  __device__ inline T Sum(T input, int valid_items) {
    return Reduce(input, cub::Sum(), valid_items);
  }
  template <int Items>
  __device__ inline T Sum(T (&inputs)[Items]) {
    return Reduce(inputs, cub::Sum());
  }
  template <int Items, class Operation>
  __device__ inline T Reduce(T (&inputs)[Items], Operation operation) {
    T value = inputs[0];
#pragma unroll
    for (int i = 1; i < Items; ++i)
      value = operation(value, inputs[i]);
    return Reduce(value, operation);
  }
  template <class Operation>
  __device__ inline T Reduce(T input, Operation operation) {
    return Reduce(input, operation, kThreads);
  }
  /* Of the first valid_items threads, at least one. */
  template <class Operation>
  __device__ inline T Reduce(T input, Operation operation, int valid_items) {
    const unsigned thread = detail::thread_of_block(), warp = thread / 32U, first = warp * 32U;
    const unsigned valid = static_cast<unsigned>(valid_items);
    const unsigned count = valid <= first ? 0U : valid - first < 32U ? valid - first : 32U;
    T value =
        detail::reduce_lanes(detail::lanes_of_warp(kThreads, warp), 0U, count, input, operation);
    if (thread % 32U == 0) storage_.of_warps[static_cast<int>(warp)] = value;
    __syncthreads();
    if (thread == 0) {
      for (int i = 1; i * 32 < valid_items; ++i)
        value = operation(value, storage_.of_warps[i]);
    }
    return value;
  }

 private:
  __device__ static inline TempStorage& own_storage() {
    __shared__ TempStorage storage;
    return storage;
  }
  TempStorage& storage_;
};

} /* namespace cub */
