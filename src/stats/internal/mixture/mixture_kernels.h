// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kansoku {
enum class Isa : unsigned char;  // of common/isa.h, which the loops must not include
}

namespace kansoku::stats::internal {

/// Rows that are worked on at a time. Feature-major, one block of 16 features and its weighted copy
/// are 64 KiB: they stay in the second cache level while the sums pass over them.
inline constexpr std::size_t kBlockRows = 256;
/// Rows in one step of the inner loops; a block is padded to a multiple of it.
inline constexpr std::size_t kGroupRows = 16;
/// Partial sums per value: row i of a block adds to lane i % kLanes whatever the instruction set,
/// so that every machine rounds in the same order.
inline constexpr std::size_t kLanes = 8;
/// Doubles from one feature (or component) of a block to the next: not a power of two, because
/// those would share a few cache sets.
inline constexpr std::size_t kStride = kBlockRows + 8;

/// Inputs of a mixture's density for the loops: pointers into vectors of the caller.
struct KernelModel {
  std::size_t components;
  std::size_t dimensions;
  const double* means;            // k x d
  const double* inverse_factors;  // k packed lower triangles of the inverse Cholesky factors
  const double* log_constants;    // k
};

/// Values that `add_moments` sums for a component: the weight, d first and d(d+1)/2 second moments
/// (the lower triangle, packed), each of them kLanes partial sums.
[[nodiscard]] constexpr std::size_t moment_values(std::size_t dimensions) {
  return 1 + dimensions + dimensions * (dimensions + 1) / 2;
}

/// The loops over a block, compiled once for each instruction set; all give equal bits. `x` is a
/// block, feature by feature (d x kStride), `terms` k x kStride; `count` is a multiple of
/// kGroupRows. Blocks are best aligned to 64 bytes.
struct MixtureKernels {
  /// terms[k][row] = log(weight_k * density_k(row)), not below kLogFloor.
  void (*log_terms)(const KernelModel& model, const double* x, std::size_t count, double* scratch,
                    double* terms);
  /// out[row] = log(sum over k of exp(terms[k][row])).
  void (*log_sums)(const double* terms, std::size_t components, std::size_t count, double* out);
  /// The same, and `terms` become responsibilities: exp(terms[k][row] - out[row]).
  void (*normalise)(double* terms, std::size_t components, std::size_t count, double* out);
  /// Adds the moments of x - shift with the given weights to `sums` (moment_values x kLanes).
  void (*add_moments)(const double* x, std::size_t dimensions, std::size_t count,
                      const double* shift, const double* weights, double* scratch, double* sums);
};

/// Doubles of scratch that the loops need: two blocks.
[[nodiscard]] constexpr std::size_t scratch_values(std::size_t dimensions) {
  return 2 * dimensions * kStride;
}

/// A row so far away that its exponent overflows scores about this instead of minus infinity: no
/// NaN can follow from it.
inline constexpr double kLogFloor = -5e299;

/// The loops for an instruction set; calling those of a wider one than the machine's crashes.
[[nodiscard]] const MixtureKernels& mixture_kernels(Isa isa);
/// The loops for this machine.
[[nodiscard]] const MixtureKernels& mixture_kernels();

[[nodiscard]] const MixtureKernels& mixture_kernels_v2();
[[nodiscard]] const MixtureKernels& mixture_kernels_v3();
[[nodiscard]] const MixtureKernels& mixture_kernels_v4();

}  // namespace kansoku::stats::internal
