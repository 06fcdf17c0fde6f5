// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture_kernels.h"

#include <algorithm>
#include <cmath>

namespace kansoku::stats::internal {
namespace {

void log_terms(const KernelModel& model, const double* x, std::size_t count, double* scratch,
               double* terms) {
  const std::size_t d = model.dimensions;
  for (std::size_t k = 0; k < model.components; ++k) {
    const double* mean = model.means + k * d;
    const double* factor = model.inverse_factors + k * d * (d + 1) / 2;
    for (std::size_t row = 0; row < count; ++row) {
      for (std::size_t j = 0; j < d; ++j)
        scratch[j] = x[j * kStride + row] - mean[j];
      double square = 0;
      const double* value = factor;
      for (std::size_t i = 0; i < d; ++i) {
        double y = 0;
        for (std::size_t j = 0; j <= i; ++j)
          y += *value++ * scratch[j];
        square += y * y;
      }
      square = square < -2 * kLogFloor ? square : -2 * kLogFloor;
      terms[k * kStride + row] = model.log_constants[k] - 0.5 * square;
    }
  }
}

double log_sum(const double* terms, std::size_t components) {
  double highest = terms[0];
  for (std::size_t k = 1; k < components; ++k)
    highest = std::max(highest, terms[k * kStride]);
  double sum = 0;
  for (std::size_t k = 0; k < components; ++k)
    sum += std::exp(terms[k * kStride] - highest);
  return highest + std::log(sum);
}

void log_sums(const double* terms, std::size_t components, std::size_t count, double* out) {
  for (std::size_t row = 0; row < count; ++row)
    out[row] = log_sum(terms + row, components);
}

void normalise(double* terms, std::size_t components, std::size_t count, double* out) {
  for (std::size_t row = 0; row < count; ++row) {
    out[row] = log_sum(terms + row, components);
    for (std::size_t k = 0; k < components; ++k)
      terms[k * kStride + row] = std::exp(terms[k * kStride + row] - out[row]);
  }
}

void add_moments(const double* x, std::size_t dimensions, std::size_t count, const double* shift,
                 const double* weights, double* scratch, double* sums) {
  for (std::size_t row = 0; row < count; ++row) {
    double* sum = sums + row % kLanes;
    *sum += weights[row];
    sum += kLanes;
    for (std::size_t j = 0; j < dimensions; ++j, sum += kLanes) {
      scratch[j] = x[j * kStride + row] - shift[j];
      *sum += weights[row] * scratch[j];
    }
    for (std::size_t i = 0; i < dimensions; ++i) {
      for (std::size_t j = 0; j <= i; ++j, sum += kLanes)
        *sum += weights[row] * scratch[i] * scratch[j];
    }
  }
}

}  // namespace

const MixtureKernels& mixture_kernels() {
  static constexpr MixtureKernels kPlain{log_terms, log_sums, normalise, add_moments};
  return kPlain;
}

}  // namespace kansoku::stats::internal
