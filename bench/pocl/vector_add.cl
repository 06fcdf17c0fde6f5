// SPDX-License-Identifier: Apache-2.0
// examples/gpu/vector_add.cc in OpenCL C.
__attribute__((reqd_work_group_size(256, 1, 1))) kernel void vector_add(
    global const float* a, global const float* b, global float* c, int n) {
  const int i = get_global_id(0);
  if (i < n) c[i] = a[i] + b[i];
}
