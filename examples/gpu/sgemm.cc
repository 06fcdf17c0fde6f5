// SPDX-License-Identifier: Apache-2.0
// C = A * B of square matrices, row by row in memory, tiles of 16 x 16 in shared memory; n is a
// multiple of 16. One thread an element: grid (n / 16, n / 16), block (16, 16).
#include "device.h"

namespace {
constexpr int kTile = 16;
}

KERNEL void sgemm(const float* a, const float* b, float* c, int n) {
  SHARED float tile_a[kTile][kTile];
  SHARED float tile_b[kTile][kTile];
  const int x = device::thread_x(), y = device::thread_y();
  const int column = device::block_x() * kTile + x, row = device::block_y() * kTile + y;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    device::barrier();
    for (int i = 0; i < kTile; ++i)
      sum = device::fma(tile_a[y][i], tile_b[i][x], sum);
    device::barrier();
  }
  c[row * n + column] = sum;
}
