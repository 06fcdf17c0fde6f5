// SPDX-License-Identifier: Apache-2.0
// examples/gpu/sgemm.cc in OpenCL C.
#define TILE 16

__attribute__((reqd_work_group_size(TILE, TILE, 1))) kernel void sgemm(
    global const float* a, global const float* b, global float* c, int n) {
  local float tile_a[TILE][TILE];
  local float tile_b[TILE][TILE];
  const int x = get_local_id(0), y = get_local_id(1);
  const int column = get_group_id(0) * TILE + x, row = get_group_id(1) * TILE + y;
  float sum = 0;
  for (int k = 0; k < n; k += TILE) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < TILE; ++i)
      sum = fma(tile_a[y][i], tile_b[i][x], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * n + column] = sum;
}
