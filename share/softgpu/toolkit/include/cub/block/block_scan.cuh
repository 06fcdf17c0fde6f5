/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../thread/thread_operators.cuh"

namespace cub {

/* All of them give the same here: warp by warp, in order. */
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

/* Scans over the threads of a block: inclusive ones with, exclusive ones without the thread's own
 * value. All threads call; before the storage is used again they meet at a barrier of the caller's.
 * aggregate: of all values, without what they begin with. `prefix(aggregate)`, called by the first
 * warp, gives in lane 0 what the block begins with. */
template <class T, int BlockX, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BlockY = 1,
          int BlockZ = 1, int = 0>
class BlockScan {
  static constexpr int kThreads = BlockX * BlockY * BlockZ, kWarps = (kThreads + 31) / 32;

 public:
  struct TempStorage {
    detail::room<T, kWarps + 1> of_warps; /* and what the block begins with */
  };
  __device__ inline BlockScan() : storage_(own_storage()) {}
  __device__ inline explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  template <class Operation>
  __device__ inline void InclusiveScan(T input, T& output, Operation operation, T& aggregate) {
    T before;
    const bool has_before = scan(input, before, operation, aggregate);
    output = has_before ? operation(before, input) : input;
  }
  template <class Operation>
  __device__ inline void InclusiveScan(T input, T& output, Operation operation) {
    T aggregate;
    InclusiveScan(input, output, operation, aggregate);
  }
  template <class Operation, class Prefix>
  __device__ inline void InclusiveScan(T input, T& output, Operation operation, T& aggregate,
                                       Prefix& prefix) {
    InclusiveScan(input, output, operation, aggregate);
    output = operation(begin_of(prefix, aggregate), output);
  }
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, T initial, Operation operation,
                                       T& aggregate) {
    T before;
    const bool has_before = scan(input, before, operation, aggregate);
    output = has_before ? operation(initial, before) : initial;
  }
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, T initial, Operation operation) {
    T aggregate;
    ExclusiveScan(input, output, initial, operation, aggregate);
  }
  /* Of thread 0 the output stays as it was. */
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, Operation operation, T& aggregate) {
    T before;
    if (scan(input, before, operation, aggregate)) output = before;
  }
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, Operation operation) {
    T aggregate;
    ExclusiveScan(input, output, operation, aggregate);
  }

  /* Sums. */
  __device__ inline void InclusiveSum(T input, T& output) {
    InclusiveScan(input, output, cub::Sum());
  }
  __device__ inline void InclusiveSum(T input, T& output, T& aggregate) {
    InclusiveScan(input, output, cub::Sum(), aggregate);
  }
  template <class Prefix>
  __device__ inline void InclusiveSum(T input, T& output, T& aggregate, Prefix& prefix) {
    InclusiveScan(input, output, cub::Sum(), aggregate, prefix);
  }
  __device__ inline void ExclusiveSum(T input, T& output) {
    ExclusiveScan(input, output, T{}, cub::Sum());
  }
  __device__ inline void ExclusiveSum(T input, T& output, T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
  }

  /* Several items a thread, in blocked order. */
  template <int Items, class Operation>
  __device__ inline void InclusiveScan(T (&input)[Items], T (&output)[Items], Operation operation,
                                       T& aggregate) {
    T before;
    const bool has_before = scan(whole(input, operation), before, operation, aggregate);
    T running = has_before ? operation(before, input[0]) : T(input[0]);
    output[0] = running;
#pragma unroll
    for (int i = 1; i < Items; ++i)
      output[i] = running = operation(running, input[i]);
  }
  template <int Items, class Operation>
  __device__ inline void InclusiveScan(T (&input)[Items], T (&output)[Items], Operation operation) {
    T aggregate;
    InclusiveScan(input, output, operation, aggregate);
  }
  template <int Items, class Operation>
  __device__ inline void ExclusiveScan(T (&input)[Items], T (&output)[Items], T initial,
                                       Operation operation, T& aggregate) {
    T before;
    const bool has_before = scan(whole(input, operation), before, operation, aggregate);
    T running = has_before ? operation(initial, before) : initial;
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const T item = input[i];
      output[i] = running;
      running = operation(running, item);
    }
  }
  template <int Items, class Operation>
  __device__ inline void ExclusiveScan(T (&input)[Items], T (&output)[Items], T initial,
                                       Operation operation) {
    T aggregate;
    ExclusiveScan(input, output, initial, operation, aggregate);
  }
  template <int Items>
  __device__ inline void InclusiveSum(T (&input)[Items], T (&output)[Items]) {
    InclusiveScan(input, output, cub::Sum());
  }
  template <int Items>
  __device__ inline void InclusiveSum(T (&input)[Items], T (&output)[Items], T& aggregate) {
    InclusiveScan(input, output, cub::Sum(), aggregate);
  }
  template <int Items>
  __device__ inline void ExclusiveSum(T (&input)[Items], T (&output)[Items]) {
    ExclusiveScan(input, output, T{}, cub::Sum());
  }
  template <int Items>
  __device__ inline void ExclusiveSum(T (&input)[Items], T (&output)[Items], T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
  }

 private:
  template <int Items, class Operation>
  __device__ static inline T whole(T (&input)[Items], Operation operation) {
    T value = input[0];
#pragma unroll
    for (int i = 1; i < Items; ++i)
      value = operation(value, input[i]);
    return value;
  }
  /* What lies before this thread; false for thread 0, which has nothing before it. */
  template <class Operation>
  __device__ inline bool scan(const T& input, T& before, Operation operation, T& aggregate) {
    const unsigned thread = detail::thread_of_block(), lane = thread % 32U;
    const int warp = static_cast<int>(thread / 32U);
    const unsigned mask = detail::lanes_of_warp(kThreads, static_cast<unsigned>(warp));
    const unsigned count = static_cast<unsigned>(__popc(mask));
    const T inclusive = detail::scan_lanes(mask, 0U, count, input, operation);
    before = detail::from_lane(mask, inclusive, lane == 0 ? 0U : lane - 1U);
    if (lane == count - 1U) storage_.of_warps[warp] = inclusive;
    __syncthreads();
    T of_warps = storage_.of_warps[0], earlier = of_warps;
#pragma unroll 1
    for (int i = 1; i < kWarps; ++i) {
      if (i == warp) earlier = of_warps;
      of_warps = operation(of_warps, storage_.of_warps[i]);
    }
    aggregate = of_warps;
    if (warp > 0) before = lane == 0 ? earlier : operation(earlier, before);
    return thread > 0;
  }
  template <class Prefix>
  __device__ inline T begin_of(Prefix& prefix, const T& aggregate) {
    const unsigned thread = detail::thread_of_block();
    if (thread < 32U) {
      const T begin = prefix(aggregate);
      if (thread == 0) storage_.of_warps[kWarps] = begin;
    }
    __syncthreads();
    return storage_.of_warps[kWarps];
  }
  __device__ static inline TempStorage& own_storage() {
    __shared__ TempStorage storage;
    return storage;
  }
  TempStorage& storage_;
};

} /* namespace cub */
