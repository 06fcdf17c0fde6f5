// SPDX-License-Identifier: Apache-2.0
// PTX instructions on integers: one kernel a form, against C++ of the host.
#include <algorithm>

#include "device.h"

namespace gpu_check {

namespace {

u32 draw_word(Random& random) {
  return static_cast<u32>(random.bits());
}
u64 draw_long(Random& random) {
  return random.bits();
}
s32 sgn(u32 value) {
  return static_cast<s32>(value);
}
s64 sgn(u64 value) {
  return static_cast<s64>(value);
}

#define WORD_1(id, ptx, ...) PTX_FORM_1(id, u32, "r", u32, "r", ptx, __VA_ARGS__)
#define WORD_2(id, ptx, ...) PTX_FORM_2(id, u32, "r", u32, "r", ptx, __VA_ARGS__)
#define WORD_3(id, ptx, ...) PTX_FORM_3(id, u32, "r", u32, "r", ptx, __VA_ARGS__)
#define LONG_1(id, ptx, ...) PTX_FORM_1(id, u64, "l", u64, "l", ptx, __VA_ARGS__)
#define LONG_2(id, ptx, ...) PTX_FORM_2(id, u64, "l", u64, "l", ptx, __VA_ARGS__)

// --- products, sums ------------------------------------------------------------------------------

WORD_2(mul_lo, "mul.lo.u32 %0, %1, %2;", (a * b))
WORD_2(mul_hi_u32, "mul.hi.u32 %0, %1, %2;", u32(u64(a) * b >> 32))
WORD_2(mul_hi_s32, "mul.hi.s32 %0, %1, %2;", u32(u64(s64(sgn(a)) * sgn(b)) >> 32))
LONG_2(mul_lo_64, "mul.lo.u64 %0, %1, %2;", (a * b))
LONG_2(mul_hi_u64, "mul.hi.u64 %0, %1, %2;", u64(static_cast<unsigned __int128>(a) * b >> 64))
LONG_2(mul_hi_s64, "mul.hi.s64 %0, %1, %2;", u64(static_cast<__int128>(sgn(a)) * sgn(b) >> 64))
WORD_3(mad_lo, "mad.lo.u32 %0, %1, %2, %3;", (a * b + d))
WORD_3(mad_hi, "mad.hi.u32 %0, %1, %2, %3;", u32(u64(a) * b >> 32) + d)
s64 low_24(u32 value) {
  return sgn(value << 8) >> 8;
}
WORD_2(mul24_u, "mul24.lo.u32 %0, %1, %2;", (a & 0xffffff) * (b & 0xffffff))
WORD_2(mul24_hi_s, "mul24.hi.s32 %0, %1, %2;", u32(u64(low_24(a) * low_24(b)) >> 16))
WORD_2(add_sat, "add.sat.s32 %0, %1, %2;",
       u32(std::clamp<s64>(s64(sgn(a)) + sgn(b), INT32_MIN, INT32_MAX)))
WORD_2(sub_sat, "sub.sat.s32 %0, %1, %2;",
       u32(std::clamp<s64>(s64(sgn(a)) - sgn(b), INT32_MIN, INT32_MAX)))
WORD_3(sad_s32, "sad.s32 %0, %1, %2, %3;", u32(std::abs(s64(sgn(a)) - sgn(b))) + d)
WORD_3(sad_u32, "sad.u32 %0, %1, %2, %3;", (a > b ? a - b : b - a) + d)
WORD_2(min_s32, "min.s32 %0, %1, %2;", sgn(a) < sgn(b) ? a : b)
WORD_2(max_u32, "max.u32 %0, %1, %2;", a > b ? a : b)
// Quotients are cut towards zero. The result of a division by zero is not specified.
WORD_2(div_s32, "div.s32 %0, %1, %2;", u32(s64(sgn(a)) / sgn(b)))
WORD_2(rem_s32, "rem.s32 %0, %1, %2;", u32(s64(sgn(a)) % sgn(b)))
WORD_2(div_u32, "div.u32 %0, %1, %2;", a / b)
WORD_2(rem_u32, "rem.u32 %0, %1, %2;", a % b)
LONG_2(div_u64, "div.u64 %0, %1, %2;", a / b)
LONG_2(rem_u64, "rem.u64 %0, %1, %2;", a % b)

// --- shifts, bits --------------------------------------------------------------------------------

WORD_2(shl_b32, "shl.b32 %0, %1, %2;", b > 31 ? 0 : a << b)
WORD_2(shr_u32, "shr.u32 %0, %1, %2;", b > 31 ? 0 : a >> b)
WORD_2(shr_s32, "shr.s32 %0, %1, %2;", u32(sgn(a) >> (b > 31 ? 31 : b)))
u64 pair_of(u32 low, u32 high) {
  return u64(high) << 32 | low;
}
WORD_3(shf_l_wrap, "shf.l.wrap.b32 %0, %1, %2, %3;", u32(pair_of(a, b) << (d & 31) >> 32))
WORD_3(shf_r_wrap, "shf.r.wrap.b32 %0, %1, %2, %3;", u32(pair_of(a, b) >> (d & 31)))
WORD_3(shf_l_clamp, "shf.l.clamp.b32 %0, %1, %2, %3;",
       u32(pair_of(a, b) << (d > 32 ? 32 : d) >> 32))
WORD_3(shf_r_clamp, "shf.r.clamp.b32 %0, %1, %2, %3;", u32(pair_of(a, b) >> (d > 32 ? 32 : d)))

u32 reversed(u32 value) {
  u32 out = 0;
  for (int i = 0; i < 32; ++i)
    out |= (value >> i & 1) << (31 - i);
  return out;
}
u32 leading(u32 value) {
  return value == 0 ? 32 : u32(__builtin_clz(value));
}
WORD_1(popc, "popc.b32 %0, %1;", u32(__builtin_popcount(a)))
WORD_1(clz, "clz.b32 %0, %1;", leading(a))
WORD_1(brev, "brev.b32 %0, %1;", reversed(a))
WORD_1(bfind_u32, "bfind.u32 %0, %1;", a == 0 ? ~0U : 31 - leading(a))
WORD_1(bfind_s32, "bfind.s32 %0, %1;",
       (sgn(a) < 0 ? ~a : a) == 0 ? ~0U : 31 - leading(sgn(a) < 0 ? ~a : a))
WORD_1(bfind_shiftamt, "bfind.shiftamt.u32 %0, %1;", a == 0 ? ~0U : leading(a))
WORD_1(cnot, "cnot.b32 %0, %1;", a == 0 ? 1 : 0)
WORD_1(abs_s32, "abs.s32 %0, %1;", sgn(a) < 0 ? 0 - a : a)
LONG_1(brev_64, "brev.b64 %0, %1;", pair_of(reversed(u32(a >> 32)), reversed(u32(a))))
PTX_FORM_1(popc_64, u32, "r", u64, "l", "popc.b64 %0, %1;", u32(__builtin_popcountll(a)))
PTX_FORM_1(clz_64, u32, "r", u64, "l", "clz.b64 %0, %1;", a == 0 ? 64 : u32(__builtin_clzll(a)))
PTX_FORM_1(ffs_intrinsic, u32, "r", u32, "r",
           "{ .reg .b32 t; brev.b32 t, %1; bfind.shiftamt.u32 t, t; add.u32 %0, t, 1; }",
           u32(__builtin_ffs(sgn(a))))

// Position and length are the low 8 bits of b and d; bits beyond the value repeat its sign.
u32 field(u32 a, u32 b, u32 d, bool is_signed) {
  const u32 position = b & 0xff, length = d & 0xff;
  const u32 last = std::min(position + length - 1, 31U);
  const bool sign = is_signed && length > 0 && (a >> last & 1) != 0;
  u32 out = 0;
  for (u32 i = 0; i < 32; ++i) {
    const bool is_inside = i < length && position + i < 32;
    out |= u32(is_inside ? (a >> (position + i) & 1) != 0 : sign) << i;
  }
  return out;
}
WORD_3(bfe_u32, "bfe.u32 %0, %1, %2, %3;", field(a, b, d, false))
WORD_3(bfe_s32, "bfe.s32 %0, %1, %2, %3;", field(a, b, d, true))
u32 inserted(u32 a, u32 b, u32 d) {
  const u32 position = d & 0xff, length = d >> 8 & 0xff;
  u32 out = b;
  for (u32 i = 0; i < length && position + i < 32; ++i)
    out = (out & ~(1U << (position + i))) | (a >> i & 1) << (position + i);
  return out;
}
WORD_3(bfi_b32,
       "{ .reg .b32 p, l; and.b32 p, %3, 255; shr.u32 l, %3, 8; and.b32 l, l, 255; "
       "bfi.b32 %0, %1, %2, p, l; }",
       inserted(a, b, d))

// A mask of b bits from position a on; both clamped to 32, or taken modulo 32.
u32 mask_of(u32 a, u32 b, bool wraps) {
  const u32 from = wraps ? a & 31 : std::min(a, 32U), count = wraps ? b & 31 : std::min(b, 32U);
  return u32(((u64{1} << count) - 1) << from);
}
WORD_2(bmsk_clamp, "bmsk.clamp.b32 %0, %1, %2;", mask_of(a, b, false))
WORD_2(bmsk_wrap, "bmsk.wrap.b32 %0, %1, %2;", mask_of(a, b, true))
// The low b bits of a, with the sign of the uppermost one.
u32 extended(u32 a, u32 count, bool is_signed) {
  if (count == 0) return 0;
  const u32 up = 32 - std::min(count, 32U);
  return is_signed ? u32(sgn(a << up) >> up) : a << up >> up;
}
WORD_2(szext_clamp_u32, "szext.clamp.u32 %0, %1, %2;", extended(a, b, false))
WORD_2(szext_clamp_s32, "szext.clamp.s32 %0, %1, %2;", extended(a, b, true))
WORD_2(szext_wrap_u32, "szext.wrap.u32 %0, %1, %2;", extended(a, b & 31, false))
WORD_2(szext_wrap_s32, "szext.wrap.s32 %0, %1, %2;", extended(a, b & 31, true))

// --- bytes ---------------------------------------------------------------------------------------

u32 byte_of(u64 bytes, u32 select) {
  const u32 byte = u32(bytes >> 8 * (select & 7)) & 0xff;
  return (select & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xff : 0;
}
u32 permuted(u32 a, u32 b, u32 s0, u32 s1, u32 s2, u32 s3) {
  const u64 bytes = pair_of(a, b);
  return byte_of(bytes, s0) | byte_of(bytes, s1) << 8 | byte_of(bytes, s2) << 16 |
         byte_of(bytes, s3) << 24;
}
WORD_3(prmt, "prmt.b32 %0, %1, %2, %3;",
       permuted(a, b, d & 15, d >> 4 & 15, d >> 8 & 15, d >> 12 & 15))
WORD_3(prmt_f4e, "prmt.b32.f4e %0, %1, %2, %3;",
       permuted(a, b, d & 3, (d & 3) + 1, (d & 3) + 2, (d & 3) + 3))
WORD_3(prmt_b4e, "prmt.b32.b4e %0, %1, %2, %3;",
       permuted(a, b, d & 3, ((d & 3) + 7) & 7, ((d & 3) + 6) & 7, ((d & 3) + 5) & 7))
WORD_3(prmt_rc8, "prmt.b32.rc8 %0, %1, %2, %3;", permuted(a, b, d & 3, d & 3, d & 3, d & 3))
WORD_3(prmt_rc16, "prmt.b32.rc16 %0, %1, %2, %3;",
       permuted(a, b, 2 * (d & 1), 2 * (d & 1) + 1, 2 * (d & 1), 2 * (d & 1) + 1))
WORD_3(prmt_ecl, "prmt.b32.ecl %0, %1, %2, %3;",
       permuted(a, b, d & 3, std::max(d & 3, 1U), std::max(d & 3, 2U), 3))
WORD_3(prmt_ecr, "prmt.b32.ecr %0, %1, %2, %3;",
       permuted(a, b, 0, std::min(d & 3, 1U), std::min(d & 3, 2U), d & 3))
// The table of lop3 is the function of 0xf0, 0xcc, 0xaa.
WORD_3(lop3_96, "lop3.b32 %0, %1, %2, %3, 0x96;", a ^ b ^ d)
WORD_3(lop3_e8, "lop3.b32 %0, %1, %2, %3, 0xe8;", (a & b) | (a & d) | (b & d))
WORD_3(lop3_ca, "lop3.b32 %0, %1, %2, %3, 0xca;", (a & b) | (~a & d))
WORD_3(lop3_1f, "lop3.b32 %0, %1, %2, %3, 0x1f;", ~(a&(b | d)))

template <class A, class B>
u32 dot_4(u32 a, u32 b, u32 d) {
  for (int i = 0; i < 32; i += 8)
    d += u32(s32(A(a >> i)) * s32(B(b >> i)));
  return d;
}
WORD_3(dp4a_ss, "dp4a.s32.s32 %0, %1, %2, %3;", dot_4<s8, s8>(a, b, d))
WORD_3(dp4a_uu, "dp4a.u32.u32 %0, %1, %2, %3;", dot_4<u8, u8>(a, b, d))
WORD_3(dp4a_us, "dp4a.u32.s32 %0, %1, %2, %3;", dot_4<u8, s8>(a, b, d))
WORD_3(dp2a_lo, "dp2a.lo.s32.s32 %0, %1, %2, %3;",
       d + u32(s16(a) * s8(b)) + u32(s16(a >> 16) * s8(b >> 8)))
WORD_3(dp2a_hi, "dp2a.hi.u32.u32 %0, %1, %2, %3;",
       d + (a & 0xffff) * u8(b >> 16) + (a >> 16) * u8(b >> 24))

// Four bytes side by side, by the intrinsics of CUDA.
template <class T, class F>
u32 each_byte(u32 a, u32 b, F f) {
  u32 out = 0;
  for (int i = 0; i < 32; i += 8)
    out |= u32(u8(f(s32(T(a >> i)), s32(T(b >> i))))) << i;
  return out;
}
#define SIMD(id, intrinsic, T, ...)                                      \
  __global__ void id(int n, u32* out, const u32* a, const u32* b) {      \
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);            \
    if (i < n) out[i] = intrinsic(a[i], b[i]);                           \
  }                                                                      \
  u32 id##_want(u32 a, u32 b) {                                          \
    return each_byte<T>(a, b, [](s32 x, s32 y) { return __VA_ARGS__; }); \
  }
SIMD(vadd4, __vadd4, u8, x + y)
SIMD(vsub4, __vsub4, u8, x - y)
SIMD(vaddss4, __vaddss4, s8, std::clamp(x + y, -128, 127))
SIMD(vsubss4, __vsubss4, s8, std::clamp(x - y, -128, 127))
SIMD(vaddus4, __vaddus4, u8, std::min(x + y, 255))
SIMD(vabsdiffu4, __vabsdiffu4, u8, x > y ? x - y : y - x)
SIMD(vmaxs4, __vmaxs4, s8, std::max(x, y))
SIMD(vminu4, __vminu4, u8, std::min(x, y))
SIMD(vcmpne4, __vcmpne4, u8, x != y ? 255 : 0)
SIMD(vcmpgts4, __vcmpgts4, s8, x > y ? 255 : 0)
SIMD(vavgu4, __vavgu4, u8, (x + y + 1) / 2)
SIMD(vseteq4, __vseteq4, u8, x == y ? 1 : 0)

// --- carries -------------------------------------------------------------------------------------

// 128-bit sums, differences and a 64-bit product of halves, by chains of carries.
__global__ void wide_sum(int n, u64* out, const u64* a, const u64* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (2 * i + 1 >= n) return;
  asm volatile("add.cc.u64 %0, %2, %4;\n\taddc.u64 %1, %3, %5;"
               : "=&l"(out[2 * i]), "=&l"(out[2 * i + 1])
               : "l"(a[2 * i]), "l"(a[2 * i + 1]), "l"(b[2 * i]), "l"(b[2 * i + 1]));
}
__global__ void wide_difference(int n, u64* out, const u64* a, const u64* b) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (2 * i + 1 >= n) return;
  asm volatile("sub.cc.u64 %0, %2, %4;\n\tsubc.u64 %1, %3, %5;"
               : "=&l"(out[2 * i]), "=&l"(out[2 * i + 1])
               : "l"(a[2 * i]), "l"(a[2 * i + 1]), "l"(b[2 * i]), "l"(b[2 * i + 1]));
}
LONG_2(product_of_halves,
       "{ .reg .b32 a0, a1, b0, b1, r0, r1; mov.b64 {a0, a1}, %1; mov.b64 {b0, b1}, %2; "
       "mul.lo.u32 r0, a0, b0; mul.hi.u32 r1, a0, b0; mad.lo.cc.u32 r1, a1, b0, r1; "
       "mad.lo.cc.u32 r1, a0, b1, r1; mov.b64 %0, {r0, r1}; }",
       (a * b))

