/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "detail_radix_sort.cuh"

namespace cub {

/* As DeviceSegmentedRadixSort by all bits of the keys. Here all of these sorts are stable. */
struct DeviceSegmentedSort {
#define KANSOKU_SORT(pairs, keys, is_descending)                                               \
  template <class Key, class Value, class Begins, class Ends>                                  \
  static cudaError_t pairs(void* temporary, size_t& bytes, const Key* keys_in, Key* keys_out,  \
                           const Value* values_in, Value* values_out, long long count,         \
                           long long segments, Begins begins, Ends ends,                       \
                           cudaStream_t stream = nullptr) {                                    \
    return detail::sort_segments(temporary, bytes, keys_in, keys_out, values_in, values_out,   \
                                 count, segments, begins, ends,                                \
                                 detail::key_bits{0, sizeof(Key) * 8, is_descending}, stream); \
  }                                                                                            \
  template <class Key, class Begins, class Ends>                                               \
  static cudaError_t keys(void* temporary, size_t& bytes, const Key* in, Key* out,             \
                          long long count, long long segments, Begins begins, Ends ends,       \
                          cudaStream_t stream = nullptr) {                                     \
    const NullType* const none = nullptr;                                                      \
    return pairs(temporary, bytes, in, out, none, static_cast<NullType*>(nullptr), count,      \
                 segments, begins, ends, stream);                                              \
  }
  KANSOKU_SORT(SortPairs, SortKeys, false)
  KANSOKU_SORT(SortPairsDescending, SortKeysDescending, true)
  KANSOKU_SORT(StableSortPairs, StableSortKeys, false)
  KANSOKU_SORT(StableSortPairsDescending, StableSortKeysDescending, true)
#undef KANSOKU_SORT
};

} /* namespace cub */
