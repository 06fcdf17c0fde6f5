// SPDX-License-Identifier: Apache-2.0
// mma.sync, ldmatrix and cp.async against plain products and copies. Source of the layouts: PTX ISA
// manual, "Matrix Fragments for mma.m16n8k8" and "... for mma.m16n8k16 with floating point type",
// "ldmatrix" and "cp.async"; written down here without a look at the executor's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "common/rng.h"
#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::uint32_t kWarp = 32, kRows = 16, kColumns = 8, kDepthMax = 16;
constexpr std::uint32_t kSentinel = 0x5a5a5a5a;

// --- mma.sync ------------------------------------------------------------------------------------

/// Place in its matrix of element i of a thread's fragment.
struct Place {
  std::uint32_t row, column;
};
/// a0 .. a3 with k8, a0 .. a7 with k16; pairs share a register, the even one its lower half.
Place place_in_a(std::uint32_t lane, std::uint32_t i) {
  const std::uint32_t group = lane >> 2, in_group = lane % 4;
  const bool is_upper = i < 2 || (i >= 4 && i < 6);
  return {is_upper ? group : group + 8, in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
/// b0, b1 with k8, b0 .. b3 with k16.
Place place_in_b(std::uint32_t lane, std::uint32_t i) {
  const std::uint32_t group = lane >> 2, in_group = lane % 4;
  return {in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
}
/// c0 .. c3 and d0 .. d3: a register each in single precision, pairs of halves otherwise.
Place place_in_c(std::uint32_t lane, std::uint32_t i) {
  const std::uint32_t group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

struct Form {
  std::string_view text;
  std::uint32_t depth;
  bool is_bfloat, is_half_sum;
};
constexpr std::array<Form, 6> kForms{{
    {"m16n8k16.row.col.f32.f16.f16.f32", 16, false, false},
    {"m16n8k16.row.col.f16.f16.f16.f16", 16, false, true},
    {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, true, false},
    {"m16n8k8.row.col.f32.f16.f16.f32", 8, false, false},
    {"m16n8k8.row.col.f16.f16.f16.f16", 8, false, true},
    {"m16n8k8.row.col.f32.bf16.bf16.f32", 8, true, false},
}};

/// Bits of the elements: halves in a and b, halves or singles in c.
struct Matrices {
  std::array<std::array<std::uint32_t, kDepthMax>, kRows> a{};
  std::array<std::array<std::uint32_t, kColumns>, kDepthMax> b{};
  std::array<std::array<std::uint32_t, kColumns>, kRows> c{};
};
using Sums = std::array<std::array<std::uint32_t, kColumns>, kRows>;

constexpr std::uint32_t kHalfInfinity = 0x7c00, kHalfNan = 0x7fff, kFloatInfinity = 0x7f800000,
                        kFloatNan = 0x7fffffff;

/// The half that is exactly `value`: at most 11 bits, within the normal numbers or zero.
std::uint32_t half_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent) * 2048;  // 1024 .. 2047
  EXPECT_TRUE(fraction == std::floor(fraction) && exponent >= -13 && exponent <= 16) << value;
  return (value < 0 ? 0x8000U : 0U) + (static_cast<std::uint32_t>(exponent + 13) << 10) +
         static_cast<std::uint32_t>(fraction);
}
std::uint32_t float_of(double value) {
  const auto single = static_cast<float>(value);
  EXPECT_EQ(static_cast<double>(single), value);
  return std::bit_cast<std::uint32_t>(single);
}
std::uint32_t bfloat_of(double value) {
  const std::uint32_t bits = float_of(value);
  EXPECT_EQ(bits & 0xffff, 0U) << value;
  return bits >> 16;
}
std::uint32_t factor_of(const Form& form, double value) {
  return form.is_bfloat ? bfloat_of(value) : half_of(value);
}
std::uint32_t sum_of(const Form& form, double value) {
  return form.is_half_sum ? half_of(value) : float_of(value);
}

class MatrixTest : public KernelTest {
 protected:
  /// A lane's 16 words: fragments of a, b, c and d, from words 0, 4, 8 and 12 on.
  Program product(const Form& form, std::string_view guard = "") {
    const char* const parts_a = form.depth == 16 ? "%r20, %r21, %r22, %r23" : "%r20, %r21";
    const char* const parts_b = form.depth == 16 ? "%r24, %r25" : "%r24";
    const char* const parts_c = form.is_half_sum ? "%r28, %r29" : "%r28, %r29, %r30, %r31";
    const char* const parts_d = form.is_half_sum ? "%r32, %r33" : "%r32, %r33, %r34, %r35";
    return kernel(fmt::format(R"({}
	ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd3];
	ld.global.v2.u32 {{%r24, %r25}}, [%rd3+16];
	ld.global.v4.u32 {{%r28, %r29, %r30, %r31}}, [%rd3+32];
	ld.global.v4.u32 {{%r32, %r33, %r34, %r35}}, [%rd3+48];
	mma.sync.aligned.{} {{{}}}, {{{}}}, {{{}}}, {{{}}};
	st.global.v4.u32 [%rd3+48], {{%r32, %r33, %r34, %r35}};)",
                              guard, form.text, parts_d, parts_a, parts_b, parts_c),
                  "", 64);
  }

  /// Registers of the lanes; those that a form does not name hold values that would show in a sum.
  static Words fragments(const Form& form, const Matrices& m) {
    Words words(kWarp * 16, kSentinel);
    const auto put = [&](std::uint32_t lane, std::uint32_t first, std::uint32_t i,
                         std::uint32_t bits) {
      std::uint32_t& word = words[lane * 16 + first + i / 2];
      word = i % 2 == 0 ? bits : (word & 0xffff) | bits << 16;
    };
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::uint32_t i = 0; i < form.depth / 2; ++i) {
        const Place at = place_in_a(lane, i);
        put(lane, 0, i, m.a[at.row][at.column]);
      }
      for (std::uint32_t i = 0; i < form.depth / 4; ++i) {
        const Place at = place_in_b(lane, i);
        put(lane, 4, i, m.b[at.row][at.column]);
      }
      for (std::uint32_t i = 0; i < 4; ++i) {
        const Place at = place_in_c(lane, i);
        if (form.is_half_sum) {
          put(lane, 8, i, m.c[at.row][at.column]);
        } else {
          words[lane * 16 + 8 + i] = m.c[at.row][at.column];
        }
      }
    }
    return words;
  }

  Sums multiply(const Form& form, const Matrices& m) {
    const Words words = run_on(product(form), fragments(form, m));
    Sums sums{};
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::uint32_t i = 0; i < 4; ++i) {
        const Place at = place_in_c(lane, i);
        const std::uint32_t* const d = &words[lane * 16 + 12];
        sums[at.row][at.column] = form.is_half_sum ? d[i / 2] >> 16 * (i % 2) & 0xffff : d[i];
      }
      for (std::uint32_t rest = form.is_half_sum ? 2 : 4; rest < 4; ++rest)
        EXPECT_EQ(words[lane * 16 + 12 + rest], kSentinel) << "a register that no form names";
    }
    return sums;
  }
  /// The element at row 9, column 5 of a product with these factors in that row and column.
  std::uint32_t dot(const Form& form, const std::vector<std::uint32_t>& a,
                    const std::vector<std::uint32_t>& b, std::uint32_t c) {
    Matrices m;
    for (std::size_t k = 0; k < a.size(); ++k) {
      m.a[9][k] = a[k];
      m.b[k][5] = b[k];
    }
    m.c[9][5] = c;
    return multiply(form, m)[9][5];
  }
};

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, MatrixTest, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