std::vector<u32> amounts(std::size_t count) {  // of shifts and fields
  Random random(7);
  std::vector<u32> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(i < 70 ? u32(i) : u32(random.bits()) & 0x3f3f);
  return values;
}
std::vector<u32> random_words(std::size_t count, u64 seed) {
  Random random(seed);
  std::vector<u32> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(u32(random.bits()));
  return values;
}

}  // namespace

std::vector<std::vector<u32>> words(int columns) {
  return inputs<u32>(columns,
                     {0, 1, 2, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0x80000001,
                      0xaaaaaaaa, 0xfffffffe, 0xffffffff},
                     draw_word, 400);
}
std::vector<std::vector<u64>> long_words(int columns) {
  return inputs<u64>(columns,
                     {0, 1, 2, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
                      0xfffffffffffffffe, 0xffffffffffffffff},
                     draw_long, 400);
}

GPU_CHECK_BODY(integers, products) {
  const auto w = words(3);
  const auto l = long_words(2);
  COMPARE(mul_lo, w[0], w[1]);
  COMPARE(mul_hi_u32, w[0], w[1]);
  COMPARE(mul_hi_s32, w[0], w[1]);
  COMPARE(mul_lo_64, l[0], l[1]);
  COMPARE(mul_hi_u64, l[0], l[1]);
  COMPARE(mul_hi_s64, l[0], l[1]);
  COMPARE(mad_lo, w[0], w[1], w[2]);
  COMPARE(mad_hi, w[0], w[1], w[2]);
  COMPARE(mul24_u, w[0], w[1]);
  COMPARE(mul24_hi_s, w[0], w[1]);
}

