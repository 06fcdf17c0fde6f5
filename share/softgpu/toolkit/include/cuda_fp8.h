/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUDA_FP8_H
#define KANSOKU_SOFTGPU_CUDA_FP8_H
#define __CUDA_FP8_H__

/* Numbers of 8 bits: E4M3 (4 bits of exponent, 3 of fraction, no infinity, 448 the greatest) and
 * E5M2 (the upper half of binary16). Conversions round to nearest even. */

#include "cuda_bf16.h"

#ifdef __cplusplus

#define KANSOKU_BOTH static inline __host__ __device__

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;
/* With __NV_SATFINITE values beyond the greatest become the greatest; otherwise infinity or, where
 * there is none, not a number. */
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;

/* Bits of fraction, bias of the exponent, greatest finite number as bits and as a value. */
struct kansoku_fp8_format {
  int fraction_bits, bias;
  unsigned greatest_bits, beyond_bits, nan_bits;
  float greatest;
};
KANSOKU_BOTH constexpr kansoku_fp8_format kansoku_fp8_format_of(__nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? kansoku_fp8_format{3, 7, 0x7e, 0x7f, 0x7f, 448.0f}
                           : kansoku_fp8_format{2, 15, 0x7b, 0x7c, 0x7f, 57344.0f};
}

KANSOKU_BOTH float kansoku_fp8_to_float(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  const kansoku_fp8_format format = kansoku_fp8_format_of(kind);
  const unsigned size = bits & 0x7fU;
  const unsigned fraction = size & ((1U << format.fraction_bits) - 1U);
  const int exponent = static_cast<int>(size >> format.fraction_bits);
  /* 2^(e - bias - fraction bits) as bits of a float: never a denormal one. */
  const auto power = [&](int e) {
    return __builtin_bit_cast(
        float, static_cast<unsigned>(e - format.bias - format.fraction_bits + 127) << 23);
  };
  float value = exponent == 0
                    ? static_cast<float>(fraction) * power(1)
                    : static_cast<float>(fraction + (1U << format.fraction_bits)) * power(exponent);
  if (size > format.greatest_bits)
    value = kind == __NV_E5M2 && size == 0x7cU ? __builtin_inff() : __builtin_nanf("");
  return (bits & 0x80U) != 0 ? -value : value;
}
KANSOKU_BOTH __nv_fp8_storage_t kansoku_fp8_from_float(float value, __nv_saturation_t saturation,
                                                       __nv_fp8_interpretation_t kind) {
  const kansoku_fp8_format format = kansoku_fp8_format_of(kind);
  const unsigned word = __builtin_bit_cast(unsigned, value);
  const unsigned sign = word >> 24 & 0x80U;
  const float size = __builtin_fabsf(value);
  if (value != value) return static_cast<__nv_fp8_storage_t>(sign | format.nan_bits);
  /* Steps of the number's own exponent, never finer than those of denormal numbers. */
  int exponent = static_cast<int>(word >> 23 & 0xffU) - 127;
  if (exponent < 1 - format.bias) exponent = 1 - format.bias;
  const int step = exponent - format.fraction_bits;
  if (exponent <= format.bias + 1) {
    const float steps = size * __builtin_bit_cast(float, static_cast<unsigned>(127 - step) << 23);
    const unsigned rounded = static_cast<unsigned>(__builtin_rintf(steps));
    /* The carry of the fraction into the exponent is right as it is. */
    const unsigned bits =
        (static_cast<unsigned>(exponent + format.bias - 1) << format.fraction_bits) + rounded;
    if (bits <= format.greatest_bits) return static_cast<__nv_fp8_storage_t>(sign | bits);
  }
  return static_cast<__nv_fp8_storage_t>(
      sign | (saturation == __NV_SATFINITE ? format.greatest_bits : format.beyond_bits));
}

