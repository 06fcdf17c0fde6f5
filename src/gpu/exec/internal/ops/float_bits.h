// SPDX-License-Identifier: Apache-2.0
#pragma once

// Floating-point numbers and their bits, and the conversions between halves and singles. Internal
// linkage for the reason given in lane_ops.h.

#include "gpu/exec/internal/ops/integer_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

inline std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
inline std::uint64_t bits_of(double value) {
  return __builtin_bit_cast(std::uint64_t, value);
}
inline float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
inline double double_of(std::uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}

inline float canonical(float value) {
  return value != value ? float_of(0x7fffffff) : value;
}
inline double canonical(double value) {
  return value;
}

inline float to_float(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half.bits & 0x7fff) << 13;
  // The exponents of normal numbers, then of infinity and not a number.
  const std::uint32_t top = magnitude >= 0x0f800000 ? 0x70000000 : 0x38000000;
  // A subnormal half is fraction * 2^-24, a normal single.
  const std::uint32_t small = bits_of(float_of(magnitude | 0x38800000) - 0x1p-14F);
  return float_of((magnitude < 0x00800000 ? small : magnitude + top) | sign);
}
inline float to_float(BFloat value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}

/// To nearest, ties to even; not a number gives 0x7fff.
inline Half to_half(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {0x7fff};
  if (magnitude >= 0x477ff000) return {static_cast<std::uint16_t>(sign | 0x7c00)};
  if (magnitude < 0x38800000) {
    // Adding 0.5 puts the last bit that a subnormal half keeps at the end of the fraction.
    const std::uint32_t rounded = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
    return {static_cast<std::uint16_t>(sign | rounded)};
  }
  const std::uint32_t odd = magnitude >> 13 & 1;
  return {static_cast<std::uint16_t>(sign | ((magnitude + 0xfff + odd - 0x38000000) >> 13))};
}
inline BFloat to_bfloat(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <class H>
inline H narrowed(float value);
template <>
inline Half narrowed<Half>(float value) {
  return to_half(value);
}
template <>
inline BFloat narrowed<BFloat>(float value) {
  return to_bfloat(value);
}

/// A double to a half without rounding twice: to odd first.
template <class H>
inline H narrowed_from_double(double value) {
  float nearest = static_cast<float>(value);
  if (nearest == nearest && static_cast<double>(nearest) != value) {
    std::uint32_t bits = bits_of(nearest);
    // Towards zero, then odd: the bits left out still count at the next rounding.
    const double magnitude = value < 0 ? -value : value;
    const float size = float_of(bits & 0x7fffffff);
    if (static_cast<double>(size) > magnitude) --bits;
    nearest = float_of(bits | 1);
  }
  return narrowed<H>(nearest);
}

template <class H>
inline H flushed_half(H value) {
  const std::uint16_t exponent = std::is_same_v<H, Half> ? 0x7c00 : 0x7f80;
  if ((value.bits & exponent) == 0) value.bits &= 0x8000;
  return value;
}

}  // namespace
}  // namespace kansoku::gpu::exec
