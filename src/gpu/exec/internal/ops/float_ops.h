// SPDX-License-Identifier: Apache-2.0
#pragma once

// Floating-point operations on one lane, rounding to nearest; directed rounding is in
// rounding.cc. Internal linkage for the reason given in lane_ops.h. The GPU's single-precision and
// half NaN is one value, never a payload; x86 gives another one, so results are normalised.

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

/// Subnormal numbers become a zero of their sign.
inline float flushed(float value) {
  const std::uint32_t bits = bits_of(value);
  return (bits & 0x7f800000) == 0 ? float_of(bits & 0x80000000) : value;
}
inline float saturated(float value) {
  return value > 0.0F ? (value < 1.0F ? value : 1.0F) : 0.0F;  // NaN and -0 give +0
}
inline double saturated(double value) {
  return value > 0.0 ? (value < 1.0 ? value : 1.0) : 0.0;
}

template <class T, bool flushes, bool saturates>
inline T finished(T value) {
  if constexpr (flushes) value = flushed(value);
  value = canonical(value);
  if constexpr (saturates) value = saturated(value);
  return value;
}
template <class T, bool flushes>
inline T begun(T value) {
  if constexpr (flushes) return flushed(value);
  return value;
}

template <class T>
struct FAdd {
  static T of(T a, T b) { return a + b; }
};
template <class T>
struct FSub {
  static T of(T a, T b) { return a - b; }
};
template <class T>
struct FMul {
  static T of(T a, T b) { return a * b; }
};
template <class T>
struct FDiv {
  static T of(T a, T b) { return a / b; }
};
/// The number where the other is not one; -0 is below +0.
template <class T>
struct FMin {
  static T of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_bit_cast(T, bits_of(a) | bits_of(b));
    return a < b ? a : b;
  }
};
template <class T>
struct FMax {
  static T of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_bit_cast(T, bits_of(a) & bits_of(b));
    return a > b ? a : b;
  }
};
/// .NaN: not a number if either is not.
template <class T, class Plain>
struct OrNan {
  static T of(T a, T b) { return a != a || b != b ? a + b : Plain::of(a, b); }
};
/// .xorsign.abs: of the magnitudes, with the sign of a * b.
template <class Plain>
struct XorSign {
  static float of(float a, float b) {
    const std::uint32_t sign = (bits_of(a) ^ bits_of(b)) & 0x80000000;
    const float picked =
        Plain::of(float_of(bits_of(a) & 0x7fffffff), float_of(bits_of(b) & 0x7fffffff));
    return picked != picked ? picked : float_of((bits_of(picked) & 0x7fffffff) | sign);
  }
};

template <class T, class Plain, bool flushes = false, bool saturates = false>
struct FBinary : Signature<T(T, T)> {
  static T apply(T a, T b) {
    return finished<T, flushes, saturates>(Plain::of(begun<T, flushes>(a), begun<T, flushes>(b)));
  }
};
template <class T, class Plain, bool flushes = false, bool saturates = false>
struct FUnary : Signature<T(T)> {
  static T apply(T a) { return finished<T, flushes, saturates>(Plain::of(begun<T, flushes>(a))); }
};

inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
template <class T, bool flushes = false, bool saturates = false>
struct FFma : Signature<T(T, T, T)> {
  static T apply(T a, T b, T c) {
    return finished<T, flushes, saturates>(
        fused(begun<T, flushes>(a), begun<T, flushes>(b), begun<T, flushes>(c)));
  }
};

/// Sign operations keep every bit but the sign; only .ftz looks at the value.
template <class T>
struct FNeg {
  static T of(T a) { return -a; }
};
template <class T>
struct FAbs {
  static T of(T a) {
    using Bits = decltype(bits_of(a));
    return __builtin_bit_cast(T, bits_of(a) & ~(Bits{1} << (8 * sizeof(T) - 1)));
  }
};
template <class T, class Plain, bool flushes>
struct FSign : Signature<T(T)> {
  static T apply(T a) { return Plain::of(begun<T, flushes>(a)); }
};
template <class T>
struct FCopysign : Signature<T(T, T)> {
  /// The sign of a, the rest of b.
  static T apply(T a, T b) {
    using Bits = decltype(bits_of(a));
    constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
    return __builtin_bit_cast(T, (bits_of(a) & kSign) | (bits_of(b) & ~kSign));
  }
};

