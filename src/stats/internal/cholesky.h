// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace kansoku::stats::internal {

/// Number of values of a lower triangle of `dimensions` rows.
[[nodiscard]] constexpr std::size_t triangle(std::size_t dimensions) {
  return dimensions * (dimensions + 1) / 2;
}

/// Lower Cholesky factor of the symmetric `matrix` (d x d, row by row; only its lower triangle is
/// read) into `factor` (d x d, upper triangle 0). False, with `factor` undefined, if the matrix is
/// not positive definite to working precision: a pivot that is not finite or not above
/// d * 2^-52 times its diagonal element, which rounding alone can leave of a zero.
[[nodiscard]] bool cholesky(std::span<const double> matrix, std::size_t dimensions,
                            std::span<double> factor);

/// Inverse of a lower triangular `factor` (d x d, row by row, diagonal not 0), packed: row i holds
/// its i + 1 values, one row after the other.
void invert_lower(std::span<const double> factor, std::size_t dimensions,
                  std::span<double> packed_inverse);

}  // namespace kansoku::stats::internal
