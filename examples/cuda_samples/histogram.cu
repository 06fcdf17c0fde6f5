// SPDX-License-Identifier: Apache-2.0
// How often each byte occurs: each block counts by atomic additions in shared memory and adds its
// counts to those of all.
#include "sample.h"

constexpr int kBins = 256;

__global__ void count(const unsigned char* bytes, unsigned* bins, int n) {
  __shared__ unsigned of_block[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x)
    of_block[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&of_block[bytes[i]], 1U);
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x)
    if (of_block[bin] != 0) atomicAdd(&bins[bin], of_block[bin]);
}

int main() {
  const int n = 150007;
  std::vector<unsigned char> bytes;
  std::vector<unsigned> expected(kBins);
  for (const float number : numbers(n)) {
    bytes.push_back(static_cast<unsigned char>(number * number * 256));
    ++expected[bytes.back()];
  }
  unsigned char* device_bytes = upload(bytes);
  unsigned* bins = nullptr;
  CHECK(cudaMalloc(&bins, kBins * sizeof(unsigned)));
  CHECK(cudaMemset(bins, 0, kBins * sizeof(unsigned)));
  count<<<16, 128>>>(device_bytes, bins, n);
  CHECK(cudaGetLastError());
  const bool is_right = equal(download(bins, kBins), expected);
  CHECK(cudaFree(device_bytes));
  CHECK(cudaFree(bins));
  return finish("histogram", is_right);
}