// Small whole numbers: every sum is exact, in half precision too.
TEST_P(MatrixTest, MultipliesWholeMatrices) {
  for (const Form& form : kForms) {
    Rng rng(form.depth);
    for (int round = 0; round < 8; ++round) {
      std::array<std::array<std::int64_t, kDepthMax>, kRows> a{};
      std::array<std::array<std::int64_t, kColumns>, kDepthMax> b{};
      Matrices m;
      const auto pick = [&] { return static_cast<std::int64_t>(rng.below(21)) - 10; };
      for (std::uint32_t k = 0; k < form.depth; ++k) {
        for (std::uint32_t i = 0; i < kRows; ++i)
          m.a[i][k] = factor_of(form, static_cast<double>(a[i][k] = pick()));
        for (std::uint32_t j = 0; j < kColumns; ++j)
          m.b[k][j] = factor_of(form, static_cast<double>(b[k][j] = pick()));
      }
      Sums wanted{};
      for (std::uint32_t i = 0; i < kRows; ++i) {
        for (std::uint32_t j = 0; j < kColumns; ++j) {
          std::int64_t sum = pick() * 16;
          m.c[i][j] = sum_of(form, static_cast<double>(sum));
          for (std::uint32_t k = 0; k < form.depth; ++k)
            sum += a[i][k] * b[k][j];
          wanted[i][j] = sum_of(form, static_cast<double>(sum));
        }
      }
      EXPECT_EQ(multiply(form, m), wanted) << form.text << ", round " << round;
    }
  }
}