inline float root(float a) {
  return __builtin_sqrtf(a);
}
inline double root(double a) {
  return __builtin_sqrt(a);
}
template <class T>
struct FSqrt {
  static T of(T a) { return root(a); }
};
template <class T>
struct FRcp {
  static T of(T a) { return T(1) / a; }
};
template <class T>
struct FRsqrt {
  static T of(T a) { return T(1) / root(a); }
};
struct FSin {
  static float of(float a) { return __builtin_sinf(a); }
};
struct FCos {
  static float of(float a) { return __builtin_cosf(a); }
};
struct FLg2 {
  static float of(float a) { return __builtin_log2f(a); }
};
struct FEx2 {
  static float of(float a) { return __builtin_exp2f(a); }
};
struct FTanh {
  static float of(float a) { return __builtin_tanhf(a); }
};

// --- half precision
// -------------------------------------------------------------------------------

inline float to_float(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000) << 16;
  const std::uint32_t exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  // A subnormal half is fraction * 2^-24, a normal single.
  const float small = static_cast<float>(static_cast<std::int32_t>(fraction)) * 0x1p-24F;
  const std::uint32_t normal = (exponent + 112) << 23 | fraction << 13;
  const std::uint32_t special = 0x7f800000 | fraction << 13;
  const std::uint32_t magnitude = exponent == 0    ? bits_of(small)
                                  : exponent == 31 ? special
                                                   : normal;
  return float_of(magnitude | sign);
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
    // Towards zero, then odd: what is left out still counts at the next rounding.
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

/// One operation in single precision and one more rounding is exact for halves: add, sub, mul.
template <class H, class Plain, bool flushes = false, bool saturates = false>
struct HBinary : Signature<H(H, H)> {
  static H apply(H a, H b) {
    if constexpr (flushes) {
      a = flushed_half(a);
      b = flushed_half(b);
    }
    float result = Plain::of(to_float(a), to_float(b));
    if constexpr (saturates) result = saturated(result);
    const H rounded = narrowed<H>(result);
    return flushes ? flushed_half(rounded) : rounded;
  }
};
template <class H, class Plain, bool flushes = false>
struct HUnary : Signature<H(H)> {
  static H apply(H a) {
    if constexpr (flushes) a = flushed_half(a);
    const H rounded = narrowed<H>(Plain::of(to_float(a)));
    return flushes ? flushed_half(rounded) : rounded;
  }
};
/// The product of two halves and the sum are exact in double but for their last bits.
template <class H, bool flushes = false, bool saturates = false, bool relu = false>
struct HFma : Signature<H(H, H, H)> {
  static H apply(H a, H b, H c) {
    if constexpr (flushes) {
      a = flushed_half(a);
      b = flushed_half(b);
      c = flushed_half(c);
    }
    const double product = static_cast<double>(to_float(a)) * static_cast<double>(to_float(b));
    const double addend = static_cast<double>(to_float(c));
    double sum = product + addend;
    // What the sum lost tells in which direction a tie would go: make the sum odd.
    const double back = sum - product;
    const double lost = (product - (sum - back)) + (addend - back);
    if (lost != 0 && sum - sum == 0) {
      std::uint64_t bits = bits_of(sum);
      if ((bits & 1) == 0) bits += (lost > 0) == (sum > 0) ? 1 : ~std::uint64_t{0};
      sum = double_of(bits);
    }
    if constexpr (saturates) sum = saturated(sum);
    if constexpr (relu) sum = sum > 0 || sum != sum ? sum : 0.0;
    const H rounded = narrowed_from_double<H>(sum);
    return flushes ? flushed_half(rounded) : rounded;
  }
};
template <class H, bool clears>
struct HSign : Signature<H(H)> {
  static H apply(H a) {
    return {static_cast<std::uint16_t>(clears ? a.bits & 0x7fff : a.bits ^ 0x8000)};
  }
};

