/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../thread/thread_operators.cuh"

namespace cub {

/* Reductions within groups of LogicalThreads neighbouring lanes, 1 to 32: the result is in the
 * first lane of each. All lanes of a group call; the groups need not call together. */
template <class T, int LogicalThreads = 32, int = 0>
class WarpReduce {
  static_assert(LogicalThreads >= 1 && LogicalThreads <= 32, "a warp has 32 lanes");

 public:
  struct TempStorage {};
  __device__ inline explicit WarpReduce(TempStorage&) {}

  __device__ inline T Sum(T input) { return Reduce(input, cub::Sum()); }
  __device__ inline T Sum(T input, int valid_items) {
    return Reduce(input, cub::Sum(), valid_items);
  }
  template <class Operation>
  __device__ inline T Reduce(T input, Operation operation) {
    return Reduce(input, operation, LogicalThreads);
  }
  /* Of the first valid_items lanes of each group. */
  template <class Operation>
  __device__ inline T Reduce(T input, Operation operation, int valid_items) {
    const unsigned lane = __nvvm_read_ptx_sreg_laneid();
    const unsigned first = lane / LogicalThreads * LogicalThreads;
    const unsigned mask = (~0U >> (32 - LogicalThreads)) << first;
    return detail::reduce_lanes(mask, first, static_cast<unsigned>(valid_items), input, operation);
  }
};

} /* namespace cub */