GPU_CHECK_BODY(integers, sums_and_order) {
  const auto w = words(3);
  COMPARE(add_sat, w[0], w[1]);
  COMPARE(sub_sat, w[0], w[1]);
  COMPARE(sad_s32, w[0], w[1], w[2]);
  COMPARE(sad_u32, w[0], w[1], w[2]);
  COMPARE(min_s32, w[0], w[1]);
  COMPARE(max_u32, w[0], w[1]);
  COMPARE(abs_s32, w[0]);
}

GPU_CHECK_BODY(integers, division) {
  std::vector<u32> a, b;
  std::vector<u64> la, lb;
  const auto w = words(2);
  const auto l = long_words(2);
  for (std::size_t i = 0; i < w[0].size(); ++i) {
    if (w[1][i] == 0 || (w[0][i] == 0x80000000 && w[1][i] == ~0U)) continue;  // not specified
    a.push_back(w[0][i]);
    b.push_back(w[1][i] >> (i % 3 == 0 ? 20 : 0));
    if (b.back() == 0) b.back() = 1;
  }
  for (std::size_t i = 0; i < l[0].size(); ++i) {
    la.push_back(l[0][i]);
    lb.push_back(std::max<u64>(l[1][i] >> (i % 64), 1));
  }
  COMPARE(div_s32, a, b);
  COMPARE(rem_s32, a, b);
  COMPARE(div_u32, a, b);
  COMPARE(rem_u32, a, b);
  COMPARE(div_u64, la, lb);
  COMPARE(rem_u64, la, lb);
}

