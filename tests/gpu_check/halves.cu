// SPDX-License-Identifier: Apache-2.0
// PTX instructions on numbers of 16 bits, f16 and bf16: results rounded once, two side by side,
// saturation, order; conversions to them.

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

u32 pair(u16 low, u16 high) {
  return low | u32(high) << 16;
}
u16 low(u32 both) {
  return u16(both);
}
u16 high(u32 both) {
  return u16(both >> 16);
}
bool is_nan(u16 bits, Format format) {
  return std::isnan(widen(bits, format));
}
u16 one_nan_of(u16 bits, Format format) {
  return is_nan(bits, format) ? 0x7fff : bits;
}

// --- exact results of one half -------------------------------------------------------------------

// Sums and products of f16 are exact in double; rounding them is the one rounding.
u16 h_add(u16 a, u16 b) {
  return round_to(widen(a, kHalf) + widen(b, kHalf), kHalf);
}
u16 h_sub(u16 a, u16 b) {
  return round_to(widen(a, kHalf) - widen(b, kHalf), kHalf);
}
u16 h_mul(u16 a, u16 b) {
  return round_to(widen(a, kHalf) * widen(b, kHalf), kHalf);
}
u16 h_fma(u16 a, u16 b, u16 d) {
  return fuse(a, b, d, kHalf);
}
u16 b_fma(u16 a, u16 b, u16 d) {
  return fuse(a, b, d, kBfloat);
}
u16 h_relu(u16 value) {
  return is_nan(value, kHalf) ? value : (value & 0x8000) != 0 ? 0 : value;
}
u16 h_sat(u16 value) {
  const double x = widen(value, kHalf);
  return std::isnan(x) || x <= 0 ? 0 : x > 1 ? 0x3c00 : value;
}
u16 lesser(u16 a, u16 b, Format format) {
  if (is_nan(a, format)) return one_nan_of(b, format);
  if (is_nan(b, format)) return a;
  const double x = widen(a, format), y = widen(b, format);
  if (x == y) return (a & 0x8000) != 0 ? a : b;
  return x < y ? a : b;
}
u16 h_min(u16 a, u16 b) {
  return lesser(a, b, kHalf);
}
u16 h_max(u16 a, u16 b) {
  if (is_nan(a, kHalf)) return one_nan_of(b, kHalf);
  if (is_nan(b, kHalf)) return a;
  return lesser(a ^ 0x8000, b ^ 0x8000, kHalf) ^ 0x8000;
}
u16 b_max(u16 a, u16 b) {
  if (is_nan(a, kBfloat)) return one_nan_of(b, kBfloat);
  if (is_nan(b, kBfloat)) return a;
  return lesser(a ^ 0x8000, b ^ 0x8000, kBfloat) ^ 0x8000;
}

#define PAIRS_2(id, ptx, one) \
  PTX_FORM_2(id, u32, "r", u32, "r", ptx, pair(one(low(a), low(b)), one(high(a), high(b))))
#define PAIRS_3(id, ptx, one)             \
  PTX_FORM_3(id, u32, "r", u32, "r", ptx, \
             pair(one(low(a), low(b), low(d)), one(high(a), high(b), high(d))))
PAIRS_2(add_f16x2, "add.rn.f16x2 %0, %1, %2;", h_add)
PAIRS_2(sub_f16x2, "sub.rn.f16x2 %0, %1, %2;", h_sub)
PAIRS_2(mul_f16x2, "mul.rn.f16x2 %0, %1, %2;", h_mul)
PAIRS_3(fma_f16x2, "fma.rn.f16x2 %0, %1, %2, %3;", h_fma)
PAIRS_3(fma_bf16x2, "fma.rn.bf16x2 %0, %1, %2, %3;", b_fma)
#define RELU_FMA(a, b, d) h_relu(h_fma(a, b, d))
PAIRS_3(fma_relu_f16x2, "fma.rn.relu.f16x2 %0, %1, %2, %3;", RELU_FMA)
#define SAT_FMA(a, b, d) h_sat(h_fma(a, b, d))
// + 0 makes -0 and 0 the same: which of them saturation gives is not documented.
PAIRS_3(fma_sat_f16x2,
        "{ .reg .b32 t, z; mov.b32 z, 0; fma.rn.sat.f16x2 t, %1, %2, %3; add.rn.f16x2 %0, t, z; }",
        SAT_FMA)
