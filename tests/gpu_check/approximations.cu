// SPDX-License-Identifier: Apache-2.0
// Functions whose results are not the nearest number: greatest errors against those documented, by
// the PTX ISA for .approx forms and by the CUDA programming guide for intrinsics and functions.
#include <algorithm>

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

#define APPROXIMATION(id, ptx)                                \
  __global__ void id(int n, float* out, const float* a) {     \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x); \
    if (i >= n) return;                                       \
    float d;                                                  \
    asm volatile(ptx " %0, %1;" : "=f"(d) : "f"(a[i]));       \
    out[i] = d;                                               \
  }
APPROXIMATION(rcp_approx, "rcp.approx.ftz.f32")
APPROXIMATION(sqrt_approx, "sqrt.approx.f32")
APPROXIMATION(rsqrt_approx, "rsqrt.approx.f32")
APPROXIMATION(ex2_approx, "ex2.approx.f32")
APPROXIMATION(lg2_approx, "lg2.approx.f32")
APPROXIMATION(sin_approx, "sin.approx.f32")
APPROXIMATION(cos_approx, "cos.approx.f32")
APPROXIMATION(tanh_approx, "tanh.approx.f32")
#define FUNCTION(id, T, call)                                 \
  __global__ void id(int n, T* out, const T* a) {             \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x); \
    if (i < n) out[i] = call(a[i]);                           \
  }
FUNCTION(fast_sin, float, __sinf)
FUNCTION(fast_cos, float, __cosf)
FUNCTION(fast_exp, float, __expf)
FUNCTION(fast_log2, float, __log2f)
FUNCTION(fast_log10, float, __log10f)
__global__ void div_full(int n, float* out, const float* a, const float* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) asm volatile("div.full.f32 %0, %1, %2;" : "=f"(out[i]) : "f"(a[i]), "f"(b[i]));
}
__global__ void div_approx(int n, float* out, const float* a, const float* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) asm volatile("div.approx.f32 %0, %1, %2;" : "=f"(out[i]) : "f"(a[i]), "f"(b[i]));
}
__global__ void half_approximations(int n, u16* out, const u16* a) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  asm volatile("ex2.approx.f16 %0, %1;" : "=h"(out[i]) : "h"(a[i]));
  asm volatile("tanh.approx.f16 %0, %1;" : "=h"(out[n + i]) : "h"(a[i]));
}

FUNCTION(f_exp, float, expf)
FUNCTION(f_exp2, float, exp2f)
FUNCTION(f_exp10, float, exp10f)
FUNCTION(f_expm1, float, expm1f)
FUNCTION(f_log2, float, log2f)
FUNCTION(f_log10, float, log10f)
FUNCTION(f_log1p, float, log1pf)
FUNCTION(f_sin, float, sinf)
FUNCTION(f_cos, float, cosf)
FUNCTION(f_tan, float, tanf)
FUNCTION(f_atan, float, atanf)
FUNCTION(f_tanh, float, tanhf)
FUNCTION(f_erf, float, erff)
FUNCTION(f_cbrt, float, cbrtf)
FUNCTION(f_rsqrt, float, rsqrtf)
FUNCTION(d_exp, double, exp)
FUNCTION(d_exp2, double, exp2)
FUNCTION(d_expm1, double, expm1)
FUNCTION(d_log2, double, log2)
FUNCTION(d_log10, double, log10)
FUNCTION(d_log1p, double, log1p)
FUNCTION(d_sin, double, sin)
FUNCTION(d_cos, double, cos)
FUNCTION(d_tan, double, tan)
FUNCTION(d_asin, double, asin)
FUNCTION(d_acos, double, acos)
FUNCTION(d_atan, double, atan)
FUNCTION(d_sinh, double, sinh)
FUNCTION(d_tanh, double, tanh)
FUNCTION(d_asinh, double, asinh)
FUNCTION(d_atanh, double, atanh)
FUNCTION(d_erf, double, erf)
FUNCTION(d_cbrt, double, cbrt)
FUNCTION(d_rsqrt, double, rsqrt)
__global__ void d_pow(int n, double* out, const double* a, const double* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = pow(a[i], b[i]);
}
__global__ void f_pow(int n, float* out, const float* a, const float* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = powf(a[i], b[i]);
}

template <class T>
std::vector<T> between(double low, double high, std::size_t count = 3000) {
  Random random(23);
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(T(random.between(low, high)));
  return values;
}
// As many in each power of two.
template <class T>
std::vector<T> spread(int least, int most, bool has_both_signs = false) {
  Random random(29);
  std::vector<T> values;
  for (int i = 0; i < 3000; ++i) {
    const double value = std::exp2(random.between(least, most));
    values.push_back(T(has_both_signs && i % 2 == 1 ? -value : value));
  }
  return values;
}