KANSOKU_BOTH __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  return kansoku_fp8_from_float(value, saturation, kind);
}
KANSOKU_BOTH __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 value,
                                                           __nv_saturation_t saturation,
                                                           __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(kansoku_fp8_from_float(value.x, saturation, kind) |
                                           kansoku_fp8_from_float(value.y, saturation, kind) << 8);
}
KANSOKU_BOTH __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw value,
                                                        __nv_saturation_t saturation,
                                                        __nv_fp8_interpretation_t kind) {
  return kansoku_fp8_from_float(kansoku_half_to_float(value.x), saturation, kind);
}
KANSOKU_BOTH __nv_fp8_storage_t __nv_cvt_double_to_fp8(double value, __nv_saturation_t saturation,
                                                       __nv_fp8_interpretation_t kind) {
  return kansoku_fp8_from_float(kansoku_cut(value), saturation, kind);
}
KANSOKU_BOTH __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw value,
                                                            __nv_saturation_t saturation,
                                                            __nv_fp8_interpretation_t kind) {
  return kansoku_fp8_from_float(kansoku_bfloat_to_float(value.x), saturation, kind);
}
KANSOKU_BOTH __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw value,
                                                             __nv_saturation_t saturation,
                                                             __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2(
      make_float2(kansoku_half_to_float(value.x), kansoku_half_to_float(value.y)), saturation,
      kind);
}
KANSOKU_BOTH __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw value,
                                                                 __nv_saturation_t saturation,
                                                                 __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2(
      make_float2(kansoku_bfloat_to_float(value.x), kansoku_bfloat_to_float(value.y)), saturation,
      kind);
}
KANSOKU_BOTH __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t value,
                                                __nv_fp8_interpretation_t kind) {
  return __half(kansoku_fp8_to_float(value, kind));
}
KANSOKU_BOTH __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t value,
                                                    __nv_fp8_interpretation_t kind) {
  const auto low = static_cast<__nv_fp8_storage_t>(value);
  const auto high = static_cast<__nv_fp8_storage_t>(value >> 8);
  return __half2_raw{__nv_cvt_fp8_to_halfraw(low, kind).x, __nv_cvt_fp8_to_halfraw(high, kind).x};
}

#define KANSOKU_FP8(name, kind)                                                            \
  struct name {                                                                            \
    __nv_fp8_storage_t __x;                                                                \
    name() = default;                                                                      \
    __host__ __device__ explicit name(float value)                                         \
        : __x(kansoku_fp8_from_float(value, __NV_SATFINITE, kind)) {}                      \
    __host__ __device__ explicit name(double value) : name(kansoku_cut(value)) {}          \
    __host__ __device__ explicit name(__half value) : name(kansoku_widen(value)) {}        \
    __host__ __device__ explicit name(__nv_bfloat16 value) : name(kansoku_widen(value)) {} \
    __host__ __device__ explicit operator float() const {                                  \
      return kansoku_fp8_to_float(__x, kind);                                              \
    }                                                                                      \
    __host__ __device__ explicit operator __half() const {                                 \
      return __half(kansoku_fp8_to_float(__x, kind));                                      \
    }                                                                                      \
  };
KANSOKU_FP8(__nv_fp8_e4m3, __NV_E4M3)
KANSOKU_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef KANSOKU_FP8

/* Two and four of them, the first in the lowest byte. */
#define KANSOKU_FP8_GROUPS(name2, name4, kind)                                                    \
  struct name2 {                                                                                  \
    __nv_fp8x2_storage_t __x;                                                                     \
    name2() = default;                                                                            \
    __host__ __device__ explicit name2(float2 value)                                              \
        : __x(__nv_cvt_float2_to_fp8x2(value, __NV_SATFINITE, kind)) {}                           \
    __host__ __device__ explicit name2(__half2 value)                                             \
        : __x(__nv_cvt_halfraw2_to_fp8x2(value, __NV_SATFINITE, kind)) {}                         \
    __host__ __device__ explicit operator float2() const {                                        \
      return make_float2(kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x), kind),        \
                         kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x >> 8), kind));  \
    }                                                                                             \
    __host__ __device__ explicit operator __half2() const {                                       \
      return __nv_cvt_fp8x2_to_halfraw2(__x, kind);                                               \
    }                                                                                             \
  };                                                                                              \
  struct name4 {                                                                                  \
    __nv_fp8x4_storage_t __x;                                                                     \
    name4() = default;                                                                            \
    __host__ __device__ explicit name4(float4 value)                                              \
        : __x(__nv_cvt_float2_to_fp8x2(make_float2(value.x, value.y), __NV_SATFINITE, kind) |     \
              static_cast<unsigned>(                                                              \
                  __nv_cvt_float2_to_fp8x2(make_float2(value.z, value.w), __NV_SATFINITE, kind))  \
                  << 16) {}                                                                       \
    __host__ __device__ explicit operator float4() const {                                        \
      return make_float4(kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x), kind),        \
                         kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x >> 8), kind),   \
                         kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x >> 16), kind),  \
                         kansoku_fp8_to_float(static_cast<__nv_fp8_storage_t>(__x >> 24), kind)); \
    }                                                                                             \
  };
KANSOKU_FP8_GROUPS(__nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
KANSOKU_FP8_GROUPS(__nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef KANSOKU_FP8_GROUPS

#undef KANSOKU_BOTH
#endif /* __cplusplus */

#endif /* KANSOKU_SOFTGPU_CUDA_FP8_H */
