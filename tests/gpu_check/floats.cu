// SPDX-License-Identifier: Apache-2.0
// PTX instructions on single and double precision: four roundings, subnormal numbers with and
// without ftz, saturation, NaNs, comparisons, conversions.
#include <algorithm>
#include <limits>

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

constexpr Round N = Round::kNearest, Z = Round::kZero, M = Round::kDown, P = Round::kUp;

float draw_float(Random& random) {
  // Half of them near one, so that sums do not simply give the greater one.
  const u32 bits = u32(random.bits());
  return random.bits() % 2 == 0 ? float_of(bits) : float_of((bits & 0x83ffffff) | 0x3c000000);
}
double draw_double(Random& random) {
  const u64 bits = random.bits();
  return random.bits() % 2 == 0 ? double_of(bits)
                                : double_of((bits & 0x803fffffffffffff) | 0x3fc0000000000000);
}

#define FLOAT_1(id, ptx, ...) PTX_FORM_1(id, float, "f", float, "f", ptx, __VA_ARGS__)
#define FLOAT_2(id, ptx, ...) PTX_FORM_2(id, float, "f", float, "f", ptx, __VA_ARGS__)
#define FLOAT_3(id, ptx, ...) PTX_FORM_3(id, float, "f", float, "f", ptx, __VA_ARGS__)
#define DOUBLE_1(id, ptx, ...) PTX_FORM_1(id, double, "d", double, "d", ptx, __VA_ARGS__)
#define DOUBLE_2(id, ptx, ...) PTX_FORM_2(id, double, "d", double, "d", ptx, __VA_ARGS__)
#define DOUBLE_3(id, ptx, ...) PTX_FORM_3(id, double, "d", double, "d", ptx, __VA_ARGS__)

