// SPDX-License-Identifier: Apache-2.0
// The library of device mathematics: the functions `__nv_...` that clang's headers for CUDA call.
// It is made of Debian's libclc (the functions of OpenCL C, by their mangled names), of clang's
// built-in functions, and of code below where those are slow on the software device. `make softgpu`
// compiles it to bitcode. Errors in units in the last place are those of OpenCL C: 4 at most
// for exp, log, sin and cos of single precision, 16 for pow.
// Compiled alone: no header, so that nothing of the host's mathematics comes in.

#define KANSOKU_DEVICE extern "C" __attribute__((device))

// One of libclc: our name, its mangled name, parameters, arguments.
#define KANSOKU_CLC_CALL(type, name, mangled, parameters, arguments)           \
  __attribute__((device)) type kansoku_clc_##name parameters __asm__(mangled); \
  KANSOKU_DEVICE type __nv_##name parameters {                                 \
    return kansoku_clc_##name arguments;                                       \
  }
#define KANSOKU_UNARY(name, length)                                       \
  KANSOKU_CLC_CALL(double, name, "_Z" #length #name "d", (double a), (a)) \
  KANSOKU_CLC_CALL(float, name##f, "_Z" #length #name "f", (float a), (a))
#define KANSOKU_BINARY(name, length)                                                    \
  KANSOKU_CLC_CALL(double, name, "_Z" #length #name "dd", (double a, double b), (a, b)) \
  KANSOKU_CLC_CALL(float, name##f, "_Z" #length #name "ff", (float a, float b), (a, b))

KANSOKU_UNARY(acos, 4)
KANSOKU_UNARY(acosh, 5)
KANSOKU_UNARY(asin, 4)
KANSOKU_UNARY(asinh, 5)
KANSOKU_UNARY(atan, 4)
KANSOKU_UNARY(atanh, 5)
KANSOKU_UNARY(cbrt, 4)
KANSOKU_UNARY(cosh, 4)
KANSOKU_UNARY(cospi, 5)
KANSOKU_UNARY(erf, 3)
KANSOKU_UNARY(exp10, 5)
KANSOKU_CLC_CALL(double, exp2, "_Z4exp2d", (double a), (a))
KANSOKU_UNARY(expm1, 5)
KANSOKU_UNARY(lgamma, 6)
KANSOKU_CLC_CALL(double, log, "_Z3logd", (double a), (a))
KANSOKU_CLC_CALL(float, logf, "_Z3logf", (float a), (a))
KANSOKU_UNARY(log10, 5)
KANSOKU_UNARY(log1p, 5)
KANSOKU_UNARY(log2, 4)
KANSOKU_UNARY(logb, 4)
KANSOKU_UNARY(sinh, 4)
KANSOKU_UNARY(sinpi, 5)
KANSOKU_UNARY(tan, 3)
KANSOKU_UNARY(tanh, 4)
KANSOKU_BINARY(atan2, 5)
KANSOKU_BINARY(fdim, 4)
KANSOKU_BINARY(hypot, 5)
KANSOKU_BINARY(nextafter, 9)
KANSOKU_BINARY(pow, 3)
KANSOKU_CLC_CALL(double, powi, "_Z4powndi", (double a, int b), (a, b))
KANSOKU_CLC_CALL(float, powif, "_Z4pownfi", (float a, int b), (a, b))
KANSOKU_CLC_CALL(int, ilogb, "_Z5ilogbd", (double a), (a))
KANSOKU_CLC_CALL(int, ilogbf, "_Z5ilogbf", (float a), (a))
KANSOKU_CLC_CALL(double, exp, "_Z3expd", (double a), (a))
KANSOKU_CLC_CALL(double, sin, "_Z3sind", (double a), (a))
KANSOKU_CLC_CALL(double, cos, "_Z3cosd", (double a), (a))
__attribute__((device)) float kansoku_clc_sinf(float a) __asm__("_Z3sinf");
__attribute__((device)) float kansoku_clc_cosf(float a) __asm__("_Z3cosf");

// Those of libclc that are wrong at the edges.
#define KANSOKU_CLC(type, name, mangled, parameters) \
  __attribute__((device)) type kansoku_clc_##name parameters __asm__(mangled);
KANSOKU_CLC(double, erfc, "_Z4erfcd", (double a))
KANSOKU_CLC(double, tgamma, "_Z6tgammad", (double a))
KANSOKU_CLC(double, fmod, "_Z4fmoddd", (double a, double b))
KANSOKU_CLC(float, fmodf, "_Z4fmodff", (float a, float b))
KANSOKU_CLC(double, remainder, "_Z9remainderdd", (double a, double b))
KANSOKU_CLC(float, remainderf, "_Z9remainderff", (float a, float b))
KANSOKU_CLC(double, ldexp, "_Z5ldexpdi", (double a, int b))
KANSOKU_CLC(float, ldexpf, "_Z5ldexpfi", (float a, int b))

// Its functions of single precision make denormal numbers 0; by double precision they do not.
KANSOKU_DEVICE double __nv_fmod(double a, double b) {
  return kansoku_clc_fmod(a, b);
}
KANSOKU_DEVICE float __nv_fmodf(float a, float b) {
  return __builtin_fabsf(b) < 0x1p-100F ? static_cast<float>(kansoku_clc_fmod(a, b))
                                        : kansoku_clc_fmodf(a, b);
}
KANSOKU_DEVICE double __nv_remainder(double a, double b) {
  return kansoku_clc_remainder(a, b);
}
KANSOKU_DEVICE float __nv_remainderf(float a, float b) {
  return __builtin_fabsf(b) < 0x1p-100F ? static_cast<float>(kansoku_clc_remainder(a, b))
                                        : kansoku_clc_remainderf(a, b);
}
KANSOKU_DEVICE double __nv_erfc(double a) {
  return kansoku_clc_erfc(a);
}
KANSOKU_DEVICE float __nv_erfcf(float a) {
  return static_cast<float>(kansoku_clc_erfc(a));  // its own is off by 60 units
}
KANSOKU_DEVICE double __nv_ldexp(double a, int b) {
  return a - a == 0.0 ? kansoku_clc_ldexp(a, b) : a;
}
KANSOKU_DEVICE float __nv_ldexpf(float a, int b) {
  return a - a == 0.0F ? kansoku_clc_ldexpf(a, b) : a;
}
// Near 0 it is 1 / a; far below, between the poles, 0 with alternating signs.
KANSOKU_DEVICE double __nv_tgamma(double a) {
  if (__builtin_fabs(a) < 0x1p-54) return 1.0 / a;
  const double floor = __builtin_floor(a);
  if (a < -185.0 && floor != a) return __builtin_floor(floor * 0.5) * 2.0 == floor ? 0.0 : -0.0;
  return kansoku_clc_tgamma(a);
}
KANSOKU_DEVICE float __nv_tgammaf(float a) {
  return static_cast<float>(__nv_tgamma(a));
}
// erfc(-a sqrt(1/2)) / 2; what the argument loses when it is rounded counts by the derivative.
KANSOKU_DEVICE double __nv_normcdf(double a) {
  constexpr double kHigh = -0.70710678118654757, kLow = 4.8336466567264567e-17;
  const double argument = a * kHigh;
  if (!(__builtin_fabs(argument) < 30.0)) return 0.5 * kansoku_clc_erfc(argument);
  const double rest = __builtin_fma(a, kHigh, -argument) + a * kLow;
  const double slope = 1.1283791670955126 * __nv_exp(-argument * argument);
  return 0.5 * (kansoku_clc_erfc(argument) - slope * rest);
}
KANSOKU_DEVICE float __nv_normcdff(float a) {
  return static_cast<float>(0.5 * kansoku_clc_erfc(a * -0.70710678118654752));
}

// A function of clang's or of PTX under another name.
#define KANSOKU_SAME(type, name, parameters, expression) \
  KANSOKU_DEVICE type __nv_##name parameters {           \
    return expression;                                   \
  }

KANSOKU_SAME(double, ceil, (double a), __builtin_ceil(a))
KANSOKU_SAME(float, ceilf, (float a), __builtin_ceilf(a))
KANSOKU_SAME(double, floor, (double a), __builtin_floor(a))
KANSOKU_SAME(float, floorf, (float a), __builtin_floorf(a))
KANSOKU_SAME(double, trunc, (double a), __builtin_trunc(a))
KANSOKU_SAME(float, truncf, (float a), __builtin_truncf(a))
KANSOKU_SAME(double, rint, (double a), __builtin_rint(a))
KANSOKU_SAME(float, rintf, (float a), __builtin_rintf(a))
KANSOKU_SAME(double, nearbyint, (double a), __builtin_rint(a))
KANSOKU_SAME(float, nearbyintf, (float a), __builtin_rintf(a))
KANSOKU_SAME(double, fabs, (double a), __builtin_fabs(a))
KANSOKU_SAME(float, fabsf, (float a), __builtin_fabsf(a))
KANSOKU_SAME(double, copysign, (double a, double b), __builtin_copysign(a, b))
KANSOKU_SAME(float, copysignf, (float a, float b), __builtin_copysignf(a, b))
KANSOKU_SAME(double, fmax, (double a, double b), __nvvm_fmax_d(a, b))
KANSOKU_SAME(float, fmaxf, (float a, float b), __nvvm_fmax_f(a, b))
KANSOKU_SAME(double, fmin, (double a, double b), __nvvm_fmin_d(a, b))
KANSOKU_SAME(float, fminf, (float a, float b), __nvvm_fmin_f(a, b))
KANSOKU_SAME(double, fma, (double a, double b, double c), __builtin_fma(a, b, c))
KANSOKU_SAME(float, fmaf, (float a, float b, float c), __builtin_fmaf(a, b, c))
KANSOKU_SAME(double, sqrt, (double a), __nvvm_sqrt_rn_d(a))
KANSOKU_SAME(float, sqrtf, (float a), __nvvm_sqrt_rn_f(a))
KANSOKU_SAME(float, rsqrtf, (float a), __nvvm_rsqrt_approx_f(a))
KANSOKU_SAME(float, frsqrt_rn, (float a), static_cast<float>(1.0 / __nvvm_sqrt_rn_d(a)))
KANSOKU_SAME(double, rcbrt, (double a), 1.0 / __nv_cbrt(a))
KANSOKU_SAME(float, rcbrtf, (float a), static_cast<float>(1.0 / __nv_cbrt(a)))
KANSOKU_SAME(double, rhypot, (double a, double b), 1.0 / __nv_hypot(a, b))
KANSOKU_SAME(float, rhypotf, (float a, float b), 1.0F / __nv_hypotf(a, b))
KANSOKU_SAME(double, norm3d, (double a, double b, double c), __nv_hypot(__nv_hypot(a, b), c))
KANSOKU_SAME(float, norm3df, (float a, float b, float c), __nv_hypotf(__nv_hypotf(a, b), c))
KANSOKU_SAME(double, scalbn, (double a, int b), __nv_ldexp(a, b))
KANSOKU_SAME(float, scalbnf, (float a, int b), __nv_ldexpf(a, b))
KANSOKU_SAME(float, saturatef, (float a), __nvvm_saturate_f(a))
// One step of Newton's from the quotient of two roundings; the root of the step's error is exact.
KANSOKU_DEVICE double __nv_rsqrt(double a) {
  const double root = __nvvm_sqrt_rn_d(a), first = 1.0 / root;
  if (!(root < __builtin_inf()) || a == 0.0) return first;
  // 1 / sqrt(a) = first + first * (1 - first * sqrt(a)), where sqrt(a) = root + (a - root^2) / 2
  // root
  const double rest = __builtin_fma(-root, root, a) * first * 0.5;
  const double error = __builtin_fma(-first, root, 1.0) - first * rest;
  return __builtin_fma(first, error, first);
}
// Halfway cases go away from zero; truncation is exact, so this is.
KANSOKU_DEVICE double __nv_round(double a) {
  const double whole = __builtin_trunc(a);
  return __builtin_fabs(a - whole) >= 0.5 ? whole + __builtin_copysign(1.0, a) : whole;
}
KANSOKU_DEVICE float __nv_roundf(float a) {
  const float whole = __builtin_truncf(a);
  return __builtin_fabsf(a - whole) >= 0.5F ? whole + __builtin_copysignf(1.0F, a) : whole;
}
KANSOKU_SAME(long long, llrint, (double a), __nvvm_d2ll_rn(a))
KANSOKU_SAME(long long, llrintf, (float a), __nvvm_f2ll_rn(a))
KANSOKU_SAME(long long, llround, (double a), __nvvm_d2ll_rz(__nv_round(a)))
KANSOKU_SAME(long long, llroundf, (float a), __nvvm_f2ll_rz(__nv_roundf(a)))

// Bits of floating-point numbers.
template <class To, class From>
__attribute__((device)) inline To kansoku_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "the same bits");
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
KANSOKU_SAME(int, float_as_int, (float a), kansoku_bits<int>(a))
KANSOKU_SAME(unsigned, float_as_uint, (float a), kansoku_bits<unsigned>(a))
KANSOKU_SAME(float, int_as_float, (int a), kansoku_bits<float>(a))
KANSOKU_SAME(float, uint_as_float, (unsigned a), kansoku_bits<float>(a))
KANSOKU_SAME(unsigned long long, double_as_longlong, (double a),
             kansoku_bits<unsigned long long>(a))
KANSOKU_SAME(double, longlong_as_double, (long long a), kansoku_bits<double>(a))
KANSOKU_SAME(int, double2hiint, (double a), static_cast<int>(kansoku_bits<long long>(a) >> 32))
KANSOKU_SAME(int, double2loint, (double a), static_cast<int>(kansoku_bits<long long>(a)))
KANSOKU_SAME(double, hiloint2double, (int high, int low),
             kansoku_bits<double>(static_cast<long long>(
                 static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                 static_cast<unsigned>(low))))
KANSOKU_SAME(int, isinff, (float a), __builtin_fabsf(a) == __builtin_inff())
KANSOKU_SAME(int, isinfd, (double a), __builtin_fabs(a) == __builtin_inf())
KANSOKU_SAME(int, isnanf, (float a), a != a)
KANSOKU_SAME(int, isnand, (double a), a != a)
KANSOKU_SAME(int, finitef, (float a), __builtin_fabsf(a) < __builtin_inff())
KANSOKU_SAME(int, isfinited, (double a), __builtin_fabs(a) < __builtin_inf())
KANSOKU_SAME(int, signbitf, (float a), kansoku_bits<int>(a) < 0)
KANSOKU_SAME(int, signbitd, (double a), kansoku_bits<long long>(a) < 0)
KANSOKU_SAME(double, nan, (const signed char*), __builtin_nan(""))
KANSOKU_SAME(float, nanf, (const signed char*), __builtin_nanf(""))
KANSOKU_DEVICE float __nv_modff(float a, float* whole) {
  *whole = __builtin_truncf(a);
  return __builtin_copysignf(__nv_isinff(a) ? 0.0F : a - *whole, a);
}
KANSOKU_DEVICE double __nv_modf(double a, double* whole) {
  *whole = __builtin_trunc(a);
  return __builtin_copysign(__nv_isinfd(a) ? 0.0 : a - *whole, a);
}
KANSOKU_DEVICE double __nv_frexp(double a, int* exponent) {
  *exponent = 0;
  if (a == 0.0 || !__nv_isfinited(a)) return a;
  *exponent = __nv_ilogb(a) + 1;
  return __nv_ldexp(a, -*exponent);
}
KANSOKU_DEVICE float __nv_frexpf(float a, int* exponent) {
  return static_cast<float>(__nv_frexp(a, exponent));  // exact: a power of two away
}

// The quotient's low bits and sign; exact, as the remainder is.
KANSOKU_DEVICE double __nv_remquo(double a, double b, int* quotient) {
  const double rest = __nv_remainder(a, b);
  const double whole = __builtin_rint((a - rest) / b);
  const int low = static_cast<int>(__nvvm_d2ll_rz(__nv_fmod(__builtin_fabs(whole), 8.0)));
  *quotient = whole < 0.0 ? -low : low;
  return rest;
}
KANSOKU_DEVICE float __nv_remquof(float a, float b, int* quotient) {
  return static_cast<float>(__nv_remquo(a, b, quotient));
}

// Integers.
KANSOKU_SAME(int, abs, (int a), a < 0 ? -a : a)
KANSOKU_SAME(long long, llabs, (long long a), a < 0 ? -a : a)
KANSOKU_SAME(int, min, (int a, int b), a < b ? a : b)
KANSOKU_SAME(int, max, (int a, int b), a > b ? a : b)
KANSOKU_SAME(unsigned, umin, (unsigned a, unsigned b), a < b ? a : b)
KANSOKU_SAME(unsigned, umax, (unsigned a, unsigned b), a > b ? a : b)
KANSOKU_SAME(long long, llmin, (long long a, long long b), a < b ? a : b)
KANSOKU_SAME(long long, llmax, (long long a, long long b), a > b ? a : b)
KANSOKU_SAME(int, popc, (unsigned a), __builtin_popcount(a))
KANSOKU_SAME(int, popcll, (unsigned long long a), __builtin_popcountll(a))
KANSOKU_SAME(int, clz, (int a), a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)))
KANSOKU_SAME(int, clzll, (long long a),
             a == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(a)))
