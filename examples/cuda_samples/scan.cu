// SPDX-License-Identifier: Apache-2.0
// Running sums (an inclusive scan) of a long vector: each block scans its part, one block scans the
// totals of the parts, and each part adds the total before it.
#include "sample.h"

constexpr int kThreads = 256;

// The running sum within a block; by warps first.
__device__ unsigned scan_of_block(unsigned value) {
  __shared__ unsigned of_warps[kThreads / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffU, value, distance);
    if (lane >= distance) value += other;
  }
  if (lane == 31) of_warps[warp] = value;
  __syncthreads();
  for (unsigned i = 0; i < warp; ++i)
    value += of_warps[i];
  return value;
}

__global__ void scan_parts(const unsigned* in, unsigned* out, unsigned* totals, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const unsigned sum = scan_of_block(i < n ? in[i] : 0);
  if (i < n) out[i] = sum;
  if (totals != nullptr && threadIdx.x == kThreads - 1) totals[blockIdx.x] = sum;
}
__global__ void add_before(unsigned* out, const unsigned* totals, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n && blockIdx.x > 0) out[i] += totals[blockIdx.x - 1];
}

int main() {
  const int n = 60001, parts = (n + kThreads - 1) / kThreads;  // parts: one block scans them
  std::vector<unsigned> in(n), expected(n);
  unsigned sum = 0;
  for (int i = 0; i < n; ++i)
    expected[i] = sum += in[i] = static_cast<unsigned>(i) * 7919U % 1000U;
  unsigned *device_in = upload(in), *out = nullptr, *totals = nullptr;
  CHECK(cudaMalloc(&out, n * sizeof(unsigned)));
  CHECK(cudaMalloc(&totals, parts * sizeof(unsigned)));
  scan_parts<<<parts, kThreads>>>(device_in, out, totals, n);
  scan_parts<<<1, kThreads>>>(totals, totals, nullptr, parts);
  add_before<<<parts, kThreads>>>(out, totals, n);
  CHECK(cudaGetLastError());
  const bool is_right = equal(download(out, n), expected);
  for (unsigned* array : {device_in, out, totals})
    CHECK(cudaFree(array));
  return finish("scan", is_right);
}
