/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUDA_FP16_H
#define KANSOKU_SOFTGPU_CUDA_FP16_H
#define __CUDA_FP16_H__

/* Numbers of half precision (binary16) and pairs of them. Arithmetic is exact, rounded once to
 * nearest even. */

#include "cuda_runtime.h"

#ifdef __cplusplus

#define KANSOKU_BOTH static inline __host__ __device__

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x, y;
};

#ifdef __clang__
KANSOKU_BOTH constexpr float kansoku_half_to_float(unsigned short bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
KANSOKU_BOTH constexpr unsigned short kansoku_half_from_float(float value) {
  return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value));
}
#else
/* For compilers without the type. */
static inline float kansoku_half_to_float(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 0 ? __builtin_ldexpf(static_cast<float>(fraction), -24)
                : exponent == 31
                    ? (fraction == 0 ? __builtin_inff() : __builtin_nanf(""))
                    : __builtin_ldexpf(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}
static inline unsigned short kansoku_half_from_float(float value) {
  const unsigned sign = __builtin_signbit(value) ? 0x8000U : 0U;
  const float size = __builtin_fabsf(value);
  if (value != value) return static_cast<unsigned short>(sign | 0x7fff);
  if (size >= 65520.0f) return static_cast<unsigned short>(sign | 0x7c00);
  if (size < 0.000061035156f) /* denormal: steps of 2^-24 */
    return static_cast<unsigned short>(
        sign | static_cast<unsigned>(__builtin_rintf(__builtin_ldexpf(size, 24))));
  int exponent = 0;
  const float part = __builtin_frexpf(size, &exponent); /* [1/2, 1) */
  /* The fraction's carry into the exponent is right as it is. */
  const unsigned fraction = static_cast<unsigned>(__builtin_rintf(__builtin_ldexpf(part, 11)));
  return static_cast<unsigned short>(
      sign | ((static_cast<unsigned>(exponent + 14) << 10) + (fraction - 1024)));
}
#endif

/* A float that rounds to a narrower type as the value itself does: what float cannot hold is cut
 * off and marked in the last bit. */
KANSOKU_BOTH constexpr float kansoku_cut(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  unsigned bits = __builtin_bit_cast(unsigned, nearest);
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;
  return __builtin_bit_cast(float, bits | 1U);
}
KANSOKU_BOTH constexpr double kansoku_cut(unsigned long long value) {
  /* 2^53 and more: 11 bits go, of which one tells whether there were any. */
  return value >> 53 == 0
             ? static_cast<double>(value)
             : static_cast<double>(value >> 11 | ((value & 2047U) != 0 ? 1U : 0U)) * 2048.0;
}
KANSOKU_BOTH constexpr double kansoku_cut(long long value) {
  return value < 0 ? -kansoku_cut(0ULL - static_cast<unsigned long long>(value))
                   : kansoku_cut(static_cast<unsigned long long>(value));
}

struct __align__(2) __half {
  unsigned short __x;
  __half() = default;
#ifdef __clang__
  __host__ __device__ constexpr __half(_Float16 value)
      : __x(__builtin_bit_cast(unsigned short, value)) {}
#define KANSOKU_HALF_EDGE constexpr
#else
#define KANSOKU_HALF_EDGE
#endif
  __host__ __device__ KANSOKU_HALF_EDGE __half(float value) : __x(kansoku_half_from_float(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(double value)
      : __x(kansoku_half_from_float(kansoku_cut(value))) {}
  /* Integers that float does not hold are infinite here. */
  __host__ __device__ KANSOKU_HALF_EDGE __half(int value) : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(unsigned value)
      : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(long value) : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(unsigned long value)
      : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(long long value)
      : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(unsigned long long value)
      : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(short value) : __half(static_cast<float>(value)) {}
  __host__ __device__ KANSOKU_HALF_EDGE __half(unsigned short value)
      : __half(static_cast<float>(value)) {}
  __host__ __device__ constexpr __half(const __half_raw& raw) : __x(raw.x) {}
  __host__ __device__ KANSOKU_HALF_EDGE operator float() const {
    return kansoku_half_to_float(__x);
  }
  __host__ __device__ constexpr operator __half_raw() const {
    return __half_raw{__x};
  }
};
#undef KANSOKU_HALF_EDGE
typedef __half half;
typedef __half __nv_half;
struct __align__(4) __half2 {
  __half x, y;
  __half2() = default;
  __host__ __device__ constexpr __half2(__half a, __half b) : x(a), y(b) {}
  __host__ __device__ constexpr __half2(const __half2_raw& raw)
      : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
  __host__ __device__ constexpr operator __half2_raw() const {
    return __half2_raw{x.__x, y.__x};
  }
};
typedef __half2 half2;
typedef __half2 __nv_half2;

KANSOKU_BOTH float kansoku_widen(__half a) {
  return kansoku_half_to_float(a.__x);
}

/* On the device in its own arithmetic, on the host by float. */
#ifdef __CUDA_ARCH__
typedef _Float16 kansoku_half_pair __attribute__((ext_vector_type(2)));
#define KANSOKU_HALF_OPERATOR(op)                                                        \
  KANSOKU_BOTH __half operator op(__half a, __half b) {                                  \
    return __half(static_cast<_Float16>(__builtin_bit_cast(_Float16, a)                  \
                                            op __builtin_bit_cast(_Float16, b)));        \
  }                                                                                      \
  KANSOKU_BOTH __half2 operator op(__half2 a, __half2 b) {                               \
    return __builtin_bit_cast(__half2, __builtin_bit_cast(kansoku_half_pair, a)          \
                                           op __builtin_bit_cast(kansoku_half_pair, b)); \
  }
#else
#define KANSOKU_HALF_OPERATOR(op)                          \
  KANSOKU_BOTH __half operator op(__half a, __half b) {    \
    return __half(kansoku_widen(a) op kansoku_widen(b));   \
  }                                                        \
  KANSOKU_BOTH __half2 operator op(__half2 a, __half2 b) { \
    return __half2(a.x op b.x, a.y op b.y);                \
  }
#endif
#define KANSOKU_HALF_ASSIGNMENT(op)                             \
  KANSOKU_HALF_OPERATOR(op)                                     \
  KANSOKU_BOTH __half& operator op##=(__half& a, __half b) {    \
    return a = a op b;                                          \
  }                                                             \
  KANSOKU_BOTH __half2& operator op##=(__half2& a, __half2 b) { \
    return a = a op b;                                          \
  }
KANSOKU_HALF_ASSIGNMENT(+)
KANSOKU_HALF_ASSIGNMENT(-)
KANSOKU_HALF_ASSIGNMENT(*)
KANSOKU_HALF_ASSIGNMENT(/)
#undef KANSOKU_HALF_ASSIGNMENT
#undef KANSOKU_HALF_OPERATOR
KANSOKU_BOTH __half operator-(__half a) {
  return __half(__half_raw{static_cast<unsigned short>(a.__x ^ 0x8000U)});
}
KANSOKU_BOTH __half2 operator-(__half2 a) {
  return __half2(-a.x, -a.y);
}

#ifdef __CUDA_ARCH__
KANSOKU_BOTH __half __hfma(__half a, __half b, __half c) {
  return __half(static_cast<_Float16>(__builtin_elementwise_fma(__builtin_bit_cast(_Float16, a),
                                                                __builtin_bit_cast(_Float16, b),
                                                                __builtin_bit_cast(_Float16, c))));
}
KANSOKU_BOTH __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __builtin_bit_cast(__half2,
                            __builtin_elementwise_fma(__builtin_bit_cast(kansoku_half_pair, a),
                                                      __builtin_bit_cast(kansoku_half_pair, b),
                                                      __builtin_bit_cast(kansoku_half_pair, c)));
}
#else
/* The product has 22 bits, and double holds every sum with it that matters for the rounding. */
KANSOKU_BOTH __half __hfma(__half a, __half b, __half c) {
  return __half(static_cast<double>(kansoku_widen(a)) * kansoku_widen(b) + kansoku_widen(c));
}
KANSOKU_BOTH __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
#endif

