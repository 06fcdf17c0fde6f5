// SPDX-License-Identifier: Apache-2.0
// Second image of bad_input.cu, with two variables of 20 MiB.

cudaError_t launch_big(int value);

__device__ int first_large[5 << 20], second_large[5 << 20];

namespace {
__global__ void fill(int value) {
  first_large[value] = second_large[value];
  second_large[value] = value;
}
}  // namespace

cudaError_t launch_big(int value) {
  fill<<<1, 1>>>(value);
  return cudaGetLastError();
}
