// SPDX-License-Identifier: Apache-2.0
// examples/gpu/histogram.cc in OpenCL C.
__attribute__((reqd_work_group_size(256, 1, 1))) kernel void histogram(
    global const uchar* bytes, global uint* counts, int n) {
  local uint own[256];
  own[get_local_id(0)] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = get_global_id(0); i < n; i += get_global_size(0))
    atomic_add(&own[bytes[i]], 1U);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&counts[get_local_id(0)], own[get_local_id(0)]);
}
