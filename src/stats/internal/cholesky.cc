// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/cholesky.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace kansoku::stats::internal {

bool cholesky(std::span<const double> matrix, std::size_t dimensions, std::span<double> factor) {
  CHECK(matrix.size() == dimensions * dimensions && factor.size() == matrix.size());
  const double relative_floor =
      static_cast<double>(dimensions) * std::numeric_limits<double>::epsilon();
  std::fill(factor.begin(), factor.end(), 0.0);
  for (std::size_t i = 0; i < dimensions; ++i) {
    double* row = factor.data() + i * dimensions;
    for (std::size_t j = 0; j <= i; ++j) {
      const double* other = factor.data() + j * dimensions;
      double value = matrix[i * dimensions + j];
      for (std::size_t t = 0; t < j; ++t)
        value -= row[t] * other[t];
      if (j < i) {
        row[j] = value / other[j];
        continue;
      }
      const double diagonal = matrix[i * dimensions + i];
      // Written so that NaN fails too.
      if (!(value > diagonal * relative_floor && std::isfinite(value))) return false;
      row[i] = std::sqrt(value);
    }
  }
  return true;
}

void invert_lower(std::span<const double> factor, std::size_t dimensions,
                  std::span<double> packed_inverse) {
  CHECK(factor.size() == dimensions * dimensions);
  CHECK(packed_inverse.size() == triangle(dimensions));
  const auto at = [&](std::size_t i, std::size_t j) -> double& {
    return packed_inverse[triangle(i) + j];
  };
  for (std::size_t i = 0; i < dimensions; ++i) {
    const double* row = factor.data() + i * dimensions;
    for (std::size_t j = 0; j < i; ++j) {
      double sum = 0;
      for (std::size_t t = j; t < i; ++t)
        sum += row[t] * at(t, j);
      at(i, j) = -sum / row[i];
    }
    at(i, i) = 1 / row[i];
  }
}

}  // namespace kansoku::stats::internal
