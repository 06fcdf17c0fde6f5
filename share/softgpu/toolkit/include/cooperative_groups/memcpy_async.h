/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H
#define KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H

/* memcpy_async(group, to, from, bytes), then wait(group): the members copy together. Here the bytes
 * are there as soon as wait or wait_prior return; none is under way while the kernel goes on. */

#include "../cooperative_groups.h"

#if defined(__CUDA__) && defined(__cplusplus)

namespace cooperative_groups {

template <class Group, class T>
__device__ inline void memcpy_async(const Group& group, T* to, const T* from, size_t bytes) {
  char* const bytes_to = reinterpret_cast<char*>(to);
  const char* const bytes_from = reinterpret_cast<const char*>(from);
  const size_t whole = bytes / sizeof(T);
  for (size_t i = group.thread_rank(); i < whole; i += group.size())
    to[i] = from[i];
  for (size_t i = whole * sizeof(T) + group.thread_rank(); i < bytes; i += group.size())
    bytes_to[i] = bytes_from[i];
}
template <class Group>
__device__ inline void wait(const Group& group) {
  group.sync();
}
template <unsigned Stages, class Group>
__device__ inline void wait_prior(const Group& group) {
  group.sync();
}

} /* namespace cooperative_groups */

#endif /* __CUDA__ && __cplusplus */

#endif /* KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H */
