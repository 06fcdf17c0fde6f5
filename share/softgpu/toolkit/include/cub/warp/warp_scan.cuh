/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../thread/thread_operators.cuh"

namespace cub {

/* Scans within groups of LogicalThreads neighbouring lanes, 1 to 32. All lanes of a group call. */
template <class T, int LogicalThreads = 32, int = 0>
class WarpScan {
  static_assert(LogicalThreads >= 1 && LogicalThreads <= 32, "a warp has 32 lanes");

 public:
  struct TempStorage {};
  __device__ inline explicit WarpScan(TempStorage&) {}

  __device__ inline void InclusiveSum(T input, T& output) {
    InclusiveScan(input, output, cub::Sum());
  }
  __device__ inline void InclusiveSum(T input, T& output, T& aggregate) {
    InclusiveScan(input, output, cub::Sum(), aggregate);
  }
  __device__ inline void ExclusiveSum(T input, T& output) {
    ExclusiveScan(input, output, T{}, cub::Sum());
  }
  __device__ inline void ExclusiveSum(T input, T& output, T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
  }
  template <class Operation>
  __device__ inline void InclusiveScan(T input, T& output, Operation operation) {
    output = detail::scan_lanes(mask(), first(), static_cast<unsigned>(LogicalThreads), input,
                                operation);
  }
  /* aggregate: of the whole group, in each lane. */
  template <class Operation>
  __device__ inline void InclusiveScan(T input, T& output, Operation operation, T& aggregate) {
    InclusiveScan(input, output, operation);
    aggregate = Broadcast(output, LogicalThreads - 1);
  }
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, T initial, Operation operation) {
    T aggregate;
    ExclusiveScan(input, output, initial, operation, aggregate);
  }
  /* aggregate: without the initial value. */
  template <class Operation>
  __device__ inline void ExclusiveScan(T input, T& output, T initial, Operation operation,
                                       T& aggregate) {
    T inclusive;
    InclusiveScan(input, inclusive, operation, aggregate);
    const unsigned lane = __nvvm_read_ptx_sreg_laneid();
    const T before = detail::from_lane(mask(), inclusive, lane == first() ? lane : lane - 1U);
    output = lane == first() ? initial : operation(initial, before);
  }
  __device__ inline T Broadcast(T input, unsigned source) {
    return detail::from_lane(mask(), input, first() + source);
  }

 private:
  __device__ static inline unsigned first() {
    return __nvvm_read_ptx_sreg_laneid() / LogicalThreads * LogicalThreads;
  }
  __device__ static inline unsigned mask() { return (~0U >> (32 - LogicalThreads)) << first(); }
};

} /* namespace cub */
