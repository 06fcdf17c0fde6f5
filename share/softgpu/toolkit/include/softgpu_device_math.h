/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_MATH_H
#define KANSOKU_SOFTGPU_DEVICE_MATH_H

/* Mathematics of float under the names of double, and names of CUDA's own: clang's headers declare
 * the first and leave them to others. */

#define KANSOKU_OF_FLOAT(name)                   \
  static __device__ inline float name(float a) { \
    return name##f(a);                           \
  }
#define KANSOKU_OF_FLOATS(name)                           \
  static __device__ inline float name(float a, float b) { \
    return name##f(a, b);                                 \
  }
#define KANSOKU_TO_INTEGER(type, name)          \
  static __device__ inline type name(float a) { \
    return name##f(a);                          \
  }
KANSOKU_OF_FLOAT(acosh)
KANSOKU_OF_FLOAT(asinh)
KANSOKU_OF_FLOAT(atanh)
KANSOKU_OF_FLOAT(cbrt)
KANSOKU_OF_FLOAT(cospi)
KANSOKU_OF_FLOAT(erf)
KANSOKU_OF_FLOAT(erfc)
KANSOKU_OF_FLOAT(exp10)
KANSOKU_OF_FLOAT(exp2)
KANSOKU_OF_FLOAT(expm1)
KANSOKU_OF_FLOAT(lgamma)
KANSOKU_OF_FLOAT(log1p)
KANSOKU_OF_FLOAT(log2)
KANSOKU_OF_FLOAT(logb)
KANSOKU_OF_FLOAT(nearbyint)
KANSOKU_OF_FLOAT(normcdf)
KANSOKU_OF_FLOAT(rcbrt)
KANSOKU_OF_FLOAT(rint)
KANSOKU_OF_FLOAT(round)
KANSOKU_OF_FLOAT(rsqrt)
KANSOKU_OF_FLOAT(sinpi)
KANSOKU_OF_FLOAT(tgamma)
KANSOKU_OF_FLOAT(trunc)
KANSOKU_OF_FLOATS(copysign)
KANSOKU_OF_FLOATS(fdim)
KANSOKU_OF_FLOATS(fmax)
KANSOKU_OF_FLOATS(fmin)
KANSOKU_OF_FLOATS(hypot)
KANSOKU_OF_FLOATS(nextafter)
KANSOKU_OF_FLOATS(remainder)
KANSOKU_OF_FLOATS(rhypot)
KANSOKU_TO_INTEGER(int, ilogb)
KANSOKU_TO_INTEGER(long, lrint)
KANSOKU_TO_INTEGER(long, lround)
KANSOKU_TO_INTEGER(long long, llrint)
KANSOKU_TO_INTEGER(long long, llround)
#undef KANSOKU_OF_FLOAT
#undef KANSOKU_OF_FLOATS
#undef KANSOKU_TO_INTEGER
static __device__ inline float fma(float a, float b, float c) {
  return fmaf(a, b, c);
}
static __device__ inline float remquo(float a, float b, int* quotient) {
  return remquof(a, b, quotient);
}
static __device__ inline float scalbn(float a, int exponent) {
  return scalbnf(a, exponent);
}
static __device__ inline float scalbln(float a, long exponent) {
  return scalblnf(a, exponent);
}
static __device__ inline void sincospi(float a, float* sine, float* cosine) {
  sincospif(a, sine, cosine);
}
static __device__ inline double nan(const char*) {
  return __builtin_nan("");
}
static __device__ inline float nanf(const char*) {
  return __builtin_nanf("");
}

/* min and max of any two numbers of arithmetic: C++ would round those of floating point to clang's
 * min(int, int) without a word. */
#define KANSOKU_MIN_MAX(type, minimum, maximum)       \
  static __device__ inline type min(type a, type b) { \
    return minimum;                                   \
  }                                                   \
  static __device__ inline type max(type a, type b) { \
    return maximum;                                   \
  }                                                   \
  static __host__ inline type min(type a, type b) {   \
    return minimum;                                   \
  }                                                   \
  static __host__ inline type max(type a, type b) {   \
    return maximum;                                   \
  }
static __host__ inline int min(int a, int b) {
  return a < b ? a : b;
}
static __host__ inline int max(int a, int b) {
  return a > b ? a : b;
}
KANSOKU_MIN_MAX(float, fminf(a, b), fmaxf(a, b))
KANSOKU_MIN_MAX(double, fmin(a, b), fmax(a, b))
KANSOKU_MIN_MAX(unsigned, a<b ? a : b, a> b ? a : b)
KANSOKU_MIN_MAX(long, a<b ? a : b, a> b ? a : b)
KANSOKU_MIN_MAX(unsigned long, a<b ? a : b, a> b ? a : b)
KANSOKU_MIN_MAX(long long, a<b ? a : b, a> b ? a : b)
KANSOKU_MIN_MAX(unsigned long long, a<b ? a : b, a> b ? a : b)
#undef KANSOKU_MIN_MAX
/* For two types: their common type in C's arithmetic. */
#define KANSOKU_MIXED(a_type, b_type, type)               \
  static __device__ inline type min(a_type a, b_type b) { \
    return min((type)a, (type)b);                         \
  }                                                       \
  static __device__ inline type max(a_type a, b_type b) { \
    return max((type)a, (type)b);                         \
  }
KANSOKU_MIXED(float, double, double)
KANSOKU_MIXED(double, float, double)
KANSOKU_MIXED(int, unsigned, unsigned)
KANSOKU_MIXED(unsigned, int, unsigned)
KANSOKU_MIXED(long, unsigned long, unsigned long)
KANSOKU_MIXED(unsigned long, long, unsigned long)
KANSOKU_MIXED(long long, unsigned long long, unsigned long long)
KANSOKU_MIXED(unsigned long long, long long, unsigned long long)
#undef KANSOKU_MIXED

#endif /* KANSOKU_SOFTGPU_DEVICE_MATH_H */