// One form for each rounding, of single and double precision.
#define ROUNDED_2(id, op, function)                                  \
  FLOAT_2(id##_rn, op ".rn.f32 %0, %1, %2;", function(a, b, N))      \
  FLOAT_2(id##_rz, op ".rz.f32 %0, %1, %2;", function(a, b, Z))      \
  FLOAT_2(id##_rm, op ".rm.f32 %0, %1, %2;", function(a, b, M))      \
  FLOAT_2(id##_rp, op ".rp.f32 %0, %1, %2;", function(a, b, P))      \
  DOUBLE_2(id##_rn_f64, op ".rn.f64 %0, %1, %2;", function(a, b, N)) \
  DOUBLE_2(id##_rz_f64, op ".rz.f64 %0, %1, %2;", function(a, b, Z)) \
  DOUBLE_2(id##_rm_f64, op ".rm.f64 %0, %1, %2;", function(a, b, M)) \
  DOUBLE_2(id##_rp_f64, op ".rp.f64 %0, %1, %2;", function(a, b, P))
ROUNDED_2(add, "add", gpu_check::add)
ROUNDED_2(mul, "mul", gpu_check::multiply)
ROUNDED_2(div, "div", gpu_check::divide)
FLOAT_2(sub_rn, "sub.rn.f32 %0, %1, %2;", gpu_check::add(a, -b, N))
FLOAT_1(sqrt_rn, "sqrt.rn.f32 %0, %1;", root(a, N))
FLOAT_1(sqrt_rz, "sqrt.rz.f32 %0, %1;", root(a, Z))
FLOAT_1(sqrt_rp, "sqrt.rp.f32 %0, %1;", root(a, P))
DOUBLE_1(sqrt_rn_f64, "sqrt.rn.f64 %0, %1;", root(a, N))
DOUBLE_1(sqrt_rm_f64, "sqrt.rm.f64 %0, %1;", root(a, M))
FLOAT_1(rcp_rn, "rcp.rn.f32 %0, %1;", gpu_check::divide(1.0F, a, N))
FLOAT_1(rcp_rz, "rcp.rz.f32 %0, %1;", gpu_check::divide(1.0F, a, Z))
DOUBLE_1(rcp_rn_f64, "rcp.rn.f64 %0, %1;", gpu_check::divide(1.0, a, N))
FLOAT_3(fma_rn, "fma.rn.f32 %0, %1, %2, %3;", fuse(a, b, d, N))
FLOAT_3(fma_rz, "fma.rz.f32 %0, %1, %2, %3;", fuse(a, b, d, Z))
FLOAT_3(fma_rm, "fma.rm.f32 %0, %1, %2, %3;", fuse(a, b, d, M))
FLOAT_3(fma_rp, "fma.rp.f32 %0, %1, %2, %3;", fuse(a, b, d, P))
DOUBLE_3(fma_rn_f64, "fma.rn.f64 %0, %1, %2, %3;", fuse(a, b, d, N))
DOUBLE_3(fma_rz_f64, "fma.rz.f64 %0, %1, %2, %3;", fuse(a, b, d, Z))

// ftz: subnormal inputs and results become zeros that keep their sign.
float ftz(float value) {
  return std::fabs(value) < 1.17549435e-38F ? std::copysign(0.0F, value) : value;
}
FLOAT_2(add_ftz, "add.rn.ftz.f32 %0, %1, %2;", ftz(gpu_check::add(ftz(a), ftz(b), N)))
FLOAT_3(fma_ftz, "fma.rn.ftz.f32 %0, %1, %2, %3;", ftz(fuse(ftz(a), ftz(b), ftz(d), N)))
// A product that rounding lifts to the least normal number is not compared: see the check.
FLOAT_2(mul_ftz, "mul.rn.ftz.f32 %0, %1, %2;", ftz(gpu_check::multiply(ftz(a), ftz(b), N)))

float saturated(float value) {
  return std::isnan(value) ? 0.0F : std::fmin(std::fmax(value, 0.0F), 1.0F);
}
// The sign of a -0 is not documented: + 0 makes both the same.
FLOAT_2(add_sat, "{ .reg .f32 t; add.sat.f32 t, %1, %2; add.f32 %0, t, 0f00000000; }",
        saturated(gpu_check::add(a, b, N)) + 0.0F)
FLOAT_3(fma_sat, "{ .reg .f32 t; fma.rn.sat.f32 t, %1, %2, %3; add.f32 %0, t, 0f00000000; }",
        saturated(fuse(a, b, d, N)) + 0.0F)

// The number wins over the NaN, and +0 is above -0.
float lower(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
FLOAT_2(min_f32, "min.f32 %0, %1, %2;", lower(a, b))
FLOAT_2(max_f32, "max.f32 %0, %1, %2;", -lower(-a, -b))
FLOAT_2(min_nan, "min.NaN.f32 %0, %1, %2;",
        std::isnan(a) || std::isnan(b) ? std::nanf("") : lower(a, b))
FLOAT_2(copysign_f32, "copysign.f32 %0, %1, %2;", std::copysign(b, a))
// All 32 bits of what comes out of a NaN.
PTX_FORM_2(nan_of_add, u32, "r", float, "f", "{ .reg .f32 t; add.f32 t, %1, %2; mov.b32 %0, t; }",
           0x7fffffff)
PTX_FORM_2(nan_of_mul, u32, "r", float, "f", "{ .reg .f32 t; mul.f32 t, %1, %2; mov.b32 %0, t; }",
           0x7fffffff)
PTX_FORM_2(nan_of_fma, u32, "r", float, "f",
           "{ .reg .f32 t; fma.rn.f32 t, %1, %2, %1; mov.b32 %0, t; }", 0x7fffffff)
PTX_FORM_2(nan_of_min, u32, "r", float, "f", "{ .reg .f32 t; min.f32 t, %1, %2; mov.b32 %0, t; }",
           0x7fffffff)

#define RELATION(id, relation, ...)                                                      \
  PTX_FORM_2(id, u32, "r", float, "f",                                                   \
             "{ .reg .pred p; setp." relation ".f32 p, %1, %2; selp.u32 %0, 1, 0, p; }", \
             __VA_ARGS__)
RELATION(lt, "lt", a < b)
RELATION(ne, "ne", a != b && !std::isnan(a) && !std::isnan(b))
RELATION(geu, "geu", !(a < b))
RELATION(neu, "neu", !(a == b))
RELATION(num, "num", !std::isnan(a) && !std::isnan(b))
RELATION(nan_, "nan", std::isnan(a) || std::isnan(b))
#define KIND(id, kind, ...)            \
  PTX_FORM_1(id, u32, "r", float, "f", \
             "{ .reg .pred p; testp." kind ".f32 p, %1; selp.u32 %0, 1, 0, p; }", __VA_ARGS__)
KIND(testp_finite, "finite", std::isfinite(a))
KIND(testp_normal, "normal", std::isnormal(a) || a == 0)  // PTX: zeros are normal
KIND(testp_subnormal, "subnormal", std::fpclassify(a) == FP_SUBNORMAL)

// --- conversions ---------------------------------------------------------------------------------

template <class To>
To limited(double value) {  // whole numbers beyond the type become its nearest end, NaN becomes 0
  if (std::isnan(value)) return 0;
  if (value <= double(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (value >= double(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return To(value);
}
PTX_FORM_1(to_s32_rni, u32, "r", float, "f", "cvt.rni.s32.f32 %0, %1;",
           u32(limited<s32>(whole(a, N))))
PTX_FORM_1(to_s32_rzi, u32, "r", float, "f", "cvt.rzi.s32.f32 %0, %1;",
           u32(limited<s32>(whole(a, Z))))
PTX_FORM_1(to_s32_rmi, u32, "r", float, "f", "cvt.rmi.s32.f32 %0, %1;",
           u32(limited<s32>(whole(a, M))))
PTX_FORM_1(to_u32_rpi, u32, "r", float, "f", "cvt.rpi.u32.f32 %0, %1;", limited<u32>(whole(a, P)))
PTX_FORM_1(f64_to_s32, u32, "r", double, "d", "cvt.rni.s32.f64 %0, %1;",
           u32(limited<s32>(whole(a, N))))
PTX_FORM_1(f64_to_u32, u32, "r", double, "d", "cvt.rzi.u32.f64 %0, %1;", limited<u32>(whole(a, Z)))
FLOAT_1(to_whole_rni, "cvt.rni.f32.f32 %0, %1;", float(whole(a, N)))
FLOAT_1(to_whole_rpi, "cvt.rpi.f32.f32 %0, %1;", float(whole(a, P)))
FLOAT_1(cvt_sat, "{ .reg .f32 t; cvt.sat.f32.f32 t, %1; add.f32 %0, t, 0f00000000; }",
        saturated(a) + 0.0F)
PTX_FORM_1(f64_to_f32_rn, float, "f", double, "d", "cvt.rn.f32.f64 %0, %1;", narrow(a, N))
PTX_FORM_1(f64_to_f32_rz, float, "f", double, "d", "cvt.rz.f32.f64 %0, %1;", narrow(a, Z))
PTX_FORM_1(f64_to_f32_rp, float, "f", double, "d", "cvt.rp.f32.f64 %0, %1;", narrow(a, P))
PTX_FORM_1(f32_to_f64, double, "d", float, "f", "cvt.f64.f32 %0, %1;", double(a))
PTX_FORM_1(s64_to_f32_rn, float, "f", u64, "l", "cvt.rn.f32.s64 %0, %1;", from_integer(s64(a), N))
PTX_FORM_1(s64_to_f32_rz, float, "f", u64, "l", "cvt.rz.f32.s64 %0, %1;", from_integer(s64(a), Z))
PTX_FORM_1(u64_to_f32_rn, float, "f", u64, "l", "cvt.rn.f32.u64 %0, %1;", from_integer(a, N))
PTX_FORM_1(u64_to_f32_rm, float, "f", u64, "l", "cvt.rm.f32.u64 %0, %1;", from_integer(a, M))
PTX_FORM_1(s32_to_u8_sat, u32, "r", u32, "r", "cvt.sat.u8.s32 %0, %1;",
           u32(limited<u8>(double(s32(a)))))
PTX_FORM_1(s32_to_s8_sat, u32, "r", u32, "r",
           "{ .reg .b32 t; cvt.sat.s8.s32 t, %1; cvt.s32.s8 %0, t; }",
           u32(s32(limited<s8>(double(s32(a))))))
PTX_FORM_1(s32_to_s16, u32, "r", u32, "r", "{ .reg .b16 t; cvt.s16.s32 t, %1; cvt.s32.s16 %0, t; }",
           u32(s32(s16(a))))
// The low 13 bits of a tf32 do not count.
PTX_FORM_1(to_tf32, u32, "r", float, "f",
           "{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; and.b32 %0, t, 0xffffe000; }",
           (bits_of(a) + 0x1000) & 0xffffe000)

#define ALL_ROUNDINGS(id, x, y)     \
  COMPARE(id##_rn, x[0], x[1]);     \
  COMPARE(id##_rz, x[0], x[1]);     \
  COMPARE(id##_rm, x[0], x[1]);     \
  COMPARE(id##_rp, x[0], x[1]);     \
  COMPARE(id##_rn_f64, y[0], y[1]); \
  COMPARE(id##_rz_f64, y[0], y[1]); \
  COMPARE(id##_rm_f64, y[0], y[1]); \
  COMPARE(id##_rp_f64, y[0], y[1])

}  // namespace

std::vector<std::vector<float>> floats(int columns) {
  std::vector<float> edges;
  for (const u32 bits :
       {0x00000000U, 0x00000001U, 0x007fffffU, 0x00800000U, 0x33800000U, 0x3f000000U, 0x3f7fffffU,
        0x3f800000U, 0x3f800001U, 0x40200000U, 0x4f000000U, 0x7f7fffffU, 0x7f800000U, 0x7fc00000U})
    for (const u32 sign : {0U, 0x80000000U})
      edges.push_back(float_of(bits | sign));
  return inputs<float>(columns, edges, draw_float, 800);
}
std::vector<std::vector<double>> doubles(int columns) {
  std::vector<double> edges = {
      0.0,          5e-324,       2.2250738585072014e-308, 0.5,     1.0, 2.5,
      2147483647.5, 4294967295.0, 1.7976931348623157e308,  INFINITY};
  const std::size_t count = edges.size();
  for (std::size_t i = 0; i < count; ++i)
    edges.push_back(-edges[i]);
  edges.push_back(std::nan(""));
  return inputs<double>(columns, edges, draw_double, 800);
}

GPU_CHECK_BODY(floats, sums) {
  const auto x = floats(2);
  const auto y = doubles(2);
  ALL_ROUNDINGS(add, x, y);
  COMPARE(sub_rn, x[0], x[1]);
}

GPU_CHECK_BODY(floats, products) {
  const auto x = floats(2);
  const auto y = doubles(2);
  ALL_ROUNDINGS(mul, x, y);
}

GPU_CHECK_BODY(floats, quotients) {
  const auto x = floats(2);
  const auto y = doubles(2);
  ALL_ROUNDINGS(div, x, y);
  COMPARE(rcp_rn, x[0]);
  COMPARE(rcp_rz, x[0]);
  COMPARE(rcp_rn_f64, y[0]);
}

GPU_CHECK_BODY(floats, roots) {
  const auto x = floats(1);
  const auto y = doubles(1);
  COMPARE(sqrt_rn, x[0]);
  COMPARE(sqrt_rz, x[0]);
  COMPARE(sqrt_rp, x[0]);
  COMPARE(sqrt_rn_f64, y[0]);
  COMPARE(sqrt_rm_f64, y[0]);
}

GPU_CHECK_BODY(floats, fused_products) {
  const auto x = floats(3);
  const auto y = doubles(3);
  COMPARE(fma_rn, x[0], x[1], x[2]);
  COMPARE(fma_rz, x[0], x[1], x[2]);
  COMPARE(fma_rm, x[0], x[1], x[2]);
  COMPARE(fma_rp, x[0], x[1], x[2]);
  COMPARE(fma_rn_f64, y[0], y[1], y[2]);
  COMPARE(fma_rz_f64, y[0], y[1], y[2]);
}

GPU_CHECK_BODY(floats, flush_to_zero) {
  auto x = floats(3);
  COMPARE(add_ftz, x[0], x[1]);
  // A result just below the least normal number may be flushed before or after it is rounded, which
  // is not documented: such inputs stay away.
  std::vector<std::vector<float>> safe(3);
  for (std::size_t i = 0; i < x[0].size(); ++i) {
    const double product = double(ftz(x[0][i])) * double(ftz(x[1][i]));
    const double fused = product + double(ftz(x[2][i]));
    bool is_safe = true;
    for (const double value : {product, fused})
      is_safe &= !(std::fabs(value) > 1.17549e-38 && std::fabs(value) < 1.1754944e-38);
    for (std::size_t k = 0; is_safe && k < 3; ++k)
      safe[k].push_back(x[k][i]);
  }
  COMPARE(mul_ftz, safe[0], safe[1]);
  COMPARE(fma_ftz, safe[0], safe[1], safe[2]);
}

GPU_CHECK_BODY(floats, saturation) {
  const auto x = floats(3);
  COMPARE(add_sat, x[0], x[1]);
  COMPARE(fma_sat, x[0], x[1], x[2]);
  COMPARE(cvt_sat, x[0]);
}

GPU_CHECK_BODY(floats, least_and_greatest) {
  const auto x = floats(2);
  COMPARE(min_f32, x[0], x[1]);
  COMPARE(max_f32, x[0], x[1]);
  COMPARE(min_nan, x[0], x[1]);
  COMPARE(copysign_f32, x[0], x[1]);
}

GPU_CHECK_BODY(floats, one_nan) {
  const std::vector<float> nans = {float_of(0x7fc00000), float_of(0xffc12345), float_of(0x7fffffff),
                                   float_of(0x7f812345)};
  COMPARE(nan_of_add, nans, nans);
  COMPARE(nan_of_mul, nans, nans);
  COMPARE(nan_of_fma, nans, nans);
  COMPARE(nan_of_min, nans, nans);
}

GPU_CHECK_BODY(floats, comparisons) {
  const auto x = floats(2);
  COMPARE(lt, x[0], x[1]);
  COMPARE(ne, x[0], x[1]);
  COMPARE(geu, x[0], x[1]);
  COMPARE(neu, x[0], x[1]);
  COMPARE(num, x[0], x[1]);
  COMPARE(nan_, x[0], x[1]);
  COMPARE(testp_finite, x[0]);
  COMPARE(testp_normal, x[0]);
  COMPARE(testp_subnormal, x[0]);
}

GPU_CHECK_BODY(conversions, floats_to_integers) {
  const auto x = floats(1);
  std::vector<double> y = doubles(1)[0];
  COMPARE(to_s32_rni, x[0]);
  COMPARE(to_s32_rzi, x[0]);
  COMPARE(to_s32_rmi, x[0]);
  COMPARE(to_u32_rpi, x[0]);
  // A double NaN becomes 0 for some types and the sign bit for others.
  y.erase(std::remove_if(y.begin(), y.end(), [](double value) { return std::isnan(value); }),
          y.end());
  COMPARE(f64_to_s32, y);
  COMPARE(f64_to_u32, y);
}

GPU_CHECK_BODY(conversions, integers_to_floats) {
  const std::vector<u64> l = long_words(1)[0];
  COMPARE(s64_to_f32_rn, l);
  COMPARE(s64_to_f32_rz, l);
  COMPARE(u64_to_f32_rn, l);
  COMPARE(u64_to_f32_rm, l);
}

GPU_CHECK_BODY(conversions, between_floats) {
  const auto x = floats(1);
  const auto y = doubles(1);
  COMPARE(to_whole_rni, x[0]);
  COMPARE(to_whole_rpi, x[0]);
  COMPARE(f64_to_f32_rn, y[0]);
  COMPARE(f64_to_f32_rz, y[0]);
  COMPARE(f64_to_f32_rp, y[0]);
  COMPARE(f32_to_f64, x[0]);
  std::vector<float> finite;
  for (const float value : x[0])
    if (std::fabs(value) < 1e38F) finite.push_back(value);
  COMPARE(to_tf32, finite);
}

GPU_CHECK_BODY(conversions, between_integers) {
  const std::vector<u32> w = words(1)[0];
  COMPARE(s32_to_u8_sat, w);
  COMPARE(s32_to_s8_sat, w);
  COMPARE(s32_to_s16, w);
}

}  // namespace gpu_check