KANSOKU_SAME(int, ffs, (int a), __builtin_ffs(a))
KANSOKU_SAME(int, ffsll, (long long a), __builtin_ffsll(a))
KANSOKU_SAME(int, brev, (int a), static_cast<int>(__builtin_bitreverse32(static_cast<unsigned>(a))))
KANSOKU_SAME(long long, brevll, (long long a),
             static_cast<long long>(__builtin_bitreverse64(static_cast<unsigned long long>(a))))
// Three bits of each selector count; the instruction takes the fourth for a copy of the sign.
KANSOKU_SAME(int, byte_perm, (int a, int b, int selector),
             static_cast<int>(__nvvm_prmt(static_cast<unsigned>(a), static_cast<unsigned>(b),
                                          static_cast<unsigned>(selector) & 0x7777U)))
KANSOKU_SAME(int, mulhi, (int a, int b),
             static_cast<int>(static_cast<long long>(a) * static_cast<long long>(b) >> 32))
KANSOKU_SAME(unsigned, umulhi, (unsigned a, unsigned b),
             static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32))
KANSOKU_SAME(long long, mul64hi, (long long a, long long b), __nvvm_mulhi_ll(a, b))
KANSOKU_SAME(unsigned long long, umul64hi, (unsigned long long a, unsigned long long b),
             __nvvm_mulhi_ull(a, b))
