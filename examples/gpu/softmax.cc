// SPDX-License-Identifier: Apache-2.0
// Softmax of each row: one warp a row, the maximum and the sum by shuffles. Block (32), grid
// (rows).
#include "device.h"

KERNEL void softmax(const float* in, float* out, int columns) {
  const float* const row = in + static_cast<long>(device::block_x()) * columns;
  float* const result = out + static_cast<long>(device::block_x()) * columns;
  float most = -__builtin_inff();
  for (int i = device::thread_x(); i < columns; i += 32)
    most = device::larger(most, row[i]);
  most = device::warp_max(most);
  float sum = 0;
  for (int i = device::thread_x(); i < columns; i += 32) {
    result[i] = device::exponential(row[i] - most);
    sum += result[i];
  }
  sum = device::warp_sum(sum);
  for (int i = device::thread_x(); i < columns; i += 32)
    result[i] /= sum;
}