/// Two halves in 32 bits, each by itself.
template <class F>
struct PairUnary : Signature<std::uint32_t(std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a) {
    using H = typename F::A;
    return to_lane<H>(F::apply(from_lane<H>(a & 0xffff))) |
           to_lane<H>(F::apply(from_lane<H>(a >> 16))) << 16;
  }
};
template <class F>
struct PairBinary : Signature<std::uint32_t(std::uint32_t, std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    using H = typename F::A;
    return to_lane<H>(F::apply(from_lane<H>(a & 0xffff), from_lane<H>(b & 0xffff))) |
           to_lane<H>(F::apply(from_lane<H>(a >> 16), from_lane<H>(b >> 16))) << 16;
  }
};
template <class F>
struct PairTernary : Signature<std::uint32_t(std::uint32_t, std::uint32_t, std::uint32_t)> {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    using H = typename F::A;
    return to_lane<H>(F::apply(from_lane<H>(a & 0xffff), from_lane<H>(b & 0xffff),
                               from_lane<H>(c & 0xffff))) |
           to_lane<H>(F::apply(from_lane<H>(a >> 16), from_lane<H>(b >> 16), from_lane<H>(c >> 16)))
               << 16;
  }
};

// --- comparisons
// ----------------------------------------------------------------------------------

/// As numbers, for comparing: halves as singles.
inline float number(float value) {
  return value;
}
inline double number(double value) {
  return value;
}
inline float number(Half value) {
  return to_float(value);
}
inline float number(BFloat value) {
  return to_float(value);
}
template <class T>
inline bool is_nan(T value) {
  return number(value) != number(value);
}

template <class T, bool flushes>
inline auto compared(T value) {
  if constexpr (flushes && std::is_same_v<T, float>) return flushed(value);
  if constexpr (flushes && sizeof(T) == 2) return number(flushed_half(value));
  return number(value);
}
/// Ordered comparisons are false if one is not a number; the ones with u are true then.
enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe };
template <class T, Relation relation, bool is_unordered, bool flushes>
struct FCompare {
  using A = T;
  static constexpr bool kIsOrder = false;
  static bool apply(T a, T b) {
    if (is_nan(a) || is_nan(b)) return is_unordered;
    const auto x = compared<T, flushes>(a), y = compared<T, flushes>(b);
    switch (relation) {
      case Relation::kEq:
        return x == y;
      case Relation::kNe:
        return x != y;
      case Relation::kLt:
        return x < y;
      case Relation::kLe:
        return x <= y;
      case Relation::kGt:
        return x > y;
      case Relation::kGe:
        return x >= y;
    }
    return false;
  }
};
template <class T, bool wants_number>
struct FCompareNan {
  using A = T;
  static constexpr bool kIsOrder = false;
  static bool apply(T a, T b) { return (!is_nan(a) && !is_nan(b)) == wants_number; }
};

enum class FloatClass { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <class T, FloatClass wanted>
struct TestClass {
  using A = T;
  static constexpr bool kIsOrder = false;
  static bool apply(T a, T) {
    using Bits = decltype(bits_of(a));
    constexpr Bits kFractionBits = sizeof(T) == 4 ? 23 : 52;
    constexpr Bits kExponentMax = sizeof(T) == 4 ? 0xff : 0x7ff;
    const Bits exponent = bits_of(a) >> kFractionBits & kExponentMax;
    const Bits fraction = bits_of(a) & ((Bits{1} << kFractionBits) - 1);
    switch (wanted) {
      case FloatClass::kFinite:
        return exponent != kExponentMax;
      case FloatClass::kInfinite:
        return exponent == kExponentMax && fraction == 0;
      case FloatClass::kNumber:
        return exponent != kExponentMax || fraction == 0;
      case FloatClass::kNotANumber:
        return exponent == kExponentMax && fraction != 0;
      case FloatClass::kNormal:
        return exponent != kExponentMax && exponent != 0;
      case FloatClass::kSubnormal:
        return exponent == 0 && fraction != 0;
    }
    return false;
  }
};

/// slct: a where c is not negative, else b; -0 counts as not negative, not a number as negative.
template <class T, class By, bool flushes>
const Code* slct(Warp& warp, const Code* code) {
  using C = Container<T>;
  const C* const a = in<C>(warp, code->a);
  const C* const b = in<C>(warp, code->b);
  const auto* const c = in<std::uint32_t>(warp, code->c);
  write_lanes<C>(warp, code->d, [a, b, c](std::uint32_t i) {
    const By by = from_lane<By>(c[i]);
    if constexpr (flushes) return flushed(by) >= 0 ? a[i] : b[i];
    return by >= 0 ? a[i] : b[i];
  });
  return code + 1;
}

}  // namespace
}  // namespace kansoku::gpu::exec
