/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_SCAN_H
#define KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_SCAN_H

/* inclusive_scan and exclusive_scan(group, value, operation = plus): of the values of all members
 * up to this one, or before it, by rank. Of the first member exclusive_scan is T(). */

#include "reduce.h"

#if defined(__CUDA__) && defined(__cplusplus)

namespace cooperative_groups {

template <class Group, class T, class Operation>
__device__ inline T inclusive_scan(const Group& group, T value, Operation operation) {
  const unsigned rank = group.thread_rank(), size = group.size();
  for (unsigned distance = 1; distance < size; distance *= 2) {
    const T other = group.shfl_up(value, distance);
    if (rank >= distance) value = operation(other, value);
  }
  return value;
}
template <class Group, class T>
__device__ inline T inclusive_scan(const Group& group, T value) {
  return inclusive_scan(group, value, plus<T>());
}
template <class Group, class T, class Operation>
__device__ inline T exclusive_scan(const Group& group, T value, Operation operation) {
  const T before = group.shfl_up(inclusive_scan(group, value, operation), 1U);
  return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
__device__ inline T exclusive_scan(const Group& group, T value) {
  return exclusive_scan(group, value, plus<T>());
}

} /* namespace cooperative_groups */

#endif /* __CUDA__ && __cplusplus */

#endif /* KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_SCAN_H */
