/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "detail_radix_sort.cuh"
#include "device_scan.cuh"

namespace cub {
namespace detail {

/* counts[digit][tile]: items of the tile with the digit. */
template <class Key, class Value>
__global__ void sort_count_kernel(sort_buffers<Key, Value> buffers, key_bits bits, int shift,
                                  unsigned count, unsigned* counts) {
  __shared__ unsigned of_digits[kSortDigits];
  if (threadIdx.x < kSortDigits) of_digits[threadIdx.x] = 0;
  __syncthreads();
  const unsigned first = blockIdx.x * kSortTile;
  const unsigned items = count - first < kSortTile ? count - first : kSortTile;
  for (unsigned i = threadIdx.x; i < items; i += kSortThreads)
    atomicAdd(&of_digits[bits(buffers.keys[first + i]) >> shift & (kSortDigits - 1)], 1U);
  __syncthreads();
  if (threadIdx.x < kSortDigits)
    counts[threadIdx.x * gridDim.x + blockIdx.x] = of_digits[threadIdx.x];
}
/* sums: the inclusive scan of those. */
template <class Key, class Value>
__global__ void sort_scatter_kernel(sort_buffers<Key, Value> buffers, key_bits bits, int shift,
                                    unsigned count, const unsigned* sums) {
  __shared__ unsigned starts[kSortDigits];
  __shared__ unsigned counts[kSortDigits][kSortThreads];
  if (threadIdx.x < kSortDigits) {
    const unsigned place = threadIdx.x * gridDim.x + blockIdx.x;
    starts[threadIdx.x] = place == 0 ? 0U : sums[place - 1U];
  }
  __syncthreads();
  const unsigned first = blockIdx.x * kSortTile;
  const unsigned items = count - first < kSortTile ? count - first : kSortTile;
  scatter_tile(buffers, bits, shift, first, first + items, kSortEachMost, starts, counts);
}

/* A number for any place. */
struct always {
  unsigned value;
  __device__ inline unsigned operator[](unsigned) const { return value; }
};

template <class Key, class Value>
cudaError_t sort_all(void* temporary, size_t& bytes, const Key* keys_in, Key* keys_out,
                     const Value* values_in, Value* values_out, long long count, key_bits bits,
                     cudaStream_t stream) {
  if (count < 0 || count > 0xffffffffLL) return cudaErrorInvalidValue;
  const unsigned tiles = static_cast<unsigned>((count + kSortTile - 1) / kSortTile);
  storage pieces(temporary, bytes);
  unsigned* const counts = pieces.take<unsigned>(size_t{tiles} * kSortDigits);
  const auto data =
      take_sort_data(pieces, keys_in, keys_out, values_in, values_out, static_cast<size_t>(count));
  if (temporary == nullptr) {
    bytes = pieces.bytes();
    return cudaSuccess;
  }
  if (!pieces.fits()) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  if (tiles <= 2) {
    sort_segments_kernel<<<1, kSortThreads, 0, stream>>>(data, bits, always{0},
                                                         always{static_cast<unsigned>(count)});
    return cudaPeekAtLastError();
  }
  const int passes =
      bits.end > bits.begin ? (bits.end - bits.begin + kSortBits - 1) / kSortBits : 1;
  for (int pass = 0; pass < passes; ++pass) {
    const sort_buffers<Key, Value> buffers = data.pass(pass, passes);
    const int shift = pass * kSortBits;
    sort_count_kernel<<<tiles, kSortThreads, 0, stream>>>(buffers, bits, shift,
                                                          static_cast<unsigned>(count), counts);
    scan_of_totals_kernel<<<1, kScanThreads, 0, stream>>>(counts, tiles * kSortDigits, Sum());
    sort_scatter_kernel<<<tiles, kSortThreads, 0, stream>>>(
        buffers, bits, shift, static_cast<unsigned>(count), static_cast<const unsigned*>(counts));
  }
  return cudaPeekAtLastError();
}

} /* namespace detail */

/* Stable sorts of up to 2^32 - 1 keys by their bits begin to end - 1. `in` and `out` do not
 * overlap; of two DoubleBuffers the current ones are sorted, and the sorted ones are current
 * afterwards. First with a null `temporary`, for the bytes it takes; then with memory of the
 * device. Calls wait for nothing and allocate nothing. kInvalidValue: too many, or too little
 * memory. */
struct DeviceRadixSort {
#define KANSOKU_SORT(pairs, keys, is_descending)                                                   \
  template <class Key, class Value, class Count>                                                   \
  static cudaError_t pairs(void* temporary, size_t& bytes, const Key* keys_in, Key* keys_out,      \
                           const Value* values_in, Value* values_out, Count count, int begin = 0,  \
                           int end = sizeof(Key) * 8, cudaStream_t stream = nullptr) {             \
    return detail::sort_all(temporary, bytes, keys_in, keys_out, values_in, values_out,            \
                            static_cast<long long>(count),                                         \
                            detail::key_bits{begin, end, is_descending}, stream);                  \
  }                                                                                                \
  template <class Key, class Value, class Count>                                                   \
  static cudaError_t pairs(void* temporary, size_t& bytes, DoubleBuffer<Key>& keys,                \
                           DoubleBuffer<Value>& values, Count count, int begin = 0,                \
                           int end = sizeof(Key) * 8, cudaStream_t stream = nullptr) {             \
    const cudaError_t status =                                                                     \
        pairs(temporary, bytes, keys.Current(), keys.Alternate(), values.Current(),                \
              values.Alternate(), count, begin, end, stream);                                      \
    if (temporary != nullptr && status == cudaSuccess) {                                           \
      keys.selector ^= 1;                                                                          \
      values.selector ^= 1;                                                                        \
    }                                                                                              \
    return status;                                                                                 \
  }                                                                                                \
  template <class Key, class Count>                                                                \
  static cudaError_t keys(void* temporary, size_t& bytes, const Key* in, Key* out, Count count,    \
                          int begin = 0, int end = sizeof(Key) * 8,                                \
                          cudaStream_t stream = nullptr) {                                         \
    const NullType* const none = nullptr;                                                          \
    return pairs(temporary, bytes, in, out, none, static_cast<NullType*>(nullptr), count, begin,   \
                 end, stream);                                                                     \
  }                                                                                                \
  template <class Key, class Count>                                                                \
  static cudaError_t keys(void* temporary, size_t& bytes, DoubleBuffer<Key>& buffers, Count count, \
                          int begin = 0, int end = sizeof(Key) * 8,                                \
                          cudaStream_t stream = nullptr) {                                         \
    const cudaError_t status =                                                                     \
        keys(temporary, bytes, buffers.Current(), buffers.Alternate(), count, begin, end, stream); \
    if (temporary != nullptr && status == cudaSuccess) buffers.selector ^= 1;                      \
    return status;                                                                                 \
  }
  KANSOKU_SORT(SortPairs, SortKeys, false)
  KANSOKU_SORT(SortPairsDescending, SortKeysDescending, true)
#undef KANSOKU_SORT
};

} /* namespace cub */
