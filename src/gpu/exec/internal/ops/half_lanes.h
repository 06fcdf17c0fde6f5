// SPDX-License-Identifier: Apache-2.0
#pragma once

// Halves of all lanes at once: 32 of them, or 64 where a register holds pairs. Widened by the
// machine's own conversion where the instruction set has it; the bits are the same without.
// Internal linkage for the reason given in lane_ops.h. The intrinsics are always inlined; those
// with a mask of all lanes are the plain ones without gcc 12's warning.

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "gpu/exec/internal/ops/float_bits.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

/// Registers are arrays of 32-bit lanes; pairs are read and written by their own type.
typedef std::uint16_t HalfBits __attribute__((may_alias));  // NOLINT(modernize-use-using)

template <bool is_pair>
inline constexpr std::uint32_t kHalves = is_pair ? 2 * kLanes : kLanes;

template <bool is_pair, bool flushes, class H>
inline void take_halves(const std::uint32_t* lanes, std::uint16_t* to) {
  if constexpr (is_pair) {
    const auto* const from = reinterpret_cast<const HalfBits*>(lanes);
    for (std::uint32_t i = 0; i < kHalves<true>; ++i)
      to[i] = flushes ? flushed_half(H{from[i]}).bits : from[i];
  } else {
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      const auto bits = static_cast<std::uint16_t>(lanes[i]);
      to[i] = flushes ? flushed_half(H{bits}).bits : bits;
    }
  }
}
template <bool is_pair, bool flushes, class H>
inline void put_halves(const std::uint16_t* from, std::uint32_t* lanes) {
  if constexpr (is_pair) {
    auto* const to = reinterpret_cast<HalfBits*>(lanes);
    for (std::uint32_t i = 0; i < kHalves<true>; ++i)
      to[i] = flushes ? flushed_half(H{from[i]}).bits : from[i];
  } else {
    for (std::uint32_t i = 0; i < kLanes; ++i)
      lanes[i] = flushes ? flushed_half(H{from[i]}).bits : from[i];
  }
}

/// `count`: a multiple of 32; both places aligned to 64 bytes.
template <class H>
inline void widen_halves(const std::uint16_t* from, float* to, std::uint32_t count) {
  if constexpr (std::is_same_v<H, Half>) {
#if defined(__AVX512F__)
    for (std::uint32_t i = 0; i < count; i += 16)
      _mm512_store_ps(to + i,
                      _mm512_maskz_cvtph_ps(
                          0xffff, _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i))));
    return;
#elif defined(__F16C__)
    for (std::uint32_t i = 0; i < count; i += 8)
      _mm256_store_ps(to + i,
                      _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from + i))));
    return;
#endif
  }
  for (std::uint32_t i = 0; i < count; ++i)
    to[i] = to_float(H{from[i]});
}
/// Every NaN of `from` is the canonical one.
template <class H>
inline void narrow_halves(const float* from, std::uint16_t* to, std::uint32_t count) {
  if constexpr (std::is_same_v<H, Half>) {
    // Whole vectors are stored: a load waits long for stores that are smaller than itself.
#if defined(__AVX512F__)
    const auto half = [from](std::uint32_t first) {
      return _mm512_maskz_cvtps_ph(0xffff, _mm512_load_ps(from + first),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    };
    for (std::uint32_t i = 0; i < count; i += 32) {
      const __m512i both = __builtin_shufflevector(half(i), half(i + 16), 0, 1, 2, 3, 4, 5, 6, 7);
      _mm512_store_si512(to + i, both);
    }
    return;
#elif defined(__F16C__)
    const auto half = [from](std::uint32_t first) {
      return _mm256_cvtps_ph(_mm256_load_ps(from + first), _MM_FROUND_TO_NEAREST_INT);
    };
    for (std::uint32_t i = 0; i < count; i += 16) {
      const __m256i both = __builtin_shufflevector(half(i), half(i + 8), 0, 1, 2, 3);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), both);
    }
    return;
#endif
  }
  for (std::uint32_t i = 0; i < count; ++i)
    to[i] = narrowed<H>(from[i]).bits;
}

/// Sources of one operation, widened.
template <class H, bool is_pair, bool flushes>
struct WideHalves {
  static constexpr std::uint32_t kCount = kHalves<is_pair>;
  explicit WideHalves(const std::uint32_t* lanes) {
    alignas(64) std::uint16_t halves[kCount];
    take_halves<is_pair, flushes, H>(lanes, halves);
    widen_halves<H>(halves, values, kCount);
  }
  alignas(64) float values[kCount];
};
template <class H, bool is_pair, bool flushes>
inline void put_narrowed(const float* results, std::uint32_t* to) {
  alignas(64) std::uint16_t halves[kHalves<is_pair>];
  narrow_halves<H>(results, halves, kHalves<is_pair>);
  put_halves<is_pair, flushes, H>(halves, to);
}

/// F has `of(float...)`, which gives the result before it is rounded; H, kFlushes.
template <class F, bool is_pair>
inline void apply_to_halves(std::uint32_t* to, const std::uint32_t* lanes_a) {
  const WideHalves<typename F::A, is_pair, F::kFlushes> a(lanes_a);
  alignas(64) float results[kHalves<is_pair>];
  _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < kHalves<is_pair>; ++i) results[i] =
      canonical(F::of(a.values[i]));
  put_narrowed<typename F::A, is_pair, F::kFlushes>(results, to);
}
template <class F, bool is_pair>
inline void apply_to_halves(std::uint32_t* to, const std::uint32_t* lanes_a,
                            const std::uint32_t* lanes_b) {
  const WideHalves<typename F::A, is_pair, F::kFlushes> a(lanes_a), b(lanes_b);
  alignas(64) float results[kHalves<is_pair>];
  _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < kHalves<is_pair>; ++i) results[i] =
      canonical(F::of(a.values[i], b.values[i]));
  put_narrowed<typename F::A, is_pair, F::kFlushes>(results, to);
}
template <class F, bool is_pair>
inline void apply_to_halves(std::uint32_t* to, const std::uint32_t* lanes_a,
                            const std::uint32_t* lanes_b, const std::uint32_t* lanes_c) {
  const WideHalves<typename F::A, is_pair, F::kFlushes> a(lanes_a), b(lanes_b), c(lanes_c);
  alignas(64) float results[kHalves<is_pair>];
  std::uint32_t is_hard = 0;
  _Pragma("GCC ivdep") for (std::uint32_t i = 0; i < kHalves<is_pair>; ++i) {
    is_hard |= F::is_hard(a.values[i], b.values[i]);
    results[i] = canonical(F::of(a.values[i], b.values[i], c.values[i]));
  }
  if (is_hard != 0) {
    for (std::uint32_t i = 0; i < kHalves<is_pair>; ++i)
      results[i] = to_float(F::hard(a.values[i], b.values[i], c.values[i]));
  }
  put_narrowed<typename F::A, is_pair, F::kFlushes>(results, to);
}

}  // namespace
}  // namespace kansoku::gpu::exec