GPU_CHECK_BODY(integers, shifts) {
  const std::vector<u32> a = random_words(400, 1), b = random_words(400, 2), by = amounts(400);
  COMPARE(shl_b32, a, by);
  COMPARE(shr_u32, a, by);
  COMPARE(shr_s32, a, by);
  COMPARE(shf_l_wrap, a, b, by);
  COMPARE(shf_r_wrap, a, b, by);
  COMPARE(shf_l_clamp, a, b, by);
  COMPARE(shf_r_clamp, a, b, by);
}

GPU_CHECK_BODY(integers, bits) {
  const std::vector<u32> a = words(1)[0];
  const std::vector<u64> l = long_words(1)[0];
  COMPARE(popc, a);
  COMPARE(clz, a);
  COMPARE(brev, a);
  COMPARE(bfind_u32, a);
  COMPARE(bfind_s32, a);
  COMPARE(bfind_shiftamt, a);
  COMPARE(cnot, a);
  COMPARE(brev_64, l);
  COMPARE(popc_64, l);
  COMPARE(clz_64, l);
  std::vector<u32> nonzero = a;
  for (u32& value : nonzero)
    value = std::max(value, 1U);
  COMPARE(ffs_intrinsic, nonzero);
}

GPU_CHECK_BODY(integers, bit_fields) {
  const std::vector<u32> a = random_words(400, 3), b = random_words(400, 4);
  const std::vector<u32> position = amounts(400);
  std::vector<u32> length = amounts(400);
  std::rotate(length.begin(), length.begin() + 33, length.end());
  COMPARE(bfe_u32, a, position, length);
  COMPARE(bfe_s32, a, position, length);
  COMPARE(bfi_b32, a, b, random_words(400, 5));
  COMPARE(bfi_b32, a, b, position);
}

