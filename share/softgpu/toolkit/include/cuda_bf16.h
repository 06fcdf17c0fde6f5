/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUDA_BF16_H
#define KANSOKU_SOFTGPU_CUDA_BF16_H
#define __CUDA_BF16_H__

/* Numbers of bfloat16 (float without its low 16 bits) and pairs of them. Arithmetic is that of
 * float, rounded to nearest even. */

#include "cuda_fp16.h"

#ifdef __cplusplus

#define KANSOKU_BOTH static inline __host__ __device__

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat162_raw {
  unsigned short x, y;
};

KANSOKU_BOTH constexpr float kansoku_bfloat_to_float(unsigned short bits) {
  return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16);
}
KANSOKU_BOTH constexpr unsigned short kansoku_bfloat_by_bits(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff; /* not a number, as GPUs give it */
  return static_cast<unsigned short>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}
KANSOKU_BOTH unsigned short kansoku_bfloat_from_float(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return kansoku_bfloat_by_bits(value);
#endif
}

struct __align__(2) __nv_bfloat16 {
  unsigned short __x;
  __nv_bfloat16() = default;
  __host__ __device__ __nv_bfloat16(float value) : __x(kansoku_bfloat_from_float(value)) {}
  __host__ __device__ __nv_bfloat16(double value) : __nv_bfloat16(kansoku_cut(value)) {}
  __host__ __device__ __nv_bfloat16(int value) : __nv_bfloat16(static_cast<double>(value)) {}
  __host__ __device__ __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<double>(value)) {}
  __host__ __device__ __nv_bfloat16(long value)
      : __nv_bfloat16(kansoku_cut(static_cast<long long>(value))) {}
  __host__ __device__ __nv_bfloat16(unsigned long value)
      : __nv_bfloat16(kansoku_cut(static_cast<unsigned long long>(value))) {}
  __host__ __device__ __nv_bfloat16(long long value) : __nv_bfloat16(kansoku_cut(value)) {}
  __host__ __device__ __nv_bfloat16(unsigned long long value) : __nv_bfloat16(kansoku_cut(value)) {}
  __host__ __device__ __nv_bfloat16(short value) : __nv_bfloat16(static_cast<float>(value)) {}
  __host__ __device__ __nv_bfloat16(unsigned short value)
      : __nv_bfloat16(static_cast<float>(value)) {}
  __host__ __device__ constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  __host__ __device__ constexpr operator float() const {
    return kansoku_bfloat_to_float(__x);
  }
  __host__ __device__ constexpr operator __nv_bfloat16_raw() const {
    return __nv_bfloat16_raw{__x};
  }
};
typedef __nv_bfloat16 nv_bfloat16;
struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __host__ __device__ constexpr __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
  __host__ __device__ constexpr __nv_bfloat162(const __nv_bfloat162_raw& raw)
      : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
};
typedef __nv_bfloat162 nv_bfloat162;

KANSOKU_BOTH float kansoku_widen(__nv_bfloat16 a) {
  return kansoku_bfloat_to_float(a.__x);
}

#define KANSOKU_BFLOAT_OPERATOR(op)                                                  \
  KANSOKU_BOTH __nv_bfloat16 operator op(__nv_bfloat16 a, __nv_bfloat16 b) {         \
    return __nv_bfloat16(kansoku_widen(a) op kansoku_widen(b));                      \
  }                                                                                  \
  KANSOKU_BOTH __nv_bfloat162 operator op(__nv_bfloat162 a, __nv_bfloat162 b) {      \
    return __nv_bfloat162(a.x op b.x, a.y op b.y);                                   \
  }                                                                                  \
  KANSOKU_BOTH __nv_bfloat16& operator op##=(__nv_bfloat16& a, __nv_bfloat16 b) {    \
    return a = a op b;                                                               \
  }                                                                                  \
  KANSOKU_BOTH __nv_bfloat162& operator op##=(__nv_bfloat162& a, __nv_bfloat162 b) { \
    return a = a op b;                                                               \
  }
