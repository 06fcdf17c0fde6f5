/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../block/block_scan.cuh"

/* What the sorts share: keys as unsigned numbers of the same order, and stable passes over 4 bits
 * of them, from the lowest on. */

namespace cub {
namespace detail {

template <class Key>
struct is_floating_key : std::is_floating_point<Key> {};
template <>
struct is_floating_key<__half> : std::true_type {};
template <>
struct is_floating_key<__nv_bfloat16> : std::true_type {};
template <int Bytes>
struct bits_of_bytes {
  using type = unsigned;
};
template <>
struct bits_of_bytes<1> {
  using type = unsigned char;
};
template <>
struct bits_of_bytes<2> {
  using type = unsigned short;
};
template <>
struct bits_of_bytes<8> {
  using type = unsigned long long;
};

/* Bits begin to end - 1 of a key, as a number that orders as the keys do. -0 equals +0; what is
 * not a number lies beyond infinity, on its sign's side. */
struct key_bits {
  int begin, end;
  bool is_descending;
  template <class Key>
  using word = std::conditional_t<sizeof(Key) == 8, unsigned long long, unsigned>;
  template <class Key>
  __device__ inline word<Key> operator()(Key key) const {
    static_assert(sizeof(Key) == 1 || sizeof(Key) == 2 || sizeof(Key) == 4 || sizeof(Key) == 8,
                  "keys have 1, 2, 4 or 8 bytes");
    using Word = word<Key>;
    typename bits_of_bytes<sizeof(Key)>::type same;
    __builtin_memcpy(&same, &key, sizeof(Key));
    constexpr Word kSign = Word{1} << (sizeof(Key) * 8 - 1);
    Word bits = same;
    if constexpr (is_floating_key<Key>::value) {
      if (bits == kSign) bits = 0;
      bits = (bits & kSign) != 0 ? ~bits : bits | kSign;
    } else if constexpr (std::is_signed<Key>::value) {
      bits ^= kSign;
    }
    if (is_descending) bits = ~bits;
    const Word mask = end - begin >= static_cast<int>(sizeof(Word) * 8)
                          ? ~Word{0}
                          : (Word{1} << (end - begin)) - 1;
    return bits >> begin & mask;
  }
};

constexpr int kSortThreads = 128, kSortBits = 4, kSortDigits = 1 << kSortBits;
constexpr unsigned kSortEachMost = 16, kSortTile = kSortThreads * kSortEachMost;
/* Up to here a segment is sorted by counting who comes before whom. */
constexpr unsigned kSortBySight = kSortThreads;

template <class Key, class Value>
struct sort_buffers {
  const Key* keys;
  Key* keys_to;
  const Value* values;
  Value* values_to;
  __device__ inline void move(unsigned from, unsigned to) const {
    keys_to[to] = keys[from];
    if constexpr (!std::is_same<Value, NullType>::value) values_to[to] = values[from];
  }
};

/* A block moves items first to end - 1 to where their digits belong: starts[d] is where the next
 * item with digit d goes. `counts` holds kSortDigits columns, one number for each thread. */
template <class Key, class Value>
__device__ inline void scatter_tile(const sort_buffers<Key, Value>& buffers, key_bits bits,
                                    int shift, unsigned first, unsigned end, unsigned each,
                                    unsigned* starts, unsigned (*counts)[kSortThreads]) {
  const unsigned thread = threadIdx.x, lane = thread % 32U;
  for (int d = 0; d < kSortDigits; ++d)
    counts[d][thread] = 0;
  const unsigned mine = first + thread * each;
  const unsigned mine_end = mine >= end ? mine : end - mine < each ? end : mine + each;
  for (unsigned i = mine; i < mine_end; ++i)
    ++counts[bits(buffers.keys[i]) >> shift & (kSortDigits - 1)][thread];
  __syncthreads();
  /* Each warp scans the columns of a quarter of the digits, a lane four threads of each. */
  for (unsigned d = thread / 32U * 4U; d < thread / 32U * 4U + 4U; ++d) {
    unsigned* const column = counts[d] + lane * 4U;
    const unsigned of_lane = column[0] + column[1] + column[2] + column[3];
    const unsigned inclusive = scan_lanes(~0U, 0U, 32U, of_lane, Sum());
    unsigned next = starts[d] + inclusive - of_lane;
    for (int i = 0; i < 4; ++i) {
      const unsigned of_thread = column[i];
      column[i] = next;
      next += of_thread;
    }
    if (lane == 31U) starts[d] = next;
  }
  __syncthreads();
  for (unsigned i = mine; i < mine_end; ++i) {
    unsigned& place = counts[bits(buffers.keys[i]) >> shift & (kSortDigits - 1)][thread];
    buffers.move(i, place++);
  }
  __syncthreads();
}

/* Which of `out` and `alternate` each pass reads and writes, so that the last one writes `out`. */
template <class Key, class Value>
struct sort_data {
  const Key* keys_in;
  Key *keys_out, *keys_alternate;
  const Value* values_in;
  Value *values_out, *values_alternate;
  __host__ __device__ inline sort_buffers<Key, Value> pass(int i, int passes) const {
    const bool to_out = (passes - 1 - i) % 2 == 0;
    return {i == 0   ? keys_in
            : to_out ? keys_alternate
                     : keys_out,
            to_out ? keys_out : keys_alternate,
            i == 0   ? values_in
            : to_out ? values_alternate
                     : values_out,
            to_out ? values_out : values_alternate};
  }
};

/* Sorts a short segment: the place of an item is the number of those before it. */
template <class Key, class Value>
__device__ inline void sort_by_sight(const sort_data<Key, Value>& data, key_bits bits,
                                     unsigned first, unsigned count) {
  __shared__ key_bits::word<Key> keys[kSortBySight];
  const unsigned thread = threadIdx.x;
  if (thread < count) keys[thread] = bits(data.keys_in[first + thread]);
  __syncthreads();
  if (thread >= count) return;
  const key_bits::word<Key> mine = keys[thread];
  unsigned place = first;
  for (unsigned i = 0; i < count; ++i)
    place += keys[i] < mine || (keys[i] == mine && i < thread) ? 1U : 0U;
  data.pass(0, 1).move(first + thread, place);
}

/* A block sorts segment blockIdx.x by itself. */
template <class Key, class Value, class Begins, class Ends>
__global__ void sort_segments_kernel(sort_data<Key, Value> data, key_bits bits, Begins begins,
                                     Ends ends) {
  __shared__ unsigned starts[kSortDigits];
  __shared__ unsigned counts[kSortDigits][kSortThreads];
  const unsigned first = static_cast<unsigned>(begins[blockIdx.x]);
  const unsigned end = static_cast<unsigned>(ends[blockIdx.x]);
  if (end <= first) return;
  const unsigned count = end - first;
  if (count <= kSortBySight) return sort_by_sight(data, bits, first, count);
  const int passes =
      bits.end > bits.begin ? (bits.end - bits.begin + kSortBits - 1) / kSortBits : 1;
  unsigned each = (count + kSortThreads - 1) / kSortThreads;
  if (each > kSortEachMost) each = kSortEachMost;
  for (int pass = 0; pass < passes; ++pass) {
    const sort_buffers<Key, Value> buffers = data.pass(pass, passes);
    const int shift = pass * kSortBits;
    if (threadIdx.x < kSortDigits) starts[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = first + threadIdx.x; i < end; i += kSortThreads)
      atomicAdd(&starts[bits(buffers.keys[i]) >> shift & (kSortDigits - 1)], 1U);
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned next = first;
      for (int d = 0; d < kSortDigits; ++d) {
        const unsigned of_digit = starts[d];
        starts[d] = next;
        next += of_digit;
      }
    }
    __syncthreads();
    for (unsigned tile = 0; tile < count; tile += each * kSortThreads) {
      const unsigned tile_end =
          count - tile < each * kSortThreads ? end : first + tile + each * kSortThreads;
      scatter_tile(buffers, bits, shift, first + tile, tile_end, each, starts, counts);
    }
  }
}

/* Room for the alternate buffers. */
template <class Key, class Value>
sort_data<Key, Value> take_sort_data(storage& pieces, const Key* keys_in, Key* keys_out,
                                     const Value* values_in, Value* values_out, size_t count) {
  sort_data<Key, Value> data{keys_in, keys_out, nullptr, values_in, values_out, nullptr};
  data.keys_alternate = pieces.take<Key>(count);
  if constexpr (!std::is_same<Value, NullType>::value)
    data.values_alternate = pieces.take<Value>(count);
  return data;
}

template <class Key, class Value, class Begins, class Ends>
cudaError_t sort_segments(void* temporary, size_t& bytes, const Key* keys_in, Key* keys_out,
                          const Value* values_in, Value* values_out, long long count,
                          long long segments, Begins begins, Ends ends, key_bits bits,
                          cudaStream_t stream) {
  if (count < 0 || count > 0xffffffffLL || segments < 0 || segments > 0x7fffffffLL)
    return cudaErrorInvalidValue;
  storage pieces(temporary, bytes);
  const auto data =
      take_sort_data(pieces, keys_in, keys_out, values_in, values_out, static_cast<size_t>(count));
  if (temporary == nullptr) {
    bytes = pieces.bytes();
    return cudaSuccess;
  }
  if (!pieces.fits()) return cudaErrorInvalidValue;
  if (count == 0 || segments == 0) return cudaSuccess;
  sort_segments_kernel<<<static_cast<unsigned>(segments), kSortThreads, 0, stream>>>(data, bits,
                                                                                     begins, ends);
  return cudaPeekAtLastError();
}

} /* namespace detail */
} /* namespace cub */