KANSOKU_SAME(int, mul24, (int a, int b), __nvvm_mul24_i(a, b))
KANSOKU_SAME(unsigned, umul24, (unsigned a, unsigned b), __nvvm_mul24_ui(a, b))
KANSOKU_SAME(int, sad, (int a, int b, int sum), __nvvm_sad_i(a, b, sum))
KANSOKU_SAME(unsigned, usad, (unsigned a, unsigned b, unsigned sum), __nvvm_sad_ui(a, b, sum))
// Means without overflow, rounded down or up.
KANSOKU_SAME(int, hadd, (int a, int b), static_cast<int>((static_cast<long long>(a) + b) >> 1))
KANSOKU_SAME(int, rhadd, (int a, int b), static_cast<int>((static_cast<long long>(a) + b + 1) >> 1))
KANSOKU_SAME(unsigned, uhadd, (unsigned a, unsigned b),
             static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1))
KANSOKU_SAME(unsigned, urhadd, (unsigned a, unsigned b),
             static_cast<unsigned>((static_cast<unsigned long long>(a) + b + 1) >> 1))

// Arithmetic and conversions with a rounding mode: CUDA's name of it, PTX's name of it.
#define KANSOKU_ROUNDED(mode, ptx)                                                                \
  KANSOKU_SAME(float, fadd_##mode, (float a, float b), __nvvm_add_##ptx##_f(a, b))                \
  KANSOKU_SAME(float, fsub_##mode, (float a, float b), __nvvm_add_##ptx##_f(a, -b))               \
  KANSOKU_SAME(float, fmul_##mode, (float a, float b), __nvvm_mul_##ptx##_f(a, b))                \
  KANSOKU_SAME(float, fdiv_##mode, (float a, float b), __nvvm_div_##ptx##_f(a, b))                \
  KANSOKU_SAME(float, frcp_##mode, (float a), __nvvm_rcp_##ptx##_f(a))                            \
  KANSOKU_SAME(float, fsqrt_##mode, (float a), __nvvm_sqrt_##ptx##_f(a))                          \
  KANSOKU_SAME(float, fmaf_##mode, (float a, float b, float c), __nvvm_fma_##ptx##_f(a, b, c))    \
  KANSOKU_SAME(float, fmaf_ieee_##mode, (float a, float b, float c),                              \
               __nvvm_fma_##ptx##_f(a, b, c))                                                     \
  KANSOKU_SAME(double, dadd_##mode, (double a, double b), __nvvm_add_##ptx##_d(a, b))             \
  KANSOKU_SAME(double, dsub_##mode, (double a, double b), __nvvm_add_##ptx##_d(a, -b))            \
  KANSOKU_SAME(double, dmul_##mode, (double a, double b), __nvvm_mul_##ptx##_d(a, b))             \
  KANSOKU_SAME(double, ddiv_##mode, (double a, double b), __nvvm_div_##ptx##_d(a, b))             \
  KANSOKU_SAME(double, drcp_##mode, (double a), __nvvm_rcp_##ptx##_d(a))                          \
  KANSOKU_SAME(double, dsqrt_##mode, (double a), __nvvm_sqrt_##ptx##_d(a))                        \
  KANSOKU_SAME(double, fma_##mode, (double a, double b, double c), __nvvm_fma_##ptx##_d(a, b, c)) \
  KANSOKU_SAME(float, double2float_##mode, (double a), __nvvm_d2f_##ptx(a))                       \
  KANSOKU_SAME(int, double2int_##mode, (double a), __nvvm_d2i_##ptx(a))                           \
  KANSOKU_SAME(unsigned, double2uint_##mode, (double a), __nvvm_d2ui_##ptx(a))                    \
  KANSOKU_SAME(long long, double2ll_##mode, (double a), __nvvm_d2ll_##ptx(a))                     \
  KANSOKU_SAME(unsigned long long, double2ull_##mode, (double a), __nvvm_d2ull_##ptx(a))          \
  KANSOKU_SAME(int, float2int_##mode, (float a), __nvvm_f2i_##ptx(a))                             \
  KANSOKU_SAME(unsigned, float2uint_##mode, (float a), __nvvm_f2ui_##ptx(a))                      \
  KANSOKU_SAME(long long, float2ll_##mode, (float a), __nvvm_f2ll_##ptx(a))                       \
  KANSOKU_SAME(unsigned long long, float2ull_##mode, (float a), __nvvm_f2ull_##ptx(a))            \
  KANSOKU_SAME(float, int2float_##mode, (int a), __nvvm_i2f_##ptx(a))                             \
  KANSOKU_SAME(float, uint2float_##mode, (unsigned a), __nvvm_ui2f_##ptx(a))                      \
  KANSOKU_SAME(float, ll2float_##mode, (long long a), __nvvm_ll2f_##ptx(a))                       \
  KANSOKU_SAME(float, ull2float_##mode, (unsigned long long a), __nvvm_ull2f_##ptx(a))            \
  KANSOKU_SAME(double, ll2double_##mode, (long long a), __nvvm_ll2d_##ptx(a))                     \
  KANSOKU_SAME(double, ull2double_##mode, (unsigned long long a), __nvvm_ull2d_##ptx(a))
KANSOKU_ROUNDED(rn, rn)
KANSOKU_ROUNDED(rz, rz)
KANSOKU_ROUNDED(rd, rm)
KANSOKU_ROUNDED(ru, rp)
KANSOKU_SAME(double, int2double_rn, (int a), a)
KANSOKU_SAME(double, uint2double_rn, (unsigned a), a)
KANSOKU_SAME(float, half2float, (unsigned short a), static_cast<float>(kansoku_bits<_Float16>(a)))
KANSOKU_SAME(unsigned short, float2half_rn, (float a),
             kansoku_bits<unsigned short>(static_cast<_Float16>(a)))

// Fast and inexact: PTX's own approximations.
KANSOKU_SAME(float, fast_sinf, (float a), __nvvm_sin_approx_f(a))
KANSOKU_SAME(float, fast_cosf, (float a), __nvvm_cos_approx_f(a))
KANSOKU_SAME(float, fast_tanf, (float a),
             __nvvm_div_approx_f(__nvvm_sin_approx_f(a), __nvvm_cos_approx_f(a)))
KANSOKU_SAME(float, fast_expf, (float a), __nvvm_ex2_approx_f(a * 1.442695041F))
KANSOKU_SAME(float, fast_exp10f, (float a), __nvvm_ex2_approx_f(a * 3.321928095F))
KANSOKU_SAME(float, fast_log2f, (float a), __nvvm_lg2_approx_f(a))
KANSOKU_SAME(float, fast_logf, (float a), __nvvm_lg2_approx_f(a) * 0.693147181F)
KANSOKU_SAME(float, fast_log10f, (float a), __nvvm_lg2_approx_f(a) * 0.301029996F)
KANSOKU_SAME(float, fast_powf, (float a, float b), __nvvm_ex2_approx_f(b* __nvvm_lg2_approx_f(a)))
KANSOKU_SAME(float, fast_fdividef, (float a, float b), __nvvm_div_approx_f(a, b))
KANSOKU_DEVICE void __nv_fast_sincosf(float a, float* sine, float* cosine) {
  *sine = __nvvm_sin_approx_f(a);
  *cosine = __nvvm_cos_approx_f(a);
}

// e^a = 2^n 2^r: the product a log2(e) in two parts, so that r is exact to its last bit, and PTX's
// approximation of 2^r for |r| <= 1/2. n in two steps, for results that are denormal.
KANSOKU_DEVICE float __nv_expf(float a) {
  constexpr float kHigh = 1.442695041F, kLow = 1.925963033e-8F;  // log2(e)
  const float bounded = __nvvm_fmax_f(__nvvm_fmin_f(a, 128.0F), -128.0F);
  const float n = __builtin_rintf(bounded * kHigh);
  const float r = __builtin_fmaf(bounded, kLow, __builtin_fmaf(bounded, kHigh, -n));
  const int whole = static_cast<int>(n), half = whole / 2;
  const float first = kansoku_bits<float>((half + 127) << 23);
  const float second = kansoku_bits<float>((whole - half + 127) << 23);
  const float result = __nvvm_ex2_approx_f(r) * first * second;
  return a != a ? a : result;
}

// Sine and cosine: a = n pi/2 + r with pi/2 in three parts, then polynomials on |r| <= pi/4 (least
// squares on Chebyshev points, error below 2^-27). The first two parts have 11 bits, so their
// products with n are exact up to 1e4; beyond, libclc's reduction serves.
namespace {
constexpr float kSineReach = 1.0e4F;
__attribute__((device)) inline float kansoku_quarter(float a, int& quadrant) {
  const float n = __builtin_rintf(a * 0.636619772F);
  quadrant = static_cast<int>(n);
  float r = __builtin_fmaf(n, -1.5703125F, a);
  r = __builtin_fmaf(n, -4.837512970e-4F, r);
  return __builtin_fmaf(n, -7.549790126e-8F, r);
}
__attribute__((device)) inline float kansoku_sine(float r, int quadrant) {
  const float square = r * r;
  const float sine =
      r + r * square * (-0.1666665468F + square * (8.332165758e-3F + square * -1.951595280e-4F));
  const float cosine =
      1.0F + square * (-0.5F + square * (4.166664624e-2F +
                                         square * (-1.388734149e-3F + square * 2.443585170e-5F)));
  const float chosen = (quadrant & 1) != 0 ? cosine : sine;
  return (quadrant & 2) != 0 ? -chosen : chosen;
}
}  // namespace
KANSOKU_DEVICE float __nv_sinf(float a) {
  if (!(__builtin_fabsf(a) <= kSineReach)) return kansoku_clc_sinf(a);
  if (a == 0.0F) return a;  // with its sign
  int quadrant = 0;
  const float r = kansoku_quarter(a, quadrant);
  return kansoku_sine(r, quadrant);
}
KANSOKU_DEVICE float __nv_cosf(float a) {
  if (!(__builtin_fabsf(a) <= kSineReach)) return kansoku_clc_cosf(a);
  int quadrant = 0;
  const float r = kansoku_quarter(a, quadrant);
  return kansoku_sine(r, quadrant + 1);
}
KANSOKU_DEVICE float __nv_exp2f(float a) {
  return __nvvm_ex2_approx_f(a);  // also of results that are denormal, which libclc's makes 0
}
KANSOKU_DEVICE void __nv_sincosf(float a, float* sine, float* cosine) {
  *sine = __nv_sinf(a);
  *cosine = __nv_cosf(a);
}
KANSOKU_DEVICE void __nv_sincos(double a, double* sine, double* cosine) {
  *sine = __nv_sin(a);
  *cosine = __nv_cos(a);
}
KANSOKU_DEVICE void __nv_sincospif(float a, float* sine, float* cosine) {
  *sine = __nv_sinpif(a);
  *cosine = __nv_cospif(a);
}
KANSOKU_DEVICE void __nv_sincospi(double a, double* sine, double* cosine) {
  *sine = __nv_sinpi(a);
  *cosine = __nv_cospi(a);
}
