/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "../block/block_reduce.cuh"

namespace cub {
namespace detail {

constexpr int kReduceThreads = 256;
constexpr unsigned kReduceBlocksMost = 256;

/* Each block: what `operation` makes of its share of the items, in order; the last step also of
 * the initial value. */
template <class Accumulated, class In, class Out, class Operation, class Initial>
__global__ void reduce_kernel(In in, Out out, unsigned long long count, Operation operation,
                              Initial initial, bool is_last) {
  using Block = BlockReduce<Accumulated, kReduceThreads>;
  __shared__ typename Block::TempStorage storage;
  const unsigned long long share = (count + gridDim.x - 1) / gridDim.x, first = share * blockIdx.x;
  const unsigned long long end = first + share < count ? first + share : count;
  const unsigned long long items = first < end ? end - first : 0;
  /* Threads have neighbouring items, so that the order of the items is kept. */
  const unsigned long long each = (items + kReduceThreads - 1) / kReduceThreads;
  const unsigned long long mine = first + each * threadIdx.x;
  const unsigned long long mine_end = mine + each < end ? mine + each : end;
  Accumulated value{};
  if (mine < mine_end) {
    value = static_cast<Accumulated>(in[mine]);
    for (unsigned long long i = mine + 1; i < mine_end; ++i)
      value = static_cast<Accumulated>(operation(value, in[i]));
  }
  const int valid = each == 0 ? 0 : static_cast<int>((items + each - 1) / each);
  if (valid > 0) value = Block(storage).Reduce(value, operation, valid);
  if (threadIdx.x != 0) return;
  if (!is_last) {
    out[blockIdx.x] = value;
  } else if (valid == 0) {
    out[0] = initial;
  } else {
    out[0] = operation(initial, value);
  }
}

template <class In, class Out, class Operation, class Initial>
cudaError_t reduce(void* temporary, size_t& bytes, In in, Out out, unsigned long long count,
                   Operation operation, Initial initial, cudaStream_t stream) {
  using Accumulated = result_of<Operation, Initial, value_of<In>>;
  unsigned long long blocks = (count + kReduceThreads * 16 - 1) / (kReduceThreads * 16);
  if (blocks > kReduceBlocksMost) blocks = kReduceBlocksMost;
  storage pieces(temporary, bytes);
  Accumulated* const parts = pieces.take<Accumulated>(blocks);
  if (temporary == nullptr) {
    bytes = pieces.bytes();
    return cudaSuccess;
  }
  if (!pieces.fits()) return cudaErrorInvalidValue;
  if (blocks <= 1) {
    reduce_kernel<Accumulated>
        <<<1, kReduceThreads, 0, stream>>>(in, out, count, operation, initial, true);
    return cudaPeekAtLastError();
  }
  reduce_kernel<Accumulated><<<static_cast<unsigned>(blocks), kReduceThreads, 0, stream>>>(
      in, parts, count, operation, initial, false);
  reduce_kernel<Accumulated>
      <<<1, kReduceThreads, 0, stream>>>(parts, out, blocks, operation, initial, true);
  return cudaPeekAtLastError();
}

template <class T>
struct extremes {
  static __host__ T least() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  static __host__ T greatest() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
};
template <>
struct extremes<__half> {
  static __host__ __half least() { return __half(-std::numeric_limits<float>::infinity()); }
  static __host__ __half greatest() { return __half(std::numeric_limits<float>::infinity()); }
};
template <>
struct extremes<__nv_bfloat16> {
  static __host__ __nv_bfloat16 least() {
    return __nv_bfloat16(-std::numeric_limits<float>::infinity());
  }
  static __host__ __nv_bfloat16 greatest() {
    return __nv_bfloat16(std::numeric_limits<float>::infinity());
  }
};

/* Items with their places. */
template <class In>
struct indexed {
  In in;
  using Pair = KeyValuePair<int, value_of<In>>;
  __host__ __device__ inline Pair operator[](unsigned long long i) const {
    return Pair{static_cast<int>(i), in[i]};
  }
  __host__ __device__ inline Pair operator*() const { return (*this)[0]; }
};

} /* namespace detail */

/* One value of all items. First with a null `temporary`, for the bytes it takes; then with memory
 * of the device. Calls wait for nothing and allocate nothing. Same items, same bits. */
struct DeviceReduce {
  template <class In, class Out, class Operation, class T, class Count>
  static cudaError_t Reduce(void* temporary, size_t& bytes, In in, Out out, Count count,
                            Operation operation, T initial, cudaStream_t stream = nullptr) {
    return detail::reduce(temporary, bytes, in, out, static_cast<unsigned long long>(count),
                          operation, initial, stream);
  }
  template <class In, class Out, class Count>
  static cudaError_t Sum(void* temporary, size_t& bytes, In in, Out out, Count count,
                         cudaStream_t stream = nullptr) {
    using T = std::decay_t<decltype(out[0])>;
    return Reduce(temporary, bytes, in, out, count, cub::Sum(), T{}, stream);
  }
  template <class In, class Out, class Count>
  static cudaError_t Min(void* temporary, size_t& bytes, In in, Out out, Count count,
                         cudaStream_t stream = nullptr) {
    using T = detail::value_of<In>;
    return Reduce(temporary, bytes, in, out, count, cub::Min(), detail::extremes<T>::greatest(),
                  stream);
  }
  template <class In, class Out, class Count>
  static cudaError_t Max(void* temporary, size_t& bytes, In in, Out out, Count count,
                         cudaStream_t stream = nullptr) {
    using T = detail::value_of<In>;
    return Reduce(temporary, bytes, in, out, count, cub::Max(), detail::extremes<T>::least(),
                  stream);
  }
  /* Of no items: {1, greatest}, and {1, least} with ArgMax. */
  template <class In, class Out, class Count>
  static cudaError_t ArgMin(void* temporary, size_t& bytes, In in, Out out, Count count,
                            cudaStream_t stream = nullptr) {
    using T = detail::value_of<In>;
    const KeyValuePair<int, T> initial{1, detail::extremes<T>::greatest()};
    return Reduce(temporary, bytes, detail::indexed<In>{in}, out, count, cub::ArgMin(),
                  count == 0 ? initial : KeyValuePair<int, T>{0x7fffffff, initial.value}, stream);
  }
  template <class In, class Out, class Count>
  static cudaError_t ArgMax(void* temporary, size_t& bytes, In in, Out out, Count count,
                            cudaStream_t stream = nullptr) {
    using T = detail::value_of<In>;
    const KeyValuePair<int, T> initial{1, detail::extremes<T>::least()};
    return Reduce(temporary, bytes, detail::indexed<In>{in}, out, count, cub::ArgMax(),
                  count == 0 ? initial : KeyValuePair<int, T>{0x7fffffff, initial.value}, stream);
  }
};

} /* namespace cub */