PAIRS_2(min_f16x2, "min.f16x2 %0, %1, %2;", h_min)
PAIRS_2(max_f16x2, "max.f16x2 %0, %1, %2;", h_max)
PAIRS_2(max_bf16x2, "max.bf16x2 %0, %1, %2;", b_max)
PTX_FORM_2(add_f16, u16, "h", u16, "h", "add.rn.f16 %0, %1, %2;", h_add(a, b))
PTX_FORM_3(fma_f16, u16, "h", u16, "h", "fma.rn.f16 %0, %1, %2, %3;", h_fma(a, b, d))
PTX_FORM_2(less_f16, u32, "r", u16, "h",
           "{ .reg .pred p; setp.lt.f16 p, %1, %2; selp.u32 %0, 1, 0, p; }",
           widen(a, kHalf) < widen(b, kHalf))
PTX_FORM_2(equal_or_nan_f16, u32, "r", u16, "h",
           "{ .reg .pred p; setp.equ.f16 p, %1, %2; selp.u32 %0, 1, 0, p; }",
           !(widen(a, kHalf) != widen(b, kHalf)) || is_nan(a, kHalf) || is_nan(b, kHalf))

// --- conversions ---------------------------------------------------------------------------------

PTX_FORM_1(f16_rn, u16, "h", float, "f", "cvt.rn.f16.f32 %0, %1;", round_to(a, kHalf))
PTX_FORM_1(f16_rz, u16, "h", float, "f", "cvt.rz.f16.f32 %0, %1;", round_to(a, kHalf, Round::kZero))
PTX_FORM_1(f16_rm, u16, "h", float, "f", "cvt.rm.f16.f32 %0, %1;", round_to(a, kHalf, Round::kDown))
PTX_FORM_1(f16_rp, u16, "h", float, "f", "cvt.rp.f16.f32 %0, %1;", round_to(a, kHalf, Round::kUp))
PTX_FORM_1(bf16_rn, u16, "h", float, "f", "cvt.rn.bf16.f32 %0, %1;", round_to(a, kBfloat))
PTX_FORM_1(bf16_rz, u16, "h", float, "f", "cvt.rz.bf16.f32 %0, %1;",
           round_to(a, kBfloat, Round::kZero))
PTX_FORM_1(bf16_relu, u16, "h", float, "f", "cvt.rn.relu.bf16.f32 %0, %1;",
           std::isnan(a) ? 0x7fff
           : a <= 0      ? 0
                         : round_to(a, kBfloat))
PTX_FORM_1(f16_to_f32, float, "f", u16, "h", "cvt.f32.f16 %0, %1;", float(widen(a, kHalf)))
// The first operand goes into the upper half.
PTX_FORM_2(f16x2_of_two, u32, "r", float, "f", "cvt.rn.f16x2.f32 %0, %1, %2;",
           pair(round_to(b, kHalf), round_to(a, kHalf)))
PTX_FORM_2(bf16x2_of_two, u32, "r", float, "f", "cvt.rn.bf16x2.f32 %0, %1, %2;",
           pair(round_to(b, kBfloat), round_to(a, kBfloat)))
PTX_FORM_1(f16_to_s16, u16, "h", u16, "h", "cvt.rni.s16.f16 %0, %1;",
           u16(s16(std::fmin(std::fmax(whole(widen(a, kHalf), Round::kNearest), -32768), 32767))))
PTX_FORM_1(s32_to_f16, u16, "h", u32, "r", "cvt.rn.f16.s32 %0, %1;",
           round_to(double(s32(a)), kHalf))

// bf16: exponents near zero, so that a product and a sum fit into what the host holds exactly.
std::vector<u32> pairs(u64 seed, Format format) {
  Random random(seed);
  std::vector<u32> out;
  const u16 edges[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff,
                       0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3555, 0x0200, 0x8001, 0x6400};
  for (int i = 0; i < 3000; ++i) {
    u16 halves[2];
    for (u16& half : halves) {
      const u64 bits = random.bits();
      if (format.exponent == 8)  // bf16: 2^-20 to 2^20
        half = u16((bits & 0x807f) | (107 + (bits >> 20) % 40) << 7);
      else
        half = i < 600 ? edges[bits % 16] : u16(bits);
    }
    out.push_back(pair(halves[0], halves[1]));
  }
  return out;
}
std::vector<u16> lows(const std::vector<u32>& both) {
  std::vector<u16> out;
  for (const u32 value : both)
    out.push_back(low(value));
  return out;
}

