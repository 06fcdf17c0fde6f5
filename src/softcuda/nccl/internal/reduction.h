// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "softcuda/nccl/abi.h"

namespace kansoku::softcuda::nccl {

/// True if the number is a data type, or an operation, that the stand-in knows.
[[nodiscard]] bool is_known(ncclDataType_t type);
[[nodiscard]] bool is_known(ncclRedOp_t op);
/// Bytes of an element of a known type.
[[nodiscard]] std::size_t bytes_of(ncclDataType_t type);
[[nodiscard]] std::string_view name_of(ncclDataType_t type);

/// Combines arrays element by element, in the order of the calls: the same calls give the same bits
/// on every rank. 16-bit floats are combined as floats and rounded once at the end; integers wrap
/// round; avg divides the sum by the number of ranks, of integers towards zero. Min and max prefer
/// the other operand to a NaN; a NaN comes out as the one that GPUs make. Pointers need no
/// alignment. Pure; any thread.
class Reduction {
 public:
  /// `type` and `op` are known, `ranks` >= 1.
  Reduction(ncclDataType_t type, ncclRedOp_t op, int ranks);

  /// Bytes of an element while it is combined.
  [[nodiscard]] std::size_t wide_bytes() const;
  void load(std::byte* wide, const std::byte* from, std::size_t count) const;
  void combine(std::byte* wide, const std::byte* from, std::size_t count) const;
  void store(std::byte* to, const std::byte* wide, std::size_t count) const;

 private:
  struct Kernels;
  template <class Element>
  static constexpr Kernels kernels_of();
  const Kernels& kernels_;
  ncclRedOp_t op_;
  int divisor_;
};

}  // namespace kansoku::softcuda::nccl
