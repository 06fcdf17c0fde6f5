// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of each row: (x - mean) / sqrt(variance + epsilon) * scale + shift. One warp
// a row. Block (32), grid (rows).
#include "device.h"

KERNEL void layer_norm(const float* in, const float* scale, const float* shift, float* out,
                       int columns, float epsilon) {
  const float* const row = in + static_cast<long>(device::block_x()) * columns;
  float* const result = out + static_cast<long>(device::block_x()) * columns;
  float sum = 0;
  for (int i = device::thread_x(); i < columns; i += 32)
    sum += row[i];
  const float mean = device::warp_sum(sum) / static_cast<float>(columns);
  float squares = 0;
  for (int i = device::thread_x(); i < columns; i += 32) {
    const float difference = row[i] - mean;
    squares = device::fma(difference, difference, squares);
  }
  const float variance = device::warp_sum(squares) / static_cast<float>(columns);
  const float factor = 1.0F / device::square_root(variance + epsilon);
  for (int i = device::thread_x(); i < columns; i += 32)
    result[i] = device::fma((row[i] - mean) * factor, scale[i], shift[i]);
}
