// SPDX-License-Identifier: Apache-2.0
// examples/gpu/softmax.cc in OpenCL C. PoCL 3.1 has no sub-groups: what the warp shuffles there
// goes through local memory here, lane by lane in the same order. native_exp: PoCL takes
// longer for native_exp2 of a product.
#define LANES 32

float larger(float a, float b) {
  return a > b ? a : b;
}

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

float warp_max(local float* lanes, float value) {
  const int lane = get_local_id(0);
  for (int other = LANES / 2; other > 0; other /= 2) {
    lanes[lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    value = larger(value, lanes[lane ^ other]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return value;
}

__attribute__((reqd_work_group_size(LANES, 1, 1))) kernel void softmax(
    global const float* in, global float* out, int columns) {
  local float lanes[LANES];
  global const float* const row = in + (long)get_group_id(0) * columns;
  global float* const result = out + (long)get_group_id(0) * columns;
  float most = -INFINITY;
  for (int i = get_local_id(0); i < columns; i += LANES)
    most = larger(most, row[i]);
  most = warp_max(lanes, most);
  float sum = 0;
  for (int i = get_local_id(0); i < columns; i += LANES) {
    result[i] = native_exp(row[i] - most);
    sum += result[i];
  }
  sum = warp_sum(lanes, sum);
  for (int i = get_local_id(0); i < columns; i += LANES)
    result[i] /= sum;
}
