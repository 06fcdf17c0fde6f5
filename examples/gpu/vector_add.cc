// SPDX-License-Identifier: Apache-2.0
// c = a + b, one element a thread.
#include "device.h"

KERNEL void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = device::global_x();
  if (i < n) c[i] = a[i] + b[i];
}
