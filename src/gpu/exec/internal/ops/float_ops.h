// SPDX-License-Identifier: Apache-2.0
#pragma once

// Floating-point operations on one lane, rounding to nearest; directed rounding is in
// rounding.cc. Internal linkage for the reason given in lane_ops.h. The GPU's single-precision and
// half NaN is one value, never a payload; x86 gives another one, so results are normalised.

#include "gpu/exec/internal/ops/approximate_ops.h"
#include "gpu/exec/internal/ops/half_lanes.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

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
/// sin and cos: all lanes at once where every angle is a near one.
template <class Plain, bool flushes>
struct FTurn : Signature<float(float)> {
  static float apply(float a) {
    return finished<float, flushes, false>(Plain::of(begun<float, flushes>(a)));
  }
  static void apply_all(std::uint32_t* to, const std::uint32_t* a) {
    std::uint32_t is_far = 0;
    LANE_LOOP {
      const float angle = begun<float, flushes>(float_of(a[i]));
      is_far |= is_near_angle(angle) ? 0U : 1U;
      to[i] = bits_of(finished<float, flushes, false>(near_sine(angle, Plain::kQuarters)));
    }
    if (is_far == 0) return;
    for (std::uint32_t i = 0; i < kLanes; ++i)
      to[i] = bits_of(apply(float_of(a[i])));
  }
};

// --- half precision
// -------------------------------------------------------------------------------

/// One operation in single precision and one more rounding is exact for halves: add, sub, mul.
template <class H, class Plain, bool flushes = false, bool saturates = false>
struct HBinary : Signature<H(H, H)> {
  static constexpr bool kFlushes = flushes;
  static float of(float a, float b) {
    const float result = Plain::of(a, b);
    return saturates ? saturated(result) : result;
  }
  static H apply(H a, H b) {
    if constexpr (flushes) {
      a = flushed_half(a);
      b = flushed_half(b);
    }
    const H rounded = narrowed<H>(of(to_float(a), to_float(b)));
    return flushes ? flushed_half(rounded) : rounded;
  }
};
template <class H, class Plain, bool flushes = false>
struct HUnary : Signature<H(H)> {
  static constexpr bool kFlushes = flushes;
  static float of(float a) { return Plain::of(a); }
  static H apply(H a) {
    if constexpr (flushes) a = flushed_half(a);
    const H rounded = narrowed<H>(of(to_float(a)));
    return flushes ? flushed_half(rounded) : rounded;
  }
};

/// product + addend rounded to odd: the bits left out still count at the next rounding, which
/// therefore is the only one that matters. `Real` must hold the product as it is.
template <class Real>
inline Real odd_sum(Real product, Real addend) {
  using Bits = decltype(bits_of(product));
  const Real sum = product + addend;
  const Real back = sum - product;
  const Real lost = (product - (sum - back)) + (addend - back);
  const Bits bits = bits_of(sum);
  // An infinite sum or one that is not a number lost nothing: `lost` is not a number.
  const Bits is_even = (lost > 0 || lost < 0) ? ~bits & 1 : 0;
  const Bits down = bits_of(lost) >> (8 * sizeof(Bits) - 1) ^ bits >> (8 * sizeof(Bits) - 1);
  return __builtin_bit_cast(Real, bits + is_even - 2 * (is_even & down));
}

template <class H, bool flushes = false, bool saturates = false, bool relu = false>
struct HFma : Signature<H(H, H, H)> {
  static constexpr bool kFlushes = flushes;
  template <class Real>
  static Real ended(Real sum) {
    if constexpr (saturates) sum = saturated(sum);
    if constexpr (relu) sum = sum > 0 || sum != sum ? sum : Real(0);
    return sum;
  }
  /// In single precision: it holds the product of two halves, and that of two bfloats unless that
  /// is too large or too small, which is_hard tells.
  static float of(float a, float b, float c) { return ended(odd_sum(a * b, c)); }
  static std::uint32_t is_hard(float a, float b) {
    if constexpr (std::is_same_v<H, Half>) return 0;
    const float product = float_of(bits_of(a * b) & 0x7fffffff);
    return (product >= 0x1p-126F && product <= 0x1.fffffep127F) || a == 0 || b == 0 ? 0 : 1;
  }
  static H hard(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    return narrowed_from_double<H>(ended(odd_sum(product, static_cast<double>(c))));
  }
  static H apply(H a, H b, H c) {
    if constexpr (flushes) {
      a = flushed_half(a);
      b = flushed_half(b);
      c = flushed_half(c);
    }
    const H rounded = hard(to_float(a), to_float(b), to_float(c));
    return flushes ? flushed_half(rounded) : rounded;
  }
};

/// The same for all lanes at once: the fast way.
template <class F>
struct Halves : F {
  template <class... Sources>
  static void apply_all(std::uint32_t* to, const Sources*... sources) {
    apply_to_halves<F, false>(to, sources...);
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

template <class Pair, class F>
struct HalfPairs : Pair {
  template <class... Sources>
  static void apply_all(std::uint32_t* to, const Sources*... sources) {
    apply_to_halves<F, true>(to, sources...);
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
  /// The opposite of an ordered comparison is an unordered one.
  static bool apply(T a, T b) {
    const auto x = compared<T, flushes>(a), y = compared<T, flushes>(b);
    switch (relation) {
      case Relation::kEq:
        return is_unordered ? !(x < y || x > y) : x == y;
      case Relation::kNe:
        return is_unordered ? x != y : x < y || x > y;
      case Relation::kLt:
        return is_unordered ? !(x >= y) : x < y;
      case Relation::kLe:
        return is_unordered ? !(x > y) : x <= y;
      case Relation::kGt:
        return is_unordered ? !(x <= y) : x > y;
      case Relation::kGe:
        return is_unordered ? !(x < y) : x >= y;
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
      case FloatClass::kNormal:  // zeros, too (seen on an H200)
        return exponent != kExponentMax && (exponent != 0 || fraction == 0);
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
