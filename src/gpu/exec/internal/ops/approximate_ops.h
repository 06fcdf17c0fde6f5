// SPDX-License-Identifier: Apache-2.0
#pragma once

// sin, cos, lg2, ex2 and tanh on one lane, in a way that the compiler makes whole vectors of: no
// branches, no tables, no calls. Internal linkage for the reason given in lane_ops.h.
//
// They compute in double precision and round once, with multiplications and additions by
// themselves (nothing is fused), so that every instruction set gives the same bits. The
// polynomials are our own near-minimax fits (Chebyshev nodes, 60 digits), their relative errors
// below 4e-10, where half a unit in the last place of the result is 3e-8: results are off by less
// than 0.51 units. docs/measurements/softgpu-speed.md has the measurements.

#include "gpu/exec/internal/ops/integer_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

/// Adding it rounds |x| < 2^50 to a whole number, which then stands in the lowest bits of the sum.
inline constexpr double kWholeShift = 0x1.8p52;
inline constexpr std::uint64_t kExponentUnit = std::uint64_t{1} << 52;

inline std::uint64_t wide_bits(double value) {
  return __builtin_bit_cast(std::uint64_t, value);
}
inline double wide_value(std::uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}

/// (2^f - 1) / f for |f| <= 0.5.
inline double power_slope(double f) {
  const double f2 = f * f;
  const double low = (0x1.ebfbe045f4d9ep-3 * f + 0x1.62e42fefa39efp-1) +
                     (0x1.3b2a1b714a951p-7 * f + 0x1.c6b08d883dcbfp-5) * f2;
  const double high =
      (0x1.443fffd137c63p-13 * f + 0x1.5d879ead01a14p-10) + 0x1.00a5815e4e51fp-16 * f2;
  return high * (f2 * f2) + low;
}

struct FEx2 {
  static float of(float a) {
    // Beyond, the result is zero or infinite all the same.
    const double x = a < -160.0F ? -160.0 : a > 160.0F ? 160.0 : static_cast<double>(a);
    const double shifted = x + kWholeShift;
    const double f = x - (shifted - kWholeShift);
    const double fraction = power_slope(f) * f + 1.0;
    const double power = wide_value(wide_bits(fraction) + (wide_bits(shifted) << 52));
    return a != a ? a : static_cast<float>(power);
  }
};

/// For halves, whose 11 bits single precision is enough for: off by less than 2^-22 before it is
/// rounded.
struct HalfEx2 {
  static float of(float a) {
    constexpr float kShift = 0x1.8p23F;
    const float x = a < -40.0F ? -40.0F : a > 40.0F ? 40.0F : a;  // zero, or infinite as a half
    const float shifted = x + kShift;
    const float f = x - (shifted - kShift);
    float p = 0x1.5f0890p-10F;
    p = p * f + 0x1.3b2a54p-7F;
    p = p * f + 0x1.c6af6cp-5F;
    p = p * f + 0x1.ebfbe0p-3F;
    p = p * f + 0x1.62e430p-1F;
    const float power = p * f + 1.0F;
    const std::uint32_t exponent = __builtin_bit_cast(std::uint32_t, shifted) << 23;
    const float scaled =
        __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, power) + exponent);
    return a != a ? a : scaled;
  }
};