// One element of a and one of b at a time: nothing but its own place counts.
TEST_P(MatrixTest, EveryElementHasItsPlace) {
  for (const Form& form : kForms) {
    const Program program = product(form);
    for (std::uint32_t i = 0; i < kRows; ++i) {
      for (std::uint32_t k = 0; k < form.depth; ++k) {
        Matrices m;
        m.a[i][k] = factor_of(form, 3);
        for (std::uint32_t j = 0; j < kColumns; ++j)
          m.b[k][j] = factor_of(form, 1 + j);
        const Words words = run_on(program, fragments(form, m));
        for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
          for (std::uint32_t nth = 0; nth < 4; ++nth) {
            const Place at = place_in_c(lane, nth);
            const std::uint32_t* const d = &words[lane * 16 + 12];
            const std::uint32_t got =
                form.is_half_sum ? d[nth / 2] >> 16 * (nth % 2) & 0xffff : d[nth];
            const double wanted = at.row == i ? 3.0 * (1 + at.column) : 0.0;
            ASSERT_EQ(got, sum_of(form, wanted)) << form.text << " a[" << i << "][" << k << "]";
          }
        }
      }
    }
  }
}

TEST_P(MatrixTest, AddsIntoItsOwnRegisters) {
  const Program program = kernel(R"(
	ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];
	ld.global.v2.u32 {%r24, %r25}, [%rd3+16];
	ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3+32];
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f2, %f3, %f4};
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f2, %f3, %f4};
	st.global.v4.f32 [%rd3+48], {%f1, %f2, %f3, %f4};)",
                                 "", 64);
  Matrices m;
  for (std::uint32_t k = 0; k < kDepthMax; ++k) {
    for (std::uint32_t i = 0; i < kRows; ++i)
      m.a[i][k] = half_of(i + 1);
    for (std::uint32_t j = 0; j < kColumns; ++j)
      m.b[k][j] = half_of(j + 1);
  }
  const Words words = run_on(program, fragments(kForms[0], m));
  for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Place at = place_in_c(lane, i);
      EXPECT_EQ(words[lane * 16 + 12 + i], float_of(2 * 16 * (at.row + 1) * (at.column + 1)));
    }
  }
}

