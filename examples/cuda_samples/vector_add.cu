// SPDX-License-Identifier: Apache-2.0
// Adds two vectors; a loop with the stride of the grid serves any length.
#include "sample.h"

__global__ void add(const float* a, const float* b, float* sum, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum[i] = a[i] + b[i];
}

int main() {
  const int n = 100003;
  const std::vector<float> a = numbers(n, 1), b = numbers(n, 2);
  float *device_a = upload(a), *device_b = upload(b), *device_sum = nullptr;
  CHECK(cudaMalloc(&device_sum, n * sizeof(float)));
  add<<<64, 256>>>(device_a, device_b, device_sum, n);
  CHECK(cudaGetLastError());
  std::vector<float> expected(n);
  for (int i = 0; i < n; ++i)
    expected[i] = a[i] + b[i];
  const bool is_right = equal(download(device_sum, n), expected);
  for (float* array : {device_a, device_b, device_sum})
    CHECK(cudaFree(array));
  return finish("vector_add", is_right);
}
