/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../block/block_scan.cuh"

namespace cub {
namespace detail {

constexpr int kScanThreads = 256;
constexpr unsigned kScanEach = 8, kScanTile = kScanThreads * kScanEach;

/* In totals[tile] what `operation` makes of the items of a tile. */
template <class Accumulated, class In, class Operation>
__global__ void scan_totals_kernel(In in, Accumulated* totals, unsigned long long count,
                                   Operation operation) {
  using Block = BlockScan<Accumulated, kScanThreads>;
  __shared__ typename Block::TempStorage storage;
  const unsigned long long first =
      static_cast<unsigned long long>(blockIdx.x) * kScanTile + threadIdx.x * kScanEach;
  /* All tiles but the last are whole, and the last one's total nobody asks for. */
  Accumulated value = static_cast<Accumulated>(in[first < count ? first : count - 1]);
  for (unsigned i = 1; i < kScanEach; ++i)
    if (first + i < count) value = static_cast<Accumulated>(operation(value, in[first + i]));
  Accumulated inclusive;
  Block(storage).InclusiveScan(value, inclusive, operation);
  if (threadIdx.x == kScanThreads - 1) totals[blockIdx.x] = inclusive;
}
/* An inclusive scan of them, by one block. */
template <class Accumulated, class Operation>
__global__ void scan_of_totals_kernel(Accumulated* totals, unsigned count, Operation operation) {
  using Block = BlockScan<Accumulated, kScanThreads>;
  __shared__ typename Block::TempStorage storage;
  __shared__ room<Accumulated, 1> carry;
  for (unsigned first = 0; first < count; first += kScanThreads) {
    const unsigned i = first + threadIdx.x;
    Accumulated value = totals[i < count ? i : count - 1];
    Block(storage).InclusiveScan(value, value, operation);
    if (first > 0) value = operation(carry[0], value);
    __syncthreads();
    if (i < count) totals[i] = value;
    if (threadIdx.x == kScanThreads - 1) carry[0] = value;
    __syncthreads();
  }
}
/* The scan of each tile, after what lies before it. */
template <class Accumulated, bool IsInclusive, bool HasInitial, class In, class Out,
          class Operation, class Initial>
__global__ void scan_kernel(In in, Out out, const Accumulated* totals, unsigned long long count,
                            Operation operation, Initial initial) {
  using Block = BlockScan<Accumulated, kScanThreads>;
  __shared__ typename Block::TempStorage storage;
  const unsigned long long first =
      static_cast<unsigned long long>(blockIdx.x) * kScanTile + threadIdx.x * kScanEach;
  Accumulated items[kScanEach];
  for (unsigned i = 0; i < kScanEach; ++i)
    items[i] = static_cast<Accumulated>(in[first + i < count ? first + i : count - 1]);
  Accumulated of_thread = items[0], running;
  for (unsigned i = 1; i < kScanEach; ++i)
    of_thread = operation(of_thread, items[i]);
  Block(storage).ExclusiveScan(of_thread, running, operation);
  bool has_running = threadIdx.x > 0;
  if (blockIdx.x > 0) {
    const Accumulated before = totals[blockIdx.x - 1];
    running = has_running ? static_cast<Accumulated>(operation(before, running)) : before;
    has_running = true;
  }
  if constexpr (HasInitial) {
    const Accumulated begin = static_cast<Accumulated>(initial);
    running = has_running ? static_cast<Accumulated>(operation(begin, running)) : begin;
    has_running = true;
  }
  for (unsigned i = 0; i < kScanEach; ++i) {
    const Accumulated next =
        has_running ? static_cast<Accumulated>(operation(running, items[i])) : items[i];
    if (first + i < count) out[first + i] = IsInclusive ? next : running;
    running = next;
    has_running = true;
  }
}

template <bool IsInclusive, bool HasInitial, class In, class Out, class Operation, class Initial>
cudaError_t scan(void* temporary, size_t& bytes, In in, Out out, unsigned long long count,
                 Operation operation, Initial initial, cudaStream_t stream) {
  using Accumulated = result_of<Operation, Initial, value_of<In>>;
  const unsigned long long tiles = (count + kScanTile - 1) / kScanTile;
  storage pieces(temporary, bytes);
  Accumulated* const totals = pieces.take<Accumulated>(tiles);
  if (temporary == nullptr) {
    bytes = pieces.bytes();
    return cudaSuccess;
  }
  if (!pieces.fits() || tiles > 0x7fffffffULL) return cudaErrorInvalidValue;
  if (tiles == 0) return cudaSuccess;
  const unsigned blocks = static_cast<unsigned>(tiles);
  if (blocks > 1) {
    scan_totals_kernel<<<blocks, kScanThreads, 0, stream>>>(in, totals, count, operation);
    scan_of_totals_kernel<<<1, kScanThreads, 0, stream>>>(totals, blocks, operation);
  }
  scan_kernel<Accumulated, IsInclusive, HasInitial><<<blocks, kScanThreads, 0, stream>>>(
      in, out, static_cast<const Accumulated*>(totals), count, operation, initial);
  return cudaPeekAtLastError();
}

} /* namespace detail */

/* Running sums and their like; `out` may be `in`. First with a null `temporary`, for the bytes it
 * takes; then with memory of the device. Calls wait for nothing and allocate nothing. Same items,
 * same bits. */
struct DeviceScan {
  template <class In, class Out, class Count>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, In in, Out out, Count count,
                                  cudaStream_t stream = nullptr) {
    return InclusiveScan(temporary, bytes, in, out, cub::Sum(), count, stream);
  }
  template <class In, class Out, class Count>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, In in, Out out, Count count,
                                  cudaStream_t stream = nullptr) {
    return ExclusiveScan(temporary, bytes, in, out, cub::Sum(), detail::value_of<In>{}, count,
                         stream);
  }
  template <class In, class Out, class Operation, class Count>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, In in, Out out,
                                   Operation operation, Count count,
                                   cudaStream_t stream = nullptr) {
    return detail::scan<true, false>(temporary, bytes, in, out,
                                     static_cast<unsigned long long>(count), operation,
                                     detail::value_of<In>{}, stream);
  }
  template <class In, class Out, class Operation, class Initial, class Count>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, In in, Out out,
                                   Operation operation, Initial initial, Count count,
                                   cudaStream_t stream = nullptr) {
    return detail::scan<false, true>(temporary, bytes, in, out,
                                     static_cast<unsigned long long>(count), operation, initial,
                                     stream);
  }
  /* In place. */
  template <class Items, class Count>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, Items items, Count count,
                                  cudaStream_t stream = nullptr) {
    return InclusiveSum(temporary, bytes, items, items, count, stream);
  }
  template <class Items, class Count>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, Items items, Count count,
                                  cudaStream_t stream = nullptr) {
    return ExclusiveSum(temporary, bytes, items, items, count, stream);
  }
};

} /* namespace cub */
