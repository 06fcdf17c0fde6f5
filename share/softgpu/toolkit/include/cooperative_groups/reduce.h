/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_REDUCE_H
#define KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_REDUCE_H

/* reduce(group, value, operation): one value of the values of all members of a tile or of a
 * coalesced group; every member gets it. The order is fixed: same values, same bits. */

#include "../cooperative_groups.h"

#if defined(__CUDA__) && defined(__cplusplus)

namespace cooperative_groups {

/* Operations. less gives the lesser of two, greater the greater. */
#define KANSOKU_OPERATION(name, expression)                                             \
  template <class T = void>                                                             \
  struct name {                                                                         \
    __device__ inline T operator()(const T& a, const T& b) const { return expression; } \
  };                                                                                    \
  template <>                                                                           \
  struct name<void> {                                                                   \
    template <class T>                                                                  \
    __device__ inline T operator()(const T& a, const T& b) const {                      \
      return expression;                                                                \
    }                                                                                   \
  };
KANSOKU_OPERATION(plus, a + b)
KANSOKU_OPERATION(less, b < a ? b : a)
KANSOKU_OPERATION(greater, a < b ? b : a)
KANSOKU_OPERATION(bit_and, a& b)
KANSOKU_OPERATION(bit_or, a | b)
KANSOKU_OPERATION(bit_xor, a ^ b)
#undef KANSOKU_OPERATION

template <unsigned Lanes, class Parent, class T, class Operation>
__device__ inline T reduce(const thread_block_tile<Lanes, Parent>& group, T value,
                           Operation operation) {
#pragma unroll
  for (unsigned distance = Lanes / 2; distance > 0; distance /= 2)
    value = operation(value, group.shfl_xor(value, distance));
  return value;
}
template <class T, class Operation>
__device__ inline T reduce(const coalesced_group& group, T value, Operation operation) {
  const unsigned rank = group.thread_rank(), size = group.size();
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    const T other = group.shfl_down(value, distance);
    if (rank + distance < size) value = operation(value, other);
  }
  return group.shfl(value, 0U);
}

} /* namespace cooperative_groups */

#endif /* __CUDA__ && __cplusplus */

#endif /* KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_REDUCE_H */
