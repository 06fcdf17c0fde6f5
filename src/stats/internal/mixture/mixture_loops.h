// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops over a block of rows: mixture_math.h has the rules for this header.

#include "stats/internal/mixture/mixture_kernels.h"
#include "stats/internal/mixture/mixture_math.h"

namespace kansoku::stats::internal {
namespace {  // NOLINT(google-build-namespaces)

// Vectors of rows at a time: two hide the latency of an addition, more would leave the registers.
inline constexpr std::size_t kPair = 2;
inline constexpr std::size_t kPairRows = kPair * kWidth;
static_assert(kGroupRows % kPairRows == 0);
static_assert(kLanes % kWidth == 0);
// Rows of a triangular factor, or of second moments, whose sums stay in registers.
inline constexpr std::size_t kPanel = 4;
// Columns of second moments: 16 registers hold 8 sums and the factors, 32 hold 16.
inline constexpr std::size_t kColumns = kWidth == 8 ? 4 : 2;

inline std::size_t triangle_of(std::size_t rows) {
  return rows * (rows + 1) / 2;
}

/// Adds the squares of rows `first`..`first` + kRows - 1 of (inverse factor x offset) to `square`.
template <std::size_t kRows>
inline void add_squares(const double* offsets, const double* factor, std::size_t first,
                        Vector (&square)[kPair]) {
  const double* rows[kRows];
  Vector sums[kRows][kPair] = {};
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kRows; ++p)
    rows[p] = factor + triangle_of(first + p);
  for (std::size_t j = 0; j < first; ++j) {
    const Vector low = load(offsets + j * kPairRows);
    const Vector high = load(offsets + j * kPairRows + kWidth);
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kRows; ++p) {
      const Vector value = all(rows[p][j]);
      sums[p][0] += value * low;
      sums[p][1] += value * high;
    }
  }
#pragma GCC unroll 4
  for (std::size_t j = 0; j < kRows; ++j) {
    const Vector low = load(offsets + (first + j) * kPairRows);
    const Vector high = load(offsets + (first + j) * kPairRows + kWidth);
#pragma GCC unroll 4
    for (std::size_t p = j; p < kRows; ++p) {
      const Vector value = all(rows[p][first + j]);
      sums[p][0] += value * low;
      sums[p][1] += value * high;
    }
  }
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kRows; ++p) {
    square[0] += sums[p][0] * sums[p][0];
    square[1] += sums[p][1] * sums[p][1];
  }
}

inline void terms_of_pair(const double* x, std::size_t dimensions, const double* mean,
                          const double* factor, double log_constant, double* offsets, double* out) {
  for (std::size_t j = 0; j < dimensions; ++j) {
    const Vector middle = all(mean[j]);
    store(offsets + j * kPairRows, load(x + j * kStride) - middle);
    store(offsets + j * kPairRows + kWidth, load(x + j * kStride + kWidth) - middle);
  }
  Vector square[kPair] = {};
  std::size_t first = 0;
  for (; first + kPanel <= dimensions; first += kPanel)
    add_squares<kPanel>(offsets, factor, first, square);
  switch (dimensions - first) {
    case 3:
      add_squares<3>(offsets, factor, first, square);
      break;
    case 2:
      add_squares<2>(offsets, factor, first, square);
      break;
    case 1:
      add_squares<1>(offsets, factor, first, square);
      break;
    default:
      break;
  }
  const Vector highest = all(-2 * kLogFloor);
  for (std::size_t i = 0; i < kPair; ++i) {
    // A comparison with NaN is false: it gets the floor as well.
    const Vector bounded = square[i] < highest ? square[i] : highest;
    store(out + i * kWidth, log_constant - 0.5 * bounded);
  }
}

inline void log_terms(const KernelModel& model, const double* x, std::size_t count, double* scratch,
                      double* terms) {
  const std::size_t d = model.dimensions;
  for (std::size_t k = 0; k < model.components; ++k) {
    const double* factor = model.inverse_factors + k * triangle_of(d);
    for (std::size_t row = 0; row < count; row += kPairRows) {
      terms_of_pair(x + row, d, model.means + k * d, factor, model.log_constants[k], scratch,
                    terms + k * kStride + row);
    }
  }
}

inline Vector highest_term(const double* terms, std::size_t components) {
  Vector highest = load(terms);
  for (std::size_t k = 1; k < components; ++k) {
    const Vector term = load(terms + k * kStride);
    highest = term > highest ? term : highest;
  }
  return highest;
}

inline void log_sums(const double* terms, std::size_t components, std::size_t count, double* out) {
  for (std::size_t row = 0; row < count; row += kWidth) {
    const Vector highest = highest_term(terms + row, components);
    Vector sum{};
    for (std::size_t k = 0; k < components; ++k)
      sum += exp_negative(load(terms + k * kStride + row) - highest);
    store(out + row, highest + log_from_one(sum));
  }
}