GPU_CHECK_BODY(integers, masks) {
  const std::vector<u32> a = random_words(400, 3), count = amounts(400);
  std::vector<u32> from = amounts(400);
  std::rotate(from.begin(), from.begin() + 17, from.end());
  COMPARE(bmsk_clamp, from, count);
  COMPARE(bmsk_wrap, from, count);
  COMPARE(szext_clamp_u32, a, count);
  COMPARE(szext_clamp_s32, a, count);
  COMPARE(szext_wrap_u32, a, count);
  COMPARE(szext_wrap_s32, a, count);
}

GPU_CHECK_BODY(integers, permuted_bytes) {
  const std::vector<u32> a = random_words(400, 6), b = random_words(400, 7);
  const std::vector<u32> select = random_words(400, 8);
  COMPARE(prmt, a, b, select);
  COMPARE(prmt_f4e, a, b, select);
  COMPARE(prmt_b4e, a, b, select);
  COMPARE(prmt_rc8, a, b, select);
  COMPARE(prmt_ecl, a, b, select);
  COMPARE(prmt_ecr, a, b, select);
  COMPARE(prmt_rc16, a, b, select);
}

GPU_CHECK_BODY(integers, three_way_logic) {
  const auto w = words(3);
  COMPARE(lop3_96, w[0], w[1], w[2]);
  COMPARE(lop3_e8, w[0], w[1], w[2]);
  COMPARE(lop3_ca, w[0], w[1], w[2]);
  COMPARE(lop3_1f, w[0], w[1], w[2]);
}

