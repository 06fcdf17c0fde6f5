/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "version.cuh"

/* Types that the algorithms share. */

#define CUB_NAMESPACE_BEGIN namespace cub {
#define CUB_NAMESPACE_END }
#ifndef CUB_RUNTIME_FUNCTION
#define CUB_RUNTIME_FUNCTION __host__
#endif

namespace cub {

struct NullType {};

/* Two buffers of which one holds the data: Current(). A sort may swap them. */
template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector{0};
  __host__ __device__ DoubleBuffer() : d_buffers{nullptr, nullptr} {}
  __host__ __device__ DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  __host__ __device__ T* Current() { return d_buffers[selector]; }
  __host__ __device__ T* Alternate() { return d_buffers[selector ^ 1]; }
};

/* A value and where it was: what ArgMin and ArgMax give. */
template <class K, class V>
struct KeyValuePair {
  typedef K Key;
  typedef V Value;
  K key;
  V value;
};

namespace detail {

template <class Iterator>
using value_of = std::decay_t<decltype(*std::declval<Iterator>())>;
template <class Operation, class A, class B>
using result_of = std::decay_t<decltype(std::declval<Operation>()(std::declval<const A&>(),
                                                                  std::declval<const B&>()))>;

/* Room for a value in shared memory, which cannot hold types with constructors. */
template <class T, int Count>
struct alignas(alignof(T)) room {
  unsigned char bytes[sizeof(T) * Count];
  __device__ inline T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

__device__ inline unsigned thread_of_block() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

/* A value of any size from another lane of `mask`. */
template <class T>
__device__ inline T from_lane(unsigned mask, const T& value, unsigned lane) {
  constexpr unsigned kWords = (sizeof(T) + 3) / 4;
  int words[kWords] = {};
  __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
  for (unsigned i = 0; i < kWords; ++i)
    words[i] = __shfl_sync(mask, words[i], static_cast<int>(lane), 32);
  T result = value;
  __builtin_memcpy(&result, words, sizeof(T));
  return result;
}

/* In `value` what `operation` makes of the values of this lane and the ones behind it, up to
 * `count` lanes from `first` on; so lane `first` has that of all. All lanes of `mask` take part. */
template <class T, class Operation>
__device__ inline T reduce_lanes(unsigned mask, unsigned first, unsigned count, T value,
                                 Operation operation) {
  const unsigned lane = __nvvm_read_ptx_sreg_laneid();
  for (unsigned distance = 1; distance < count; distance *= 2) {
    const bool is_there = lane - first + distance < count;
    const T other = from_lane(mask, value, is_there ? lane + distance : lane);
    if (is_there) value = operation(value, other);
  }
  return value;
}
/* The same of this lane and those before it, from `first` on. */
template <class T, class Operation>
__device__ inline T scan_lanes(unsigned mask, unsigned first, unsigned count, T value,
                               Operation operation) {
  const unsigned lane = __nvvm_read_ptx_sreg_laneid();
  for (unsigned distance = 1; distance < count; distance *= 2) {
    const bool is_there = lane - first >= distance;
    const T other = from_lane(mask, value, is_there ? lane - distance : lane);
    if (is_there) value = operation(other, value);
  }
  return value;
}
/* Which lanes a warp of a block with that many threads has. */
__device__ inline unsigned lanes_of_warp(unsigned block_threads, unsigned warp) {
  const unsigned left = block_threads - warp * 32U;
  return left >= 32U ? ~0U : (1U << left) - 1U;
}

/* One piece of temporary storage after the other; with null only their sum is of interest. */
class storage {
 public:
  storage(void* begin, std::size_t bytes)
      : begin_((reinterpret_cast<std::size_t>(begin) + kAlign - 1) / kAlign * kAlign),
        end_(reinterpret_cast<std::size_t>(begin) + bytes) {}
  template <class T>
  T* take(std::size_t count) {
    T* const piece = reinterpret_cast<T*>(begin_ + used_);
    used_ += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return piece;
  }
  /* With what alignment may cost; never 0. */
  std::size_t bytes() const { return used_ + kAlign; }
  bool fits() const { return begin_ + used_ <= end_; }

 private:
  static constexpr std::size_t kAlign = 256;
  std::size_t begin_, end_, used_{0};
};

} /* namespace detail */
} /* namespace cub */