TEST_P(MatrixTest, InfinityAndNanGoThrough) {
  for (const Form& form : kForms) {
    const std::uint32_t infinity = form.is_bfloat ? 0x7f80 : kHalfInfinity;
    const std::uint32_t sign = 0x8000, one = factor_of(form, 1);
    const std::uint32_t infinite_sum = form.is_half_sum ? kHalfInfinity : kFloatInfinity;
    const std::uint32_t nan_sum = form.is_half_sum ? kHalfNan : kFloatNan;
    const std::uint32_t sum_sign = form.is_half_sum ? 0x8000 : 0x80000000;
    EXPECT_EQ(dot(form, {one, infinity}, {one, one}, 0), infinite_sum) << form.text;
    EXPECT_EQ(dot(form, {one, infinity}, {one, one | sign}, 0), infinite_sum | sum_sign);
    EXPECT_EQ(dot(form, {infinity, infinity}, {one, one | sign}, 0), nan_sum) << form.text;
    EXPECT_EQ(dot(form, {infinity}, {0}, 0), nan_sum) << form.text;
    EXPECT_EQ(dot(form, {infinity | 1}, {one}, 0), nan_sum) << "a NaN";
    EXPECT_EQ(dot(form, {one}, {infinity | 1 | sign}, 0), nan_sum) << "a negative NaN";
    EXPECT_EQ(dot(form, {one}, {one}, infinite_sum), infinite_sum) << form.text;
    EXPECT_EQ(dot(form, {infinity}, {one | sign}, infinite_sum), nan_sum) << form.text;
    EXPECT_EQ(dot(form, {one}, {one}, infinite_sum + 1), nan_sum) << form.text;
    // No other element hears of it.
    Matrices m;
    m.a[3][form.depth - 1] = infinity | 1;
    m.b[form.depth - 1].fill(one);
    const Sums sums = multiply(form, m);
    for (std::uint32_t i = 0; i < kRows; ++i)
      EXPECT_THAT(sums[i], Each(i == 3 ? nan_sum : 0U)) << form.text;
  }
}

TEST_P(MatrixTest, SubnormalFactorsCount) {
  // 2^-24 * 2^10, and the least bfloat, 2^-133, times 2^100.
  EXPECT_EQ(dot(kForms[0], {1}, {half_of(1024)}, 0), float_of(0x1p-14));
  EXPECT_EQ(dot(kForms[1], {1}, {half_of(1024)}, 0), half_of(0x1p-14));
  EXPECT_EQ(dot(kForms[2], {1}, {bfloat_of(0x1p100)}, 0), float_of(0x1p-33));
  // A sum that is a subnormal half: 3 * 2^-24.
  EXPECT_EQ(dot(kForms[1], {3}, {half_of(1)}, 0), 3U);
}

TEST_P(MatrixTest, SumsAreRoundedOnce) {
  for (const Form& form : kForms) {
    if (form.is_bfloat) continue;
    const std::uint32_t one = half_of(1), tiny = half_of(0x1p-10), small = half_of(0x1p-12);
    if (!form.is_half_sum) {
      // Each addend alone would vanish.
      EXPECT_EQ(dot(form, {one, one}, {one, one}, float_of(0x1p24)), float_of(0x1p24 + 2));
      EXPECT_EQ(dot(form, {small, small}, {small, small}, float_of(1)), float_of(1 + 0x1p-23));
      EXPECT_EQ(dot(form, {small}, {small}, float_of(1)), float_of(1)) << "a tie goes to even";
      const std::uint32_t big = half_of(65504);
      EXPECT_EQ(dot(form, {big, big}, {big, big}, 0), float_of(2 * 65504.0 * 65504.0));
      continue;
    }
    EXPECT_EQ(dot(form, {one, one}, {one, one}, half_of(2048)), half_of(2050));
    EXPECT_EQ(dot(form, {one}, {one}, half_of(2048)), half_of(2048)) << "a tie goes to even";
    EXPECT_EQ(dot(form, {one}, {one}, half_of(2050)), half_of(2052)) << "a tie goes to even";
    // 2049 + 2^-20 lies above the tie, but no single can say so.
    EXPECT_EQ(dot(form, {one, tiny}, {one, tiny}, half_of(2048)), half_of(2050));
    EXPECT_EQ(dot(form, {one, tiny | 0x8000}, {one, tiny}, half_of(2050)), half_of(2050));
    // The greatest half is 65504; from 65520 on it is infinity.
    EXPECT_EQ(dot(form, {half_of(15)}, {one}, half_of(65504)), half_of(65504));
    EXPECT_EQ(dot(form, {half_of(16)}, {one}, half_of(65504)), kHalfInfinity);
    EXPECT_EQ(dot(form, {half_of(300)}, {half_of(-300)}, 0), kHalfInfinity | 0x8000);
    EXPECT_EQ(dot(form, {half_of(300), half_of(300)}, {half_of(300), half_of(-300)}, one), one);
  }
}