enum class Measure { kUlps, kRelative, kAbsolute };
template <class T>
void bound(Check& c, const char* name, void (*kernel)(int, T*, const T*), Function which,
           const std::vector<T>& in, Measure measure, double limit) {
  const std::vector<T> got = map(c, kernel, in);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double x = double(in[i]), want = exact(which, x);
    double error = 0;
    if (measure == Measure::kUlps)
      error = error_in_ulps(which, x, double(got[i]), sizeof(T) == 4);
    else
      error = std::fabs(double(got[i]) - want) /
              (measure == Measure::kRelative ? std::fabs(want) : 1.0);
    worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
  }
  c.at_most(name, worst, limit);
}
#define BOUND(id, which, in, measure, limit) \
  bound(c, #id, id, Function::which, in, Measure::measure, limit)

}  // namespace

GPU_CHECK_BODY(approximations, reciprocals_and_roots) {
  BOUND(rcp_approx, kReciprocal, spread<float>(-120, 120), kUlps, 1);
  BOUND(sqrt_approx, kSqrt, spread<float>(-120, 120), kRelative, 0x1p-23 * 1.001);
  BOUND(rsqrt_approx, kRsqrt, spread<float>(-120, 120), kRelative, std::exp2(-22.4));
}

GPU_CHECK_BODY(approximations, powers_and_logarithms) {
  BOUND(ex2_approx, kExp2, between<float>(-120, 120), kRelative, 0x1p-22);
  BOUND(lg2_approx, kLog2, between<float>(0.5, 2), kAbsolute, 0x1p-22);
  BOUND(lg2_approx, kLog2, spread<float>(2, 120), kRelative, 0x1p-22);
}

GPU_CHECK_BODY(approximations, sine_and_cosine) {
  BOUND(sin_approx, kSin, between<float>(-3.14159, 3.14159), kAbsolute, std::exp2(-20.5));
  BOUND(cos_approx, kCos, between<float>(-3.14159, 3.14159), kAbsolute, std::exp2(-20.5));
  BOUND(fast_sin, kSin, between<float>(-3.14159, 3.14159), kAbsolute, std::exp2(-20.5));
  BOUND(fast_cos, kCos, between<float>(-3.14159, 3.14159), kAbsolute, std::exp2(-20.5));
}

GPU_CHECK_BODY(approximations, hyperbolic_tangent) {
  BOUND(tanh_approx, kTanh, spread<float>(-20, 5, true), kRelative, 0x1p-11);
}

GPU_CHECK_BODY(approximations, halves) {
  std::vector<u16> in;
  for (int bits = 0; bits < 0x4700; bits += 7)  // 0 to 7
    for (const int sign : {0, 0x8000})
      in.push_back(u16(bits | sign));
  Array<u16> device_in(c, in), out(c, 2 * in.size());
  const int count = int(in.size());
  half_approximations<<<(count + 127) / 128, 128>>>(count, out, device_in);
  const std::vector<u16> got = out.host();
  double worst_ex2 = 0, worst_tanh = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double x = widen(in[i], kHalf), power = std::exp2(x);
    worst_ex2 = std::fmax(worst_ex2, std::fabs(widen(got[i], kHalf) - power) / power);
    worst_tanh = std::fmax(worst_tanh, std::fabs(widen(got[in.size() + i], kHalf) - std::tanh(x)));
  }
  c.at_most("relative error of ex2.approx.f16", worst_ex2, std::exp2(-9.9));
  c.at_most("error of tanh.approx.f16", worst_tanh, std::exp2(-10.987));
}

GPU_CHECK_BODY(approximations, quotients) {
  const std::vector<float> a = spread<float>(-40, 40, true), b = spread<float>(-60, 60);
  std::vector<float> divisors(b.rbegin(), b.rend());
  for (const bool is_full : {true, false}) {
    const std::vector<float> got = map(c, is_full ? div_full : div_approx, a, divisors);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double want = double(a[i]) / double(divisors[i]);
      const float unit = std::fabs(std::nextafter(float(want), INFINITY) - float(want));
      worst = std::fmax(worst, std::fabs(double(got[i]) - want) / double(unit));
    }
    c.at_most(is_full ? "ulps of div.full" : "ulps of div.approx", worst, 2);
  }
}

GPU_CHECK_BODY(approximations, fast_intrinsics) {
  const std::vector<float> in = between<float>(-80, 80);
  const std::vector<float> got = map(c, fast_exp, in);
  double worst = 0;  // of what is allowed: 2 + |1.173 x| ulps, whole
  for (std::size_t i = 0; i < in.size(); ++i)
    worst = std::fmax(worst, error_in_ulps(Function::kExp, double(in[i]), double(got[i]), true) /
                                 (2 + std::floor(std::fabs(1.173 * double(in[i])))));
  c.at_most("__expf, part of its bound", worst, 1);
  BOUND(fast_log2, kLog2, between<float>(0.5, 2), kAbsolute, 0x1p-22);
  BOUND(fast_log2, kLog2, spread<float>(2, 120), kUlps, 2);
  BOUND(fast_log10, kLog10, between<float>(0.5, 2), kAbsolute, 0x1p-22);
  BOUND(fast_log10, kLog10, spread<float>(2, 120), kUlps, 3);
}