// For forms whose results may be NaNs, which are all one.
template <class... From>
void compare_pairs(Check& c, const char* form, void (*kernel)(int, u32*, const From*...),
                   u32 (*want)(From...), Format format, const std::vector<From>&... in) {
  std::vector<u32> got = map(c, kernel, in...), wanted(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const u32 w = want(in[i]...);
    wanted[i] = pair(one_nan_of(low(w), format), one_nan_of(high(w), format));
    got[i] = pair(one_nan_of(low(got[i]), format), one_nan_of(high(got[i]), format));
  }
  c.all_equal(form, got, wanted);
}
template <class... From>
void compare_halves(Check& c, const char* form, void (*kernel)(int, u16*, const From*...),
                    u16 (*want)(From...), Format format, const std::vector<From>&... in) {
  std::vector<u16> got = map(c, kernel, in...), wanted(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    wanted[i] = one_nan_of(want(in[i]...), format);
    got[i] = one_nan_of(got[i], format);
  }
  c.all_equal(form, got, wanted);
}
#define PAIRS(id, format, ...) compare_pairs(c, #id, id, id##_want, format, __VA_ARGS__)
#define HALVES(id, format, ...) compare_halves(c, #id, id, id##_want, format, __VA_ARGS__)

}  // namespace

GPU_CHECK_BODY(halves, f16_arithmetic) {
  const std::vector<u32> a = pairs(1, kHalf), b = pairs(2, kHalf), d = pairs(3, kHalf);
  PAIRS(add_f16x2, kHalf, a, b);
  PAIRS(sub_f16x2, kHalf, a, b);
  PAIRS(mul_f16x2, kHalf, a, b);
  PAIRS(fma_f16x2, kHalf, a, b, d);
  HALVES(add_f16, kHalf, lows(a), lows(b));
  HALVES(fma_f16, kHalf, lows(a), lows(b), lows(d));
}

GPU_CHECK_BODY(halves, f16_saturation) {
  const std::vector<u32> a = pairs(4, kHalf), b = pairs(5, kHalf), d = pairs(6, kHalf);
  PAIRS(fma_relu_f16x2, kHalf, a, b, d);
  PAIRS(fma_sat_f16x2, kHalf, a, b, d);
}

GPU_CHECK_BODY(halves, f16_order) {
  const std::vector<u32> a = pairs(7, kHalf), b = pairs(8, kHalf);
  PAIRS(min_f16x2, kHalf, a, b);
  PAIRS(max_f16x2, kHalf, a, b);
  PAIRS(max_bf16x2, kBfloat, a, b);
  COMPARE(less_f16, lows(a), lows(b));
  COMPARE(equal_or_nan_f16, lows(a), lows(b));
}

GPU_CHECK_BODY(halves, bf16_arithmetic) {
  PAIRS(fma_bf16x2, kBfloat, pairs(9, kBfloat), pairs(10, kBfloat), pairs(11, kBfloat));
}

GPU_CHECK_BODY(halves, conversions_to_f16) {
  std::vector<float> x = floats(1)[0];
  for (int bits = 0; bits < 0x10000; bits += 37) {  // each f16, and the middles beside it
    const double half = widen(u16(bits), kHalf), next = widen(u16(bits + 1), kHalf);
    x.push_back(float(half));
    x.push_back(float((half + next) / 2));
    x.push_back(std::nextafter(float((half + next) / 2), 1e9F));
  }
  HALVES(f16_rn, kHalf, x);
  HALVES(f16_rz, kHalf, x);
  HALVES(f16_rm, kHalf, x);
  HALVES(f16_rp, kHalf, x);
  PAIRS(f16x2_of_two, kHalf, x, std::vector<float>(x.rbegin(), x.rend()));
  HALVES(s32_to_f16, kHalf, words(1)[0]);
}

GPU_CHECK_BODY(halves, conversions_to_bf16) {
  std::vector<float> x = floats(1)[0];
  HALVES(bf16_rn, kBfloat, x);
  HALVES(bf16_rz, kBfloat, x);
  HALVES(bf16_relu, kBfloat, x);
  PAIRS(bf16x2_of_two, kBfloat, x, std::vector<float>(x.rbegin(), x.rend()));
}

GPU_CHECK_BODY(halves, conversions_from_f16) {
  std::vector<u16> every(0x10000), no_nans;
  for (int i = 0; i < 0x10000; ++i) {
    every[std::size_t(i)] = u16(i);
    if (!is_nan(u16(i), kHalf)) no_nans.push_back(u16(i));
  }
  COMPARE(f16_to_f32, every);
  COMPARE(f16_to_s16, no_nans);
}

}  // namespace gpu_check