KANSOKU_BFLOAT_OPERATOR(+)
KANSOKU_BFLOAT_OPERATOR(-)
KANSOKU_BFLOAT_OPERATOR(*)
KANSOKU_BFLOAT_OPERATOR(/)
#undef KANSOKU_BFLOAT_OPERATOR
KANSOKU_BOTH __nv_bfloat16 operator-(__nv_bfloat16 a) {
  return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.__x ^ 0x8000U)});
}
KANSOKU_BOTH __nv_bfloat162 operator-(__nv_bfloat162 a) {
  return __nv_bfloat162(-a.x, -a.y);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
KANSOKU_BOTH __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  unsigned short bits;
  asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(bits) : "h"(a.__x), "h"(b.__x), "h"(c.__x));
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
KANSOKU_BOTH __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  unsigned bits;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(bits)
      : "r"(__builtin_bit_cast(unsigned, a)), "r"(__builtin_bit_cast(unsigned, b)),
        "r"(__builtin_bit_cast(unsigned, c)));
  return __builtin_bit_cast(__nv_bfloat162, bits);
}
#else
/* Rounded to float in between, as older devices do it in software. */
KANSOKU_BOTH __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __nv_bfloat16(__builtin_fmaf(kansoku_widen(a), kansoku_widen(b), kansoku_widen(c)));
}
KANSOKU_BOTH __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
#endif

#define KANSOKU_NARROW __nv_bfloat16
#define KANSOKU_NARROW2 __nv_bfloat162
#include "softgpu_narrow.inc"
#undef KANSOKU_NARROW
#undef KANSOKU_NARROW2

/* Conversions and the parts of pairs. */
KANSOKU_BOTH __nv_bfloat16 __float2bfloat16(float a) {
  return __nv_bfloat16(a);
}
KANSOKU_BOTH __nv_bfloat16 __float2bfloat16_rn(float a) {
  return __nv_bfloat16(a);
}
KANSOKU_BOTH __nv_bfloat16 __double2bfloat16(double a) {
  return __nv_bfloat16(a);
}
KANSOKU_BOTH float __bfloat162float(__nv_bfloat16 a) {
  return kansoku_widen(a);
}
KANSOKU_BOTH __nv_bfloat162 __float2bfloat162_rn(float a) {
  return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(a));
}
KANSOKU_BOTH __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
KANSOKU_BOTH __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return __nv_bfloat162(__nv_bfloat16(a.x), __nv_bfloat16(a.y));
}
KANSOKU_BOTH float2 __bfloat1622float2(__nv_bfloat162 a) {
  return make_float2(kansoku_widen(a.x), kansoku_widen(a.y));
}
KANSOKU_BOTH float __low2float(__nv_bfloat162 a) {
  return kansoku_widen(a.x);
}
KANSOKU_BOTH float __high2float(__nv_bfloat162 a) {
  return kansoku_widen(a.y);
}
KANSOKU_BOTH __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) {
  return a.x;
}
KANSOKU_BOTH __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) {
  return a.y;
}
KANSOKU_BOTH __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) {
  return __nv_bfloat162(a, a);
}
KANSOKU_BOTH __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) {
  return __nv_bfloat162(a.x, a.x);
}
KANSOKU_BOTH __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) {
  return __nv_bfloat162(a.y, a.y);
}
KANSOKU_BOTH __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __nv_bfloat162(a.x, b.x);
}
KANSOKU_BOTH __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __nv_bfloat162(a.y, b.y);
}
KANSOKU_BOTH __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat162(a, b);
}
KANSOKU_BOTH __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat162(a, b);
}
KANSOKU_BOTH unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) {
  return a.__x;
}
KANSOKU_BOTH __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}

#define KANSOKU_NARROW __nv_bfloat16
#define KANSOKU_TO(type, mode) __bfloat162##type##_##mode
#define KANSOKU_FROM(type, mode) __##type##2bfloat16_##mode
#include "softgpu_narrow_integers.inc"
#undef KANSOKU_NARROW
#undef KANSOKU_TO
#undef KANSOKU_FROM

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80U)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffU)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7fU)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000U)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000U)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80U)

#undef KANSOKU_BOTH
#endif /* __cplusplus */

#endif /* KANSOKU_SOFTGPU_CUDA_BF16_H */