inline void normalise(double* terms, std::size_t components, std::size_t count, double* out) {
  for (std::size_t row = 0; row < count; row += kWidth) {
    const Vector highest = highest_term(terms + row, components);
    Vector sum{};
    for (std::size_t k = 0; k < components; ++k) {
      const Vector share = exp_negative(load(terms + k * kStride + row) - highest);
      store(terms + k * kStride + row, share);
      sum += share;
    }
    store(out + row, highest + log_from_one(sum));
    const Vector factor = 1 / sum;
    for (std::size_t k = 0; k < components; ++k)
      store(terms + k * kStride + row, load(terms + k * kStride + row) * factor);
  }
}

inline void add_to(double* sum, const Vector& value) {
  store(sum, load(sum) + value);
}

/// Adds products of `kRows` weighted offsets with `kCols` offsets to their sums. `kSkew` is the
/// first column minus the first row: elements above the diagonal are left out.
template <std::size_t kRows, std::size_t kCols, int kSkew>
inline void add_products(const double* weighted, const double* offsets, std::size_t count,
                         double* const (&sums)[kRows]) {
  constexpr auto kWanted = [](std::size_t p, std::size_t q) {
    return static_cast<int>(q) + kSkew <= static_cast<int>(p);
  };
  for (std::size_t lane = 0; lane < kLanes; lane += kWidth) {
    Vector products[kRows][kCols] = {};
    for (std::size_t row = lane; row < count; row += kLanes) {
      Vector columns[kCols] = {};
#pragma GCC unroll 4
      for (std::size_t q = 0; q < kCols; ++q) {
        if (kWanted(kRows - 1, q)) columns[q] = load(offsets + q * kStride + row);
      }
#pragma GCC unroll 4
      for (std::size_t p = 0; p < kRows; ++p) {
        const Vector left = load(weighted + p * kStride + row);
#pragma GCC unroll 4
        for (std::size_t q = 0; q < kCols; ++q) {
          if (kWanted(p, q)) products[p][q] += left * columns[q];
        }
      }
    }
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kRows; ++p) {
#pragma GCC unroll 4
      for (std::size_t q = 0; q < kCols; ++q) {
        if (kWanted(p, q)) add_to(sums[p] + q * kLanes + lane, products[p][q]);
      }
    }
  }
}

/// Second moments of features `first`..`first` + kRows - 1 with all up to themselves.
template <std::size_t kRows>
inline void add_panel(const double* weighted, const double* offsets, std::size_t first,
                      std::size_t count, double* second_moments) {
  double* sums[kRows];
  for (std::size_t p = 0; p < kRows; ++p)
    sums[p] = second_moments + triangle_of(first + p) * kLanes;
  const double* left = weighted + first * kStride;
  const auto advance = [&sums] {
    for (double*& sum : sums)
      sum += kColumns * kLanes;
  };
  constexpr int kBelow = -static_cast<int>(kColumns);
  for (std::size_t j = 0; j < first; j += kColumns) {
    add_products<kRows, kColumns, kBelow>(left, offsets + j * kStride, count, sums);
    advance();
  }
  add_products<kRows, kColumns, 0>(left, offsets + first * kStride, count, sums);
  if constexpr (kColumns == 2 && kRows > 2) {
    advance();
    add_products<kRows, kColumns, 2>(left, offsets + (first + 2) * kStride, count, sums);
  }
}

/// Offsets of a feature from its shift, the same times the weights, and the sum of these.
inline void weigh(const double* x, double shift, const double* weights, std::size_t count,
                  double* offsets, double* weighted, double* sum) {
  constexpr std::size_t kParts = kLanes / kWidth;
  Vector total[kParts] = {};
  for (std::size_t row = 0; row < count; row += kLanes) {
#pragma GCC unroll 4
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t at = row + part * kWidth;
      const Vector offset = load(x + at) - shift;
      const Vector product = load(weights + at) * offset;
      store(offsets + at, offset);
      store(weighted + at, product);
      total[part] += product;
    }
  }
  for (std::size_t part = 0; part < kParts; ++part)
    add_to(sum + part * kWidth, total[part]);
}

inline void add_moments(const double* x, std::size_t dimensions, std::size_t count,
                        const double* shift, const double* weights, double* scratch, double* sums) {
  for (std::size_t lane = 0; lane < kLanes; lane += kWidth) {
    Vector total{};
    for (std::size_t row = lane; row < count; row += kLanes)
      total += load(weights + row);
    add_to(sums + lane, total);
  }
  double* offsets = scratch;
  double* weighted = scratch + dimensions * kStride;
  for (std::size_t j = 0; j < dimensions; ++j) {
    weigh(x + j * kStride, shift[j], weights, count, offsets + j * kStride, weighted + j * kStride,
          sums + (1 + j) * kLanes);
  }
  double* second_moments = sums + (1 + dimensions) * kLanes;
  std::size_t first = 0;
  for (; first + kPanel <= dimensions; first += kPanel)
    add_panel<kPanel>(weighted, offsets, first, count, second_moments);
  switch (dimensions - first) {
    case 3:
      add_panel<3>(weighted, offsets, first, count, second_moments);
      break;
    case 2:
      add_panel<2>(weighted, offsets, first, count, second_moments);
      break;
    case 1:
      add_panel<1>(weighted, offsets, first, count, second_moments);
      break;
    default:
      break;
  }
}

}  // namespace
}  // namespace kansoku::stats::internal