GPU_CHECK_BODY(mathematics, single_exponentials) {
  BOUND(f_exp, kExp, between<float>(-85, 88), kUlps, 2);
  BOUND(f_exp2, kExp2, between<float>(-125, 127), kUlps, 2);
  BOUND(f_exp10, kExp10, between<float>(-37, 38), kUlps, 2);
  BOUND(f_expm1, kExpm1, between<float>(-10, 80), kUlps, 1);
  BOUND(f_log2, kLog2, spread<float>(-120, 120), kUlps, 1);
  BOUND(f_log10, kLog10, spread<float>(-120, 120), kUlps, 2);
  BOUND(f_log1p, kLog1p, spread<float>(-60, 100), kUlps, 1);
}

GPU_CHECK_BODY(mathematics, single_trigonometry) {
  BOUND(f_sin, kSin, spread<float>(-20, 60, true), kUlps, 2);
  BOUND(f_cos, kCos, spread<float>(-20, 60, true), kUlps, 2);
  BOUND(f_tan, kTan, spread<float>(-20, 60, true), kUlps, 4);
  BOUND(f_atan, kAtan, spread<float>(-20, 60, true), kUlps, 2);
}

GPU_CHECK_BODY(mathematics, single_others) {
  BOUND(f_tanh, kTanh, spread<float>(-20, 5, true), kUlps, 2);
  BOUND(f_erf, kErf, spread<float>(-20, 3, true), kUlps, 2);
  BOUND(f_cbrt, kCbrt, spread<float>(-120, 120, true), kUlps, 1);
  BOUND(f_rsqrt, kRsqrt, spread<float>(-120, 120), kUlps, 2);
  const std::vector<float> x = spread<float>(-20, 20), y = between<float>(-5, 5);
  const std::vector<float> got = map(c, f_pow, x, y);
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst =
        std::fmax(worst, error_in_ulps_of_pow(double(x[i]), double(y[i]), double(got[i]), true));
  c.at_most("f_pow", worst, 8);
}

GPU_CHECK_BODY(mathematics, double_exponentials) {
  BOUND(d_exp, kExp, between<double>(-700, 700), kUlps, 1);
  BOUND(d_exp2, kExp2, between<double>(-1000, 1000), kUlps, 1);
  BOUND(d_expm1, kExpm1, between<double>(-30, 600), kUlps, 1);
  BOUND(d_log2, kLog2, spread<double>(-1000, 1000), kUlps, 1);
  BOUND(d_log10, kLog10, spread<double>(-1000, 1000), kUlps, 1);
  BOUND(d_log1p, kLog1p, spread<double>(-100, 900), kUlps, 1);
  const std::vector<double> x = spread<double>(-100, 100), y = between<double>(-9, 9);
  const std::vector<double> got = map(c, d_pow, x, y);
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::fmax(worst, error_in_ulps_of_pow(x[i], y[i], got[i], false));
  c.at_most("d_pow", worst, 2);
}

GPU_CHECK_BODY(mathematics, double_trigonometry) {
  BOUND(d_sin, kSin, spread<double>(-30, 60, true), kUlps, 2);
  BOUND(d_cos, kCos, spread<double>(-30, 60, true), kUlps, 2);
  BOUND(d_tan, kTan, spread<double>(-30, 60, true), kUlps, 2);
  BOUND(d_asin, kAsin, between<double>(-1, 1), kUlps, 2);
  BOUND(d_acos, kAcos, between<double>(-1, 1), kUlps, 2);
  BOUND(d_atan, kAtan, spread<double>(-30, 60, true), kUlps, 2);
}

GPU_CHECK_BODY(mathematics, double_others) {
  BOUND(d_sinh, kSinh, between<double>(-20, 20), kUlps, 2);
  BOUND(d_tanh, kTanh, spread<double>(-20, 5, true), kUlps, 2);
  BOUND(d_asinh, kAsinh, spread<double>(-20, 200, true), kUlps, 3);
  BOUND(d_atanh, kAtanh, between<double>(-1, 1), kUlps, 2);
  BOUND(d_erf, kErf, spread<double>(-20, 3, true), kUlps, 2);
  BOUND(d_cbrt, kCbrt, spread<double>(-900, 900, true), kUlps, 1);
  BOUND(d_rsqrt, kRsqrt, spread<double>(-900, 900), kUlps, 1);
}

}  // namespace gpu_check
