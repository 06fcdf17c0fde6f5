// SPDX-License-Identifier: Apache-2.0
// examples/gpu/reduction.cc in OpenCL C. OpenCL has no atomic addition of floats: a loop of
// exchanges, once a work-group.
__attribute__((reqd_work_group_size(256, 1, 1))) kernel void reduce_sum(
    global const float* values, global float* sum, int n) {
  local float partial[256];
  const int thread = get_local_id(0);
  float own = 0;
  for (int i = get_global_id(0); i < n; i += get_global_size(0))
    own += values[i];
  partial[thread] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_count = 128; half_count > 0; half_count /= 2) {
    if (thread < half_count) partial[thread] += partial[thread + half_count];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (thread == 0) {
    volatile global int* const place = (volatile global int*)sum;
    int found = *place, expected;
    do {
      expected = found;
      found = atomic_cmpxchg(place, expected, as_int(as_float(expected) + partial[0]));
    } while (found != expected);
  }
}
