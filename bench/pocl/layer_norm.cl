// SPDX-License-Identifier: Apache-2.0
// examples/gpu/layer_norm.cc in OpenCL C. PoCL 3.1 has no sub-groups: what the warp shuffles there
// goes through local memory here, lane by lane in the same order.
#define LANES 32

float warp_sum(local float* lanes, float value) {
  const int lane = get_local_id(0);
  for (int other = LANES / 2; other > 0; other /= 2) {
    lanes[lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    value += lanes[lane ^ other];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return value;
}

__attribute__((reqd_work_group_size(LANES, 1, 1))) kernel void layer_norm(
    global const float* in, global const float* scale, global const float* shift, global float* out,
    int columns, float epsilon) {
  local float lanes[LANES];
  global const float* const row = in + (long)get_group_id(0) * columns;
  global float* const result = out + (long)get_group_id(0) * columns;
  float sum = 0;
  for (int i = get_local_id(0); i < columns; i += LANES)
    sum += row[i];
  const float mean = warp_sum(lanes, sum) / (float)columns;
  float squares = 0;
  for (int i = get_local_id(0); i < columns; i += LANES) {
    const float difference = row[i] - mean;
    squares = fma(difference, difference, squares);
  }
  const float variance = warp_sum(lanes, squares) / (float)columns;
  const float factor = 1.0F / sqrt(variance + epsilon);
  for (int i = get_local_id(0); i < columns; i += LANES)
    result[i] = fma((row[i] - mean) * factor, scale[i], shift[i]);
}