TEST_P(MatrixTest, WantsAllLanesOfTheWarp) {
  const std::string guard = "setp.gt.u32 %p1, %r12, 9; @%p1 exit;";
  EXPECT_THAT(fault_of(product(kForms[0], guard), kWarp * 16), HasSubstr("lanes missing"));
  EXPECT_THAT(fault_of(kernel(guard + ".shared .align 16 .b8 s[512]; mov.u64 %rd4, s;"
                                      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%rd4];"),
                       kWarp),
              HasSubstr("lanes missing"));
}

TEST_P(MatrixTest, RefusesOtherProducts) {
  const auto refused = HasSubstr("not supported");
  EXPECT_THAT(refusal_of("mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, "
                         "{%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, %r4};"),
              refused);
  EXPECT_THAT(refusal_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, "
                         "{%r1, %r2}, {%r1, %r2}, {%r1, %r2, %r3, %r4};"),
              HasSubstr("another number of registers"));
}

// --- ldmatrix ------------------------------------------------------------------------------------

// Four matrices of 8 by 8 in rows of 16 bytes, anywhere: row r of matrix m has its own address, and
// its element c is 0x100 * (8 * m + r) + c.
class MatrixLoad : public KernelTest {
 protected:
  static constexpr std::uint32_t kSharedBytes = 2048;
  /// Lanes fill row `lane`, at the address in word 0 of their 8; word 1: the address they give.
  Program loading(std::string_view form, std::string_view registers, std::string_view operand,
                  std::string_view before = "") {
    return kernel(fmt::format(R"(
	.shared .align 16 .b8 tile[{}];
	mov.u64 %rd9, tile;
	ld.global.v2.u32 {{%r20, %r21}}, [%rd3];
	cvt.u64.u32 %rd4, %r20;
	add.u64 %rd4, %rd4, %rd9;
	mul.lo.u32 %r3, %r12, 256;
	mad.lo.u32 %r3, %r3, 65537, 65536;
	add.u32 %r4, %r3, 0x20002;
	add.u32 %r5, %r4, 0x20002;
	add.u32 %r6, %r5, 0x20002;
	st.shared.v4.u32 [%rd4], {{%r3, %r4, %r5, %r6}};
	bar.sync 0;
	cvt.u64.u32 %rd5, %r21;
	add.u64 %rd5, %rd5, %rd9;
	{}
	mov.u32 %r30, 0x5a5a5a5a; mov.u32 %r31, %r30; mov.u32 %r32, %r30; mov.u32 %r33, %r30;
	ldmatrix.sync.aligned.m8n8.{}.b16 {{{}}}, [{}];
	st.global.v4.u32 [%rd3+16], {{%r30, %r31, %r32, %r33}};)",
                              kSharedBytes, before, form, registers, operand),
                  "", 32);
  }
  /// Rows at distances of 48 bytes, in an order that mixes the matrices.
  static std::uint32_t place_of_row(std::uint32_t row) { return row * 13 % 32 * 48; }
  static Words addresses(std::uint32_t count) {
    Words words(kWarp * 8);
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      words[lane * 8] = place_of_row(lane);
      // Addresses of the other lanes do not count.
      words[lane * 8 + 1] = lane < 8 * count ? place_of_row(lane) : 0x7ffffff1 + lane;
    }
    return words;
  }
  static void expect_matrices(const Words& words, std::uint32_t count, bool is_transposed) {
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::uint32_t nth = 0; nth < 4; ++nth) {
        const auto element = [&](std::uint32_t which) {
          std::uint32_t row = lane / 4, column = lane % 4 * 2 + which;
          if (is_transposed) std::swap(row, column);
          return 0x100 * (8 * nth + row) + column;
        };
        EXPECT_EQ(words[lane * 8 + 4 + nth],
                  nth < count ? element(0) | element(1) << 16 : kSentinel)
            << "lane " << lane << ", matrix " << nth << " of " << count;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, MatrixLoad, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

constexpr std::array<std::string_view, 5> kRegisters{"", "%r30", "%r30, %r31", "",
                                                     "%r30, %r31, %r32, %r33"};

TEST_P(MatrixLoad, BringsRowsToLanes) {
  for (const std::uint32_t count : {1U, 2U, 4U}) {
    for (const bool is_transposed : {false, true}) {
      for (const std::string_view space : {".shared", ".shared::cta"}) {
        const std::string form =
            fmt::format("x{}{}{}", count, is_transposed ? ".trans" : "", space);
        const Program program = loading(form, kRegisters[count], "%rd5");
        expect_matrices(run_on(program, addresses(count)), count, is_transposed);
      }
    }
  }
}

TEST_P(MatrixLoad, TakesGenericAddressesAndOffsets) {
  const Program generic = loading("x4", kRegisters[4], "%rd5", "cvta.shared.u64 %rd5, %rd5;");
  expect_matrices(run_on(generic, addresses(4)), 4, false);
  const Program offset =
      loading("x4.shared", kRegisters[4], "%rd5+112", "sub.u64 %rd5, %rd5, 112;");
  expect_matrices(run_on(offset, addresses(4)), 4, false);
}

TEST_P(MatrixLoad, TellsWildRows) {
  const Program program = loading("x2.shared", kRegisters[2], "%rd5");
  Words words = addresses(2);
  words[13 * 8 + 1] = kSharedBytes - 8;
  EXPECT_THAT(fault_on(program, words), HasSubstr("misaligned load of 16 bytes"));
  words[13 * 8 + 1] = kSharedBytes;
  EXPECT_THAT(fault_on(program, words), AllOf(HasSubstr("out-of-bounds load of 16 bytes at 0x800:"),
                                              HasSubstr("thread (13, 0, 0)")));
  const Program generic = loading("x2", kRegisters[2], "%rd5");
  EXPECT_THAT(fault_on(generic, addresses(2)), HasSubstr("out-of-bounds load of 16 bytes at 0x0:"))
      << "an offset in shared memory is no generic address";
}

TEST_P(MatrixLoad, RefusesOtherLoads) {
  EXPECT_THAT(refusal_of(".shared .b8 s[16]; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [s];"),
              HasSubstr("another number of registers"));
  EXPECT_THAT(refusal_of(".shared .b8 s[16]; ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r1}, [s];"),
              HasSubstr("not supported"));
}

// --- cp.async ------------------------------------------------------------------------------------

// Every lane copies to its 16 bytes of shared memory, which held 0x5a before, and shows them. A
// lane has 12 words: 0 to 3 are the source, 4 the number of bytes to take, 5 and 6 the offsets to
// add to the source's and the destination's address; 8 to 11 are the result.
class AsyncCopy : public KernelTest {
 protected:
  Program copying(std::string_view instruction) {
    return kernel(fmt::format(R"(
	.shared .align 16 .b8 tile[512];
	mov.u32 %r3, 0x5a5a5a5a;
	mov.u64 %rd4, tile;
	mul.wide.u32 %rd5, %r12, 16;
	add.u64 %rd4, %rd4, %rd5;
	st.shared.v4.u32 [%rd4], {{%r3, %r3, %r3, %r3}};
	ld.global.v2.s32 {{%r4, %r5}}, [%rd3+16];
	ld.global.s32 %rd6, [%rd3+20];
	ld.global.s32 %rd7, [%rd3+24];
	add.u64 %rd6, %rd6, %rd3;
	add.u64 %rd7, %rd7, %rd4;
	setp.lt.u32 %p1, %r12, %r2;
	{}
	cp.async.commit_group;
	cp.async.wait_group 0;
	cp.async.wait_all;
	bar.sync 0;
	ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd4];
	st.global.v4.u32 [%rd3+32], {{%r20, %r21, %r22, %r23}};)",
                              instruction),
                  "", 48);
  }
  static Words sources() {
    Words words(kWarp * 12);
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
      for (std::uint32_t i = 0; i < 4; ++i)
        words[lane * 12 + i] = 0x04030201 * (i + 1) + (lane << 24);
    }
    return words;
  }
  static std::uint8_t byte_of(const Words& words, std::uint32_t lane, std::uint32_t word,
                              std::uint32_t nth) {
    return static_cast<std::uint8_t>(words[lane * 12 + word + nth / 4] >> nth % 4 * 8);
  }
  /// Out of `bytes` bytes, the first `taken` come from the source, the others are zero.
  static void expect_copied(const Words& words, std::uint32_t lane, std::uint32_t bytes,
                            std::uint32_t taken) {
    for (std::uint32_t nth = 0; nth < 16; ++nth) {
      const std::uint8_t wanted = nth >= bytes  ? 0x5a
                                  : nth < taken ? byte_of(words, lane, 0, nth)
                                                : 0;
      EXPECT_EQ(byte_of(words, lane, 8, nth), wanted)
          << "byte " << nth << " of " << bytes << ", " << taken << " taken, lane " << lane;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, AsyncCopy, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

TEST_P(AsyncCopy, CopiesAllSizes) {
  for (const std::string_view form : {"ca.shared.global", "cg.shared.global",
                                      "ca.shared::cta.global", "ca.shared.global.L2::128B"}) {
    for (const std::uint32_t bytes : {4U, 8U, 16U}) {
      if (form.starts_with("cg") && bytes != 16) continue;
      const Program program = copying(fmt::format("cp.async.{} [%rd7], [%rd6], {};", form, bytes));
      const Words words = run_on(program, sources());
      for (std::uint32_t lane = 0; lane < kWarp; ++lane)
        expect_copied(words, lane, bytes, bytes);
    }
  }
}

TEST_P(AsyncCopy, CopiesWithOffsetsAndForSomeLanes) {
  const Program program = copying(
      "add.u64 %rd7, %rd7, -64; sub.u64 %rd6, %rd6, -32;"
      "@%p1 cp.async.ca.shared.global [%rd7+64], [%rd6+-32], 8;");
  const Words words = run_on(program, sources(), 11);
  for (std::uint32_t lane = 0; lane < kWarp; ++lane)
    expect_copied(words, lane, lane < 11 ? 8 : 0, 8);
}

TEST_P(AsyncCopy, TakesNoPolicyForALength) {
  for (const std::uint32_t taken : {2U, 8U}) {
    const std::string_view form = "cp.async.ca.shared.global.L2::cache_hint";
    const std::string length = taken == 8 ? "" : " 2,";
    const Program program =
        copying(fmt::format("mov.u64 %rd8, 5; {} [%rd7], [%rd6], 8,{} %rd8;", form, length));
    const Words words = run_on(program, sources());
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      expect_copied(words, lane, 8, taken);
  }
}

TEST_P(AsyncCopy, FillsWithZerosWhatItDoesNotTake) {
  for (const std::uint32_t bytes : {4U, 8U, 16U}) {
    Words words = sources();
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      words[lane * 12 + 4] = lane % (bytes + 1);
    const Program each =
        copying(fmt::format("cp.async.ca.shared.global [%rd7], [%rd6], {}, %r4;", bytes));
    words = run_on(each, words);
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      expect_copied(words, lane, bytes, lane % (bytes + 1));
    const Program three =
        copying(fmt::format("cp.async.ca.shared.global [%rd7], [%rd6], {}, 3;", bytes));
    words = run_on(three, sources());
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      expect_copied(words, lane, bytes, 3);
  }
}

TEST_P(AsyncCopy, TellsWildAddresses) {
  constexpr std::uint32_t kSource = 5, kDestination = 6, kBad = 21;
  const Program program = copying("cp.async.cg.shared.global [%rd7], [%rd6], 16;");
  const auto fault = [&](std::uint32_t which, std::uint32_t shift) {
    Words words = sources();
    words[kBad * 12 + which] = shift;
    return fault_on(program, words);
  };
  const auto there = HasSubstr("thread (21, 0, 0)");
  EXPECT_THAT(fault(kSource, 1 << 20), AllOf(HasSubstr("out-of-bounds load of 16 bytes"), there));
  EXPECT_THAT(fault(kSource, 4), AllOf(HasSubstr("misaligned load of 16 bytes"), there));
  EXPECT_THAT(fault(kDestination, 512), AllOf(HasSubstr("out-of-bounds store of 16 bytes"), there));
  EXPECT_THAT(fault(kDestination, 8), AllOf(HasSubstr("misaligned store of 16 bytes"), there));
}

// At the edge of an array: what is not taken need not be there.
TEST_P(AsyncCopy, ReadsOnlyWhatItTakes) {
  const Program program = copying("cp.async.cg.shared.global [%rd7], [%rd6], 16, %r4;");
  constexpr std::uint32_t kLast = kWarp - 1, kLeft = 12;
  for (std::uint32_t taken = 0; taken <= 16; ++taken) {
    Words words = sources();
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
      words[lane * 12 + 4] = lane == kLast ? taken : 16;
    words[kLast * 12 + 5] = 48;  // behind the lanes' words there are 12 bytes more
    words.insert(words.end(), {0x84838281, 0x88878685, 0x8c8b8a89});
    if (taken > kLeft) {
      EXPECT_THAT(fault_on(program, words), HasSubstr("out-of-bounds load")) << taken << " taken";
      continue;
    }
    words = run_on(program, words);
    for (std::uint32_t nth = 0; nth < 16; ++nth)
      EXPECT_EQ(byte_of(words, kLast, 8, nth), nth < taken ? 0x81 + nth : 0) << taken << " taken";
    words[kLast * 12 + 5] = 50;
    const std::string fault = fault_on(program, words);
    EXPECT_EQ(fault.starts_with("misaligned load"), taken != 0) << fault;
  }
  Words words = sources();
  words[3 * 12 + 5] = 1 << 20;  // nothing is taken from there
  words = run_on(copying("cp.async.cg.shared.global [%rd7], [%rd6], 16, 0;"), words);
  expect_copied(words, 3, 16, 0);
}

TEST_P(AsyncCopy, RefusesOtherCopies) {
  const std::string begin = ".shared .align 16 .b8 s[16]; .reg .b64 %rd1; .reg .pred %p;";
  EXPECT_THAT(refusal_of(begin + "cp.async.ca.shared.global [s], [%rd1], 12;"),
              HasSubstr("expected 4, 8 or 16 bytes"));
  EXPECT_THAT(refusal_of(begin + "cp.async.cg.shared.global [s], [%rd1], 8;"),
              HasSubstr("expected 16 bytes"));
  EXPECT_THAT(refusal_of(begin + "cp.async.ca.shared.global [s], [%rd1], 8, %p;"),
              HasSubstr("a predicate as a value"));
  EXPECT_NE(refusal_of(begin + "cp.async.bulk.shared::cta.global [s], [%rd1], 16;"), "");
}

}  // namespace
}  // namespace kansoku::gpu::exec
