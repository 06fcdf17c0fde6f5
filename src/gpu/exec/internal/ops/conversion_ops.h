// SPDX-License-Identifier: Apache-2.0
#pragma once

// cvt on one lane, rounding to nearest or to an integer; directed rounding is in rounding.cc.
// Internal linkage for the reason given in lane_ops.h.

#include "gpu/exec/internal/ops/float_ops.h"

namespace kansoku::gpu::exec {
namespace {  // NOLINT(google-build-namespaces)

template <class T>
inline constexpr T kGreatest = std::is_signed_v<T>
                                   ? static_cast<T>(static_cast<Unsigned<T>>(~Unsigned<T>{0}) >> 1)
                                   : static_cast<T>(~Unsigned<T>{0});
template <class T>
inline constexpr T kLeast = std::is_signed_v<T> ? static_cast<T>(-kGreatest<T> - 1) : T{0};

template <class To, class From, bool saturates>
struct IntegerToInteger : Signature<To(From)> {
  static constexpr Linear kLinear =
      sizeof(To) == 8 && sizeof(From) == 4 && !saturates            ? Linear::kWiden
      : sizeof(To) == sizeof(From) && sizeof(To) >= 4 && !saturates ? Linear::kCopy
                                                                    : Linear::kNone;
  static To apply(From a) {
    if constexpr (saturates) {
      // Compared as numbers, whatever the signs of the types.
      if constexpr (std::is_signed_v<From>) {
        if (a < 0) {
          if constexpr (!std::is_signed_v<To>) return 0;
          return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(kLeast<To>)
                     ? kLeast<To>
                     : static_cast<To>(a);
        }
      }
      return static_cast<std::uint64_t>(a) > static_cast<std::uint64_t>(kGreatest<To>)
                 ? kGreatest<To>
                 : static_cast<To>(a);
    }
    return static_cast<To>(a);
  }
};

inline float widened(Half value) {
  return to_float(value);
}
inline float widened(BFloat value) {
  return to_float(value);
}
inline float widened(float value) {
  return value;
}
inline double widened(double value) {
  return value;
}

template <class To, class From>
inline To rounded_to(From value) {
  if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat>) {
    if constexpr (sizeof(From) == 8) return narrowed_from_double<To>(value);
    if constexpr (sizeof(From) == 4) return narrowed<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
struct IntegerToFloat : Signature<To(From)> {
  static To apply(From a) {
    if constexpr (sizeof(To) == 2)
      return narrowed_from_double<To>(static_cast<double>(a));
    else
      return static_cast<To>(a);
  }
};

enum class Toward { kZero, kDown, kUp };
/// The neighbour of the nearest number that lies on the right side of `a`.
template <class To, Toward direction, bool relu = false>
struct DirectedHalf : Signature<To(float)> {
  static To apply(float a) {
    if constexpr (relu) a = a > 0 || a != a ? a : 0.0F;
    To result = narrowed<To>(a);
    const float back = widened(result);
    const bool is_negative = (bits_of(a) >> 31) != 0;
    const bool is_down = direction == Toward::kDown || (direction == Toward::kZero && !is_negative);
    // Between patterns of one sign, the greater one has the greater magnitude.
    if (is_down && back > a)
      result.bits = static_cast<std::uint16_t>(result.bits + (is_negative ? 1 : -1));
    if (!is_down && back < a)
      result.bits = static_cast<std::uint16_t>(result.bits + (is_negative ? -1 : 1));
    return result;
  }
};

enum class ToInteger { kNearest, kZero, kDown, kUp };
template <ToInteger mode>
inline float to_integer(float value) {
  switch (mode) {
    case ToInteger::kNearest:
      return __builtin_rintf(value);
    case ToInteger::kZero:
      return __builtin_truncf(value);
    case ToInteger::kDown:
      return __builtin_floorf(value);
    case ToInteger::kUp:
      return __builtin_ceilf(value);
  }
  return value;
}
template <ToInteger mode>
inline double to_integer(double value) {
  switch (mode) {
    case ToInteger::kNearest:
      return __builtin_rint(value);
    case ToInteger::kZero:
      return __builtin_trunc(value);
    case ToInteger::kDown:
      return __builtin_floor(value);
    case ToInteger::kUp:
      return __builtin_ceil(value);
  }
  return value;
}

/// Saturates always; not a number gives 0. x86 would give the smallest number in both cases.
template <class To, class F>
inline To clamped(F value) {
  // 2^(bits of To), or half of that: a power of two, so exact in F.
  constexpr F kEnd =
      static_cast<F>(std::uint64_t{1} << (kBits<To> - (std::is_signed_v<To> ? 2 : 1))) * F(2);
  if (value != value) return 0;
  if (value >= kEnd) return kGreatest<To>;
  if (std::is_signed_v<To> ? value < -kEnd : value <= F(-1)) return kLeast<To>;
  return static_cast<To>(value);
}

template <class To, class From, ToInteger mode, bool flushes>
struct FloatToInteger : Signature<To(From)> {
  static To apply(From a) {
    auto value = widened(a);
    if constexpr (flushes && sizeof(From) == 4) value = flushed(value);
    return clamped<To>(to_integer<mode>(value));
  }
};

template <class To, class From, bool flushes, bool saturates, bool relu = false>
struct FloatToFloat : Signature<To(From)> {
  static To apply(From a) {
    auto value = widened(a);
    if constexpr (flushes && sizeof(value) == 4) value = flushed(value);
    if constexpr (saturates) value = saturated(value);
    if constexpr (relu) value = value > 0 || value != value ? value : decltype(value)(0);
    To result = rounded_to<To>(value);
    if constexpr (std::is_same_v<To, float>) {
      if constexpr (flushes) result = flushed(result);
      result = canonical(result);
    }
    return result;
  }
};
/// cvt.rni.f32.f32 and the like.
template <class T, ToInteger mode, bool flushes, bool saturates>
struct FloatToWhole : Signature<T(T)> {
  static T apply(T a) {
    auto value = widened(a);
    if constexpr (flushes && sizeof(T) == 4) value = flushed(value);
    value = to_integer<mode>(value);
    if constexpr (saturates) value = saturated(value);
    if constexpr (sizeof(T) == 4) value = canonical(value);
    return rounded_to<T>(value);
  }
};

/// Two singles into one register: a becomes the upper half.
template <class H, bool relu>
struct TwoToHalves : Signature<std::uint32_t(float, float)> {
  static std::uint32_t apply(float a, float b) {
    using One = FloatToFloat<H, float, false, false, relu>;
    return to_lane<H>(One::apply(a)) << 16 | to_lane<H>(One::apply(b));
  }
};

/// To the 10-bit fraction of tf32: to nearest, ties away from zero.
struct ToTf32 : Signature<float(float)> {
  static float apply(float a) {
    if (a != a) return float_of(0x7fffffff);
    const std::uint32_t bits = bits_of(a);
    if ((bits & 0x7f800000) == 0x7f800000) return a;
    return float_of((bits + 0x1000) & 0xffffe000);
  }
};

/// The lower bits of a register, brought to a wider one.
template <class To, class From>
struct Extend : Signature<To(From)> {
  static To apply(From a) { return static_cast<To>(a); }
};
/// The lower half of a 64-bit register.
struct Truncate : Signature<std::uint32_t(std::uint64_t)> {
  static constexpr Linear kLinear = Linear::kCopy;
  static std::uint32_t apply(std::uint64_t a) { return static_cast<std::uint32_t>(a); }
};
template <class T>
struct Copy : Signature<T(T)> {
  static constexpr Linear kLinear = Linear::kCopy;
  static T apply(T a) { return a; }
};

}  // namespace
}  // namespace kansoku::gpu::exec