struct FLg2 {
  static float of(float a) {
    // a = 2^k * m with m from sqrt(1/2) to sqrt(2); as a double even a subnormal number is normal.
    const std::uint64_t bits = wide_bits(static_cast<double>(a));
    constexpr std::uint64_t kLeast = 0x3fe6a09e667f3bcd, kBias = 1024;
    const std::uint64_t k = (bits - kLeast + (kBias << 52)) >> 52;
    const double whole = wide_value(k | 0x4330000000000000) - (0x1p52 + static_cast<double>(kBias));
    const double f = wide_value(bits - (k << 52) + (kBias << 52)) - 1.0;
    const double f2 = f * f, f4 = f2 * f2;
    const double low = (-0x1.71547678f258bp-1 * f + 0x1.7154765304594p+0) +
                       (-0x1.715438ecdad88p-2 * f + 0x1.ec709b5b311d2p-2) * f2;
    const double middle = (-0x1.ec8cbb51d1994p-3 * f + 0x1.2777694c775abp-2) +
                          (-0x1.6eb266f9ad737p-3 * f + 0x1.a608e4f9356d3p-3) * f2;
    const double high = (-0x1.420007c69b8d6p-3 * f + 0x1.4645e0b06ebd1p-3) +
                        (-0x1.59700875647d0p-4 * f + 0x1.3a45a36374083p-3) * f2;
    const double p = (high * f4 + middle) * f4 + low;
    const auto logarithm = static_cast<float>(p * f + whole);
    // Zero, values that are not finite, and negative ones.
    const float infinity = __builtin_inff();
    const float special = a == 0 ? -infinity : a > 0 ? a : __builtin_nanf("");
    return a > 0 && a < infinity ? logarithm : special;
  }
};

struct FTanh {
  static float of(float a) {
    const float magnitude =
        __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, a) & 0x7fffffff);
    const double x = magnitude > 10.0F ? 10.0 : static_cast<double>(magnitude);  // there it is 1
    const double y = x * 0x1.71547652b82fep+1;                                   // 2 x log2(e)
    const double shifted = y + kWholeShift;
    const double f = y - (shifted - kWholeShift);
    const double scale = wide_value((wide_bits(shifted) << 52) + 0x3ff0000000000000);
    // e^2x - 1, without losing the digits of a small one; tanh = that / (that + 2).
    const double grown = power_slope(f) * f * scale + (scale - 1.0);
    const double below = grown + 2.0;
    const double inverse = static_cast<double>(1.0F / static_cast<float>(below));
    const double quotient = grown * inverse;
    const auto result =
        static_cast<float>(quotient + (grown - quotient * below) * inverse);  // a step of Newton's
    const std::uint32_t sign = __builtin_bit_cast(std::uint32_t, a) & 0x80000000;
    return a != a ? a : __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, result) | sign);
  }
};

/// Up to here the quarter turns fit the way they are taken off; beyond, the library's functions.
inline constexpr float kNearAngle = 0x1p17F;
inline bool is_near_angle(float a) {
  return a <= kNearAngle && a >= -kNearAngle;
}
/// sin(a + quarters * pi / 2), for near angles.
inline float near_sine(float a, std::uint64_t quarters) {
  const double x = static_cast<double>(a);
  const double shifted = x * 0x1.45f306dc9c883p-1 + kWholeShift;
  const double n = shifted - kWholeShift;
  // pi / 2 in two parts: n times the first is exact.
  const double r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
  const double z = r * r;
  double s = 0x1.6dbe07f3c89b2p-19;
  s = s * z - 0x1.a013a792e52dcp-13;
  s = s * z + 0x1.11110def2d7f5p-7;
  s = s * z - 0x1.555555545e0a8p-3;
  double c = 0x1.9a6f2b51a120ep-16;
  c = c * z - 0x1.6c0e087e347d1p-10;
  c = c * z + 0x1.55554cbb425f8p-5;
  c = c * z - 0x1.fffffffab1d8fp-2;
  const std::uint64_t turn = wide_bits(shifted) + quarters;
  const std::uint64_t is_cosine = std::uint64_t{0} - (turn & 1);
  const std::uint64_t magnitude =
      (wide_bits(c * z + 1.0) & is_cosine) | (wide_bits((s * z + 1.0) * r) & ~is_cosine);
  return static_cast<float>(wide_value(magnitude ^ (turn & 2) << 62));
}
struct FSin {
  static constexpr std::uint64_t kQuarters = 0;
  static float far(float a) { return __builtin_sinf(a); }
  static float of(float a) { return is_near_angle(a) ? near_sine(a, kQuarters) : far(a); }
};
struct FCos {
  static constexpr std::uint64_t kQuarters = 1;
  static float far(float a) { return __builtin_cosf(a); }
  static float of(float a) { return is_near_angle(a) ? near_sine(a, kQuarters) : far(a); }
};

}  // namespace
}  // namespace kansoku::gpu::exec
