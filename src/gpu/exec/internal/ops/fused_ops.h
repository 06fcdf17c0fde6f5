// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two loads from shared memory and the fma that takes both: the inner loop of a matrix product is
// made of these. Internal linkage for the reason given in lane_ops.h.

#include "gpu/exec/internal/ops/memory_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

/// Lanes in two lines of 16: a step of `stride` bytes between lanes, of `row` between lines.
struct TwoLines {
  const std::byte* base;
  S64 row;
  bool is_same;  // all lanes of a line
};

/// False if the lanes lie another way, or not all where they may; then nothing has happened.
[[gnu::always_inline]] inline bool two_lines(Warp& warp, const Code* code, TwoLines& lines) {
  if (!is_affine(warp, code->a) || warp.columns_log2 < 4) return false;
  const Affine& address = warp.affine[code->a];
  const U64 base = address.base + static_cast<U64>(static_cast<S64>(code->offset));
  const U64 row = warp.columns_log2 == 4 ? address.row : 16 * address.stride;
  if ((address.stride != 0 && address.stride != sizeof(U32)) || ((base | row) & 3) != 0)
    return false;
  // Shared memory is small: an address within it cannot have wrapped around.
  const U64 bytes = 15 * address.stride + sizeof(U32), other = base + row;
  const U64 end = warp.block->launch->total_shared_bytes;
  if (base > end || other > end || base + bytes > end || other + bytes > end) return false;
  lines = {warp.block->shared + base, static_cast<S64>(row), address.stride == 0};
  return true;
}

/// Slots of the loaded values, in order, of the third source and of the result.
struct FusedLanes {
  float* first;
  float* second;
  const float* addend;
  float* result;
};
template <class F, bool is_first_same, bool is_second_same>
inline void multiply_lines(const FusedLanes& to, const TwoLines& first, const TwoLines& second) {
  const std::byte *x = first.base, *y = second.base;
  for (std::uint32_t line = 0; line < kLanes; line += 16, x += first.row, y += second.row) {
    _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < 16; ++i) {
      const auto a = load_from<float>(x + (is_first_same ? 0 : i * sizeof(float)));
      const auto b = load_from<float>(y + (is_second_same ? 0 : i * sizeof(float)));
      const float sum = F::apply(a, b, to.addend[line + i]);
      to.first[line + i] = a;
      to.second[line + i] = b;
      to.result[line + i] = sum;
    }
  }
}

/// False if it cannot be done at once; then nothing has happened.
template <class F>
[[gnu::always_inline]] inline bool load_load_fma_lines(Warp& warp, const Code* code) {
  const Code *const second = code + 1, *const fma = code + 2;
  TwoLines x, y;
  if (warp.held[fma->c] != Held::kValues || !two_lines(warp, code, x) ||
      !two_lines(warp, second, y) || (x.is_same && y.is_same && (x.row | y.row) == 0))
    return false;
  const FusedLanes to{lanes_at<float>(warp, code->d), lanes_at<float>(warp, second->d),
                      lanes_at<float>(warp, fma->c), lanes_at<float>(warp, fma->d)};
  warp.held[code->d] = warp.held[second->d] = warp.held[fma->d] = Held::kValues;
  if (x.is_same && y.is_same) {
    multiply_lines<F, true, true>(to, x, y);
  } else if (x.is_same) {
    multiply_lines<F, true, false>(to, x, y);
  } else if (y.is_same) {
    multiply_lines<F, false, true>(to, x, y);
  } else {
    multiply_lines<F, false, false>(to, x, y);
  }
  return true;
}
/// ld.shared.b32, ld.shared.b32 and F, whose first two sources are the loaded values: three codes
/// that stay as they are, for whom jumps to the second or cannot be done at once. And all such
/// sequences that follow.
template <class F>
const Code* load_load_fma(Warp& warp, const Code* code) {
  const Handler own = code->run;
  if (warp.mask == ~std::uint32_t{0}) {
    const Code* const begin = code;
    while (code->run == own && load_load_fma_lines<F>(warp, code))
      code += 3;
    if (code != begin) return code;
  }
  const Code* next = load<MemorySpace::kShared, U32, 1>(warp, code);
  if (next != nullptr) next = load<MemorySpace::kShared, U32, 1>(warp, next);
  return next == nullptr ? next : ternary<F>(warp, next);
}

inline FusedHandlers fused_handlers() {
  return {load_load_fma<FFma<float>>, load_load_fma<FFma<float, true>>};
}

}  // namespace
}  // namespace kansoku::gpu::exec
