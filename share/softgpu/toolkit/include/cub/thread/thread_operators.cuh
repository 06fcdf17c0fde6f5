/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../util_type.cuh"

/* Operations for reductions and scans. */

namespace cub {

struct Sum {
  template <class A, class B>
  __host__ __device__ inline auto operator()(const A& a, const B& b) const -> decltype(a + b) {
    return a + b;
  }
};
struct Difference {
  template <class A, class B>
  __host__ __device__ inline auto operator()(const A& a, const B& b) const -> decltype(a - b) {
    return a - b;
  }
};
struct Max {
  template <class T>
  __host__ __device__ inline T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  __host__ __device__ inline T operator()(const T& a, const T& b) const {
    return b < a ? b : a;
  }
};
struct Equality {
  template <class A, class B>
  __host__ __device__ inline bool operator()(const A& a, const B& b) const {
    return a == b;
  }
};
/* Of equal values the first. */
struct ArgMax {
  template <class Pair>
  __host__ __device__ inline Pair operator()(const Pair& a, const Pair& b) const {
    return a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class Pair>
  __host__ __device__ inline Pair operator()(const Pair& a, const Pair& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

} /* namespace cub */