GPU_CHECK_BODY(integers, dot_products) {
  const auto w = words(3);
  COMPARE(dp4a_ss, w[0], w[1], w[2]);
  COMPARE(dp4a_uu, w[0], w[1], w[2]);
  COMPARE(dp4a_us, w[0], w[1], w[2]);
  COMPARE(dp2a_lo, w[0], w[1], w[2]);
  COMPARE(dp2a_hi, w[0], w[1], w[2]);
}

GPU_CHECK_BODY(integers, four_bytes) {
  const auto w = words(2);
  COMPARE(vadd4, w[0], w[1]);
  COMPARE(vsub4, w[0], w[1]);
  COMPARE(vaddss4, w[0], w[1]);
  COMPARE(vsubss4, w[0], w[1]);
  COMPARE(vaddus4, w[0], w[1]);
  COMPARE(vabsdiffu4, w[0], w[1]);
  COMPARE(vmaxs4, w[0], w[1]);
  COMPARE(vminu4, w[0], w[1]);
  COMPARE(vcmpne4, w[0], w[1]);
  COMPARE(vcmpgts4, w[0], w[1]);
  COMPARE(vavgu4, w[0], w[1]);
  COMPARE(vseteq4, w[0], w[1]);
}

GPU_CHECK_BODY(integers, carries) {
  const auto l = long_words(2);
  COMPARE(product_of_halves, l[0], l[1]);
  std::vector<u64> a = l[0], b = l[1];
  a.resize(a.size() / 2 * 2);
  b.resize(a.size());
  std::vector<u64> sums(a.size()), differences(a.size());
  for (std::size_t i = 0; i < a.size(); i += 2) {
    using Wide = unsigned __int128;
    const Wide x = Wide(a[i + 1]) << 64 | a[i], y = Wide(b[i + 1]) << 64 | b[i];
    sums[i] = u64(x + y);
    sums[i + 1] = u64((x + y) >> 64);
    differences[i] = u64(x - y);
    differences[i + 1] = u64((x - y) >> 64);
  }
  c.all_equal("128-bit sums", map(c, wide_sum, a, b), sums);
  c.all_equal("128-bit differences", map(c, wide_difference, a, b), differences);
}

}  // namespace gpu_check
