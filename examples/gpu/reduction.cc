// SPDX-License-Identifier: Apache-2.0
// Sum of n numbers: each block of 256 threads adds what it finds, halves the sums in shared memory
// and adds the rest to *sum.
#include "device.h"

KERNEL void reduce_sum(const float* values, float* sum, int n) {
  SHARED float partial[256];
  const int thread = device::thread_x();
  float own = 0;
  for (int i = device::global_x(); i < n; i += device::grid_size_x() * device::block_size_x())
    own += values[i];
  partial[thread] = own;
  device::barrier();
  for (int half = 128; half > 0; half /= 2) {
    if (thread < half) partial[thread] += partial[thread + half];
    device::barrier();
  }
  if (thread == 0) __nvvm_atom_add_gen_f(sum, partial[0]);
}