#define KANSOKU_NARROW __half
#define KANSOKU_NARROW2 __half2
#include "softgpu_narrow.inc"
#undef KANSOKU_NARROW
#undef KANSOKU_NARROW2

/* Conversions and the parts of pairs. */
KANSOKU_BOTH __half __float2half(float a) {
  return __half(a);
}
KANSOKU_BOTH __half __float2half_rn(float a) {
  return __half(a);
}
KANSOKU_BOTH __half __double2half(double a) {
  return __half(a);
}
KANSOKU_BOTH float __half2float(__half a) {
  return kansoku_widen(a);
}
KANSOKU_BOTH __half2 __float2half2_rn(float a) {
  return __half2(__half(a), __half(a));
}
KANSOKU_BOTH __half2 __floats2half2_rn(float a, float b) {
  return __half2(__half(a), __half(b));
}
KANSOKU_BOTH __half2 __float22half2_rn(float2 a) {
  return __half2(__half(a.x), __half(a.y));
}
KANSOKU_BOTH float2 __half22float2(__half2 a) {
  return make_float2(kansoku_widen(a.x), kansoku_widen(a.y));
}
KANSOKU_BOTH float __low2float(__half2 a) {
  return kansoku_widen(a.x);
}
KANSOKU_BOTH float __high2float(__half2 a) {
  return kansoku_widen(a.y);
}
KANSOKU_BOTH __half __low2half(__half2 a) {
  return a.x;
}
KANSOKU_BOTH __half __high2half(__half2 a) {
  return a.y;
}
KANSOKU_BOTH __half2 __half2half2(__half a) {
  return __half2(a, a);
}
KANSOKU_BOTH __half2 __low2half2(__half2 a) {
  return __half2(a.x, a.x);
}
KANSOKU_BOTH __half2 __high2half2(__half2 a) {
  return __half2(a.y, a.y);
}
KANSOKU_BOTH __half2 __lowhigh2highlow(__half2 a) {
  return __half2(a.y, a.x);
}
KANSOKU_BOTH __half2 __lows2half2(__half2 a, __half2 b) {
  return __half2(a.x, b.x);
}
KANSOKU_BOTH __half2 __highs2half2(__half2 a, __half2 b) {
  return __half2(a.y, b.y);
}
KANSOKU_BOTH __half2 __halves2half2(__half a, __half b) {
  return __half2(a, b);
}
KANSOKU_BOTH __half2 make_half2(__half a, __half b) {
  return __half2(a, b);
}
KANSOKU_BOTH unsigned short __half_as_ushort(__half a) {
  return a.__x;
}
KANSOKU_BOTH short __half_as_short(__half a) {
  return static_cast<short>(a.__x);
}
KANSOKU_BOTH __half __ushort_as_half(unsigned short bits) {
  return __half(__half_raw{bits});
}
KANSOKU_BOTH __half __short_as_half(short bits) {
  return __half(__half_raw{static_cast<unsigned short>(bits)});
}
#define KANSOKU_NARROW __half
#define KANSOKU_TO(type, mode) __half2##type##_##mode
#define KANSOKU_FROM(type, mode) __##type##2half_##mode
#include "softgpu_narrow_integers.inc"
#undef KANSOKU_NARROW
#undef KANSOKU_TO
#undef KANSOKU_FROM

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00U)

#undef KANSOKU_BOTH
#endif /* __cplusplus */

#endif /* KANSOKU_SOFTGPU_CUDA_FP16_H */
