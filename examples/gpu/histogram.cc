// SPDX-License-Identifier: Apache-2.0
// How often each byte value occurs: counted in shared memory, block by block, then added up.
// Block (256).
#include "device.h"

KERNEL void histogram(const unsigned char* bytes, unsigned* counts, int n) {
  SHARED unsigned own[256];
  own[device::thread_x()] = 0;
  device::barrier();
  for (int i = device::global_x(); i < n; i += device::grid_size_x() * device::block_size_x())
    __atomic_fetch_add(&own[bytes[i]], 1U, __ATOMIC_RELAXED);
  device::barrier();
  __atomic_fetch_add(&counts[device::thread_x()], own[device::thread_x()], __ATOMIC_RELAXED);
}
