// SPDX-License-Identifier: Apache-2.0
// The product of two matrices, tile by tile through shared memory; the sizes are no multiples of a
// tile.
#include "sample.h"

constexpr int kTile = 16;

// c (rows x columns) = a (rows x inner) b (inner x columns), all of them row by row.
__global__ void multiply(const float* a, const float* b, float* c, int rows, int inner,
                         int columns) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0F;
  for (int first = 0; first < inner; first += kTile) {
    const int k_a = first + threadIdx.x, k_b = first + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : 0.0F;
    tile_b[threadIdx.y][threadIdx.x] =
        column < columns && k_b < inner ? b[k_b * columns + column] : 0.0F;
    __syncthreads();
    for (int k = 0; k < kTile; ++k)
      sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

int main() {
  const int rows = 75, inner = 130, columns = 50;
  const std::vector<float> a = numbers(rows * inner, 1), b = numbers(inner * columns, 2);
  float *device_a = upload(a), *device_b = upload(b), *device_c = nullptr;
  CHECK(cudaMalloc(&device_c, rows * columns * sizeof(float)));
  const dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  multiply<<<grid, dim3(kTile, kTile)>>>(device_a, device_b, device_c, rows, inner, columns);
  CHECK(cudaGetLastError());
  std::vector<float> expected(rows * columns);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      double sum = 0;
      for (int k = 0; k < inner; ++k)
        sum += static_cast<double>(a[row * inner + k]) * b[k * columns + column];
      expected[row * columns + column] = static_cast<float>(sum);
    }
  }
  const bool is_right = equal(download(device_c, expected.size()), expected, 1e-4);
  for (float* array : {device_a, device_b, device_c})
    CHECK(cudaFree(array));
  return finish("matrix_product", is_right);
}
