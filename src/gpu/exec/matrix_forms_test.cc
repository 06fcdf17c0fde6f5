// SPDX-License-Identifier: Apache-2.0
// Every row of the table of matrix products against plain products, and against itself broken.
// Source of the layouts of mma: PTX ISA manual, "Matrix Fragments for mma.m8n8k16", "m16n8k4",
// "m16n8k8", "m16n8k16" and "m16n8k32", written down here without a look at the executor's. Which
// lane of wmma holds which element is open; what its loads, products and stores do to memory is
// not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "gpu/exec/internal/decode/matrix_table.h"
#include "gpu/exec/internal/warp.h"
#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kFormLanes = 32, kWordsOfLane = 16;

/// Facts in the name of a row.
struct FormFacts {
  std::string name;
  bool is_wmma{false}, saturates{false};
  std::string shape, d, a, b, c;
  std::uint32_t rows{0}, columns{0}, depth{0};
};

FormFacts form_of(const std::string& name) {
  FormFacts form;
  form.name = name;
  std::vector<std::string> words;
  std::istringstream parts(name);
  for (std::string word; std::getline(parts, word, '.');) {
    if (word == "satfinite") {
      form.saturates = true;
    } else {
      words.push_back(word);
    }
  }
  form.is_wmma = words[0] == "wmma";
  form.shape = words[1];
  form.d = words[2];
  form.c = words.back();
  const bool names_factors = words.size() == 6;
  form.a = names_factors ? words[3] : "f16";
  form.b = names_factors ? words[4] : "f16";
  EXPECT_EQ(std::sscanf(form.shape.c_str(), "m%un%uk%u", &form.rows, &form.columns, &form.depth),
            3);
  return form;
}

std::uint32_t bits_of(const std::string& type) {
  return type.ends_with("8") ? 8 : type.ends_with("16") ? 16 : 32;
}

/// The bits of a small whole number; exact in each type.
std::uint32_t encoded(const std::string& type, std::int64_t value) {
  if (type == "s8" || type == "u8") return static_cast<std::uint32_t>(value) & 0xff;
  if (type == "s32") return static_cast<std::uint32_t>(value);
  const std::uint32_t single = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (type == "tf32") return single | 0x1555;  // its last 13 bits do not count
  if (type == "bf16") return single >> 16;
  if (type != "f16") return single;
  if (value == 0) return 0;
  return (single >> 16 & 0x8000) | ((single & 0x7fffffff) - 0x38000000) >> 13;
}

struct Matrix {
  std::uint32_t columns{0};
  std::vector<std::int64_t> values;
  Matrix() = default;
  Matrix(std::uint32_t rows, std::uint32_t its_columns)
      : columns(its_columns), values(std::size_t{rows} * its_columns) {}
  std::int64_t& at(std::uint32_t row, std::uint32_t column) {
    return values[std::size_t{row} * columns + column];
  }
};

/// Inputs and expected results.
struct Example {
  Matrix a, b, c, d;
  Example(const FormFacts& form, std::uint64_t seed)
      : a(form.rows, form.depth), b(form.depth, form.columns), c(form.rows, form.columns), d(c) {
    Rng rng(seed);
    const auto pick = [&rng](const std::string& type) {
      if (type == "s8") return static_cast<std::int64_t>(rng.below(256)) - 128;
      if (type == "u8") return static_cast<std::int64_t>(rng.below(256));
      return static_cast<std::int64_t>(rng.below(21)) - 10;
    };
    for (std::int64_t& value : a.values)
      value = pick(form.a);
    for (std::int64_t& value : b.values)
      value = pick(form.b);
    constexpr std::int64_t kMost = 0x7fffffff;
    for (std::int64_t& value : c.values) {
      value = pick("") * 16;
      if (form.c == "s32")
        value += rng.below(3) == 0 ? kMost - 160 : rng.below(2) == 0 ? 160 - kMost : 0;
    }
    for (std::uint32_t i = 0; i < form.rows; ++i) {
      for (std::uint32_t j = 0; j < form.columns; ++j) {
        std::int64_t sum = c.at(i, j);
        for (std::uint32_t k = 0; k < form.depth; ++k)
          sum += a.at(i, k) * b.at(k, j);
        d.at(i, j) = form.saturates ? std::clamp(sum, -kMost - 1, kMost) : sum;
      }
    }
  }
};

/// Place of element i in a lane's fragment.
struct FormPlace {
  std::uint32_t row, column;
};
FormPlace form_place_in_a(const FormFacts& form, std::uint32_t lane, std::uint32_t i) {
  const std::uint32_t group = lane >> 2, in_group = lane % 4;
  switch (bits_of(form.a)) {
    case 32:  // k4: a0, a1; k8: a0 .. a3
      return {i % 2 == 0 ? group : group + 8, i < 2 ? in_group : in_group + 4};
    case 16: {  // k8: a0 .. a3; k16: a0 .. a7
      const bool is_upper = i < 2 || (i >= 4 && i < 6);
      return {is_upper ? group : group + 8, in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
    }
    default: {  // a0 .. a3; a0 .. a7; a0 .. a15
      const bool is_upper = i < 4 || (i >= 8 && i < 12);
      return {is_upper ? group : group + 8, in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
    }
  }
}
FormPlace form_place_in_b(const FormFacts& form, std::uint32_t lane, std::uint32_t i) {
  const std::uint32_t group = lane >> 2, in_group = lane % 4;
  switch (bits_of(form.b)) {
    case 32:
      return {in_group + (i == 1 ? 4 : 0), group};
    case 16:
      return {in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
    default:
      return {in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0), group};
  }
}
FormPlace form_place_in_c(std::uint32_t lane, std::uint32_t i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}

std::string registers(char letter, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{}%{}{}", i == 0 ? "" : ", ", letter, i);
  return "{" + text + "}";
}
constexpr std::string_view kDeclarations = ".reg .b32 %a<8>, %b<8>, %c<8>, %d<8>;\n";

/// How wmma finds its matrices in memory.
struct Way {
  bool is_a_by_rows{true}, is_b_by_rows{false}, is_c_by_rows{true};
  enum class Stride { kDense, kConstant, kRegister } stride{Stride::kConstant};
  std::string_view space{".global"};
};

class MatrixForms : public KernelTest {
 protected:
  const MatrixForm& row_of(const FormFacts& form) {
    const MatrixForm* const row = find_matrix_form(GetParam(), form.name);
    EXPECT_NE(row, nullptr) << form.name;
    return *row;
  }

  /// A lane's 16 words: a, b, c, d from words 0, 4, 8, 12 on.
  std::string mma_text(const FormFacts& form) {
    const auto& words = row_of(form).words;
    return fmt::format(
        R"({}
	ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd3];
	ld.global.v2.b32 {{%b0, %b1}}, [%rd3+16];
	ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%rd3+32];
	ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%rd3+48];
	mma.sync.aligned.{}.row.col{}.{}.{}.{}.{} {}, {}, {}, {};
	st.global.v4.b32 [%rd3+48], {{%d0, %d1, %d2, %d3}};)",
        kDeclarations, form.shape, form.saturates ? ".satfinite" : "", form.d, form.a, form.b,
        form.c, registers('d', words[0]), registers('a', words[1]), registers('b', words[2]),
        registers('c', words[3]));
  }

  /// Empty, or what is wrong with a product.
  std::string judge_mma(const FormFacts& form, std::uint64_t seed) {
    Example example(form, seed);
    Words words(kFormLanes * kWordsOfLane, 0x5a5a5a5a);
    const auto put = [&](std::uint32_t lane, std::uint32_t first, std::uint32_t i,
                         const std::string& type, std::int64_t value) {
      const std::uint32_t bits = bits_of(type), per_word = 32 / bits;
      std::uint32_t& word = words[lane * kWordsOfLane + first + i / per_word];
      const std::uint32_t shift = i % per_word * bits;
      const std::uint32_t mask = bits == 32 ? ~0U : (1U << bits) - 1;
      word = (word & ~(mask << shift)) | encoded(type, value) << shift;
    };
    const std::uint32_t sums = form.rows * form.columns / kFormLanes;
    for (std::uint32_t lane = 0; lane < kFormLanes; ++lane) {
      for (std::uint32_t i = 0; i < form.rows * form.depth / kFormLanes; ++i) {
        const FormPlace at = form_place_in_a(form, lane, i);
        put(lane, 0, i, form.a, example.a.at(at.row, at.column));
      }
      for (std::uint32_t i = 0; i < form.depth * form.columns / kFormLanes; ++i) {
        const FormPlace at = form_place_in_b(form, lane, i);
        put(lane, 4, i, form.b, example.b.at(at.row, at.column));
      }
      for (std::uint32_t i = 0; i < sums; ++i) {
        const FormPlace at = form_place_in_c(lane, i);
        put(lane, 8, i, form.c, example.c.at(at.row, at.column));
      }
    }
    Words wanted = words;
    std::swap(words, wanted);
    for (std::uint32_t lane = 0; lane < kFormLanes; ++lane) {
      for (std::uint32_t i = 0; i < sums; ++i) {
        const FormPlace at = form_place_in_c(lane, i);
        put(lane, 12, i, form.d, example.d.at(at.row, at.column));
      }
    }
    std::swap(words, wanted);
    const Words got = run_on(kernel(mma_text(form), "", kWordsOfLane * 4), words);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != wanted[i])
        return fmt::format("{}: lane {}, word {}: 0x{:x}, not 0x{:x}", form.name, i / kWordsOfLane,
                           i % kWordsOfLane, got[i], wanted[i]);
    }
    return "";
  }

  // --- wmma: a, b, c and d in memory, at these bytes
  // -----------------------------------------------
  static constexpr std::uint32_t kBytes = 4 * 8192;

  static std::uint32_t stride_of(const Way& way, bool is_by_rows, std::uint32_t rows,
                                 std::uint32_t columns) {
    return (is_by_rows ? columns : rows) + (way.stride == Way::Stride::kDense ? 0 : 8);
  }

  std::string wmma_text(const FormFacts& form, const Way& way) {
    const auto& words = row_of(form).words;
    const bool is_shared = way.space == ".shared";
    std::string text(kDeclarations);
    text += fmt::format(".shared .align 32 .b8 tiles[{}];\n.reg .b64 %q, %p;\n", kBytes);
    text += is_shared ? "mov.u64 %q, tiles;\n" : "mov.u64 %q, %rd1;\n";
    const auto copy = [](std::string_view label, bool is_in) {
      return fmt::format(
          "mul.lo.u32 %r20, %r12, 4;\n{0}:\ncvt.u64.u32 %rd8, %r20;\nadd.u64 %rd9, %rd8, %rd1;\n"
          "add.u64 %rd8, %rd8, %q;\n{1}add.u32 %r20, %r20, 128;\nsetp.lt.u32 %p1, %r20, {2};\n"
          "@%p1 bra {0};\nbar.sync 0;\n",
          label,
          is_in ? "ld.global.u32 %r21, [%rd9];\nst.shared.u32 [%rd8], %r21;\n"
                : "ld.shared.u32 %r21, [%rd8];\nst.global.u32 [%rd9], %r21;\n",
          kBytes);
    };
    if (is_shared) text += copy("IN", true);
    const auto access = [&](std::string_view op, int place, bool is_by_rows, std::uint32_t rows,
                            std::uint32_t columns, const std::string& type, std::string_view list) {
      std::string stride;
      const std::uint32_t distance = stride_of(way, is_by_rows, rows, columns);
      if (way.stride == Way::Stride::kConstant) stride = fmt::format(", {}", distance);
      if (way.stride == Way::Stride::kRegister) {
        text += fmt::format("add.u32 %r30, %r2, {};\n", distance);  // n is 0
        stride = ", %r30";
      }
      const bool is_store = op.starts_with("store");
      const std::string address = fmt::format("[%q+{}]", place * 8192);
      text += fmt::format("wmma.{}.sync.aligned.{}.{}{}.{} {}, {}{};\n", op,
                          is_by_rows ? "row" : "col", form.shape, way.space, type,
                          is_store ? address : list, is_store ? list : address, stride);
    };
    access("load.a", 0, way.is_a_by_rows, form.rows, form.depth, form.a, registers('a', words[1]));
    access("load.b", 1, way.is_b_by_rows, form.depth, form.columns, form.b,
           registers('b', words[2]));
    access("load.c", 2, way.is_c_by_rows, form.rows, form.columns, form.c,
           registers('c', words[3]));
    const bool names_factors = form.a != "f16";
    text +=
        fmt::format("wmma.mma.sync.aligned.{}.{}.{}.{}{}.{}{} {}, {}, {}, {};\n",
                    way.is_a_by_rows ? "row" : "col", way.is_b_by_rows ? "row" : "col", form.shape,
                    form.d, names_factors ? "." + form.a + "." + form.b : "", form.c,
                    form.saturates ? ".satfinite" : "", registers('d', words[0]),
                    registers('a', words[1]), registers('b', words[2]), registers('c', words[3]));
    access("store.d", 3, way.is_c_by_rows, form.rows, form.columns, form.d,
           registers('d', words[0]));
    if (is_shared) text += "bar.sync 0;\n" + copy("OUT", false);
    return text;
  }

  static void lay(Words& memory, std::uint32_t place, Matrix& matrix, bool is_by_rows,
                  std::uint32_t stride, const std::string& type) {
    const std::uint32_t bits = bits_of(type), per_word = 32 / bits;
    for (std::uint32_t at = 0; at < matrix.values.size(); ++at) {
      const std::uint32_t row = at / matrix.columns, column = at % matrix.columns;
      const std::uint32_t index = is_by_rows ? row * stride + column : column * stride + row;
      std::uint32_t& word = memory[place * 2048 + index / per_word];
      const std::uint32_t shift = index % per_word * bits;
      const std::uint32_t mask = bits == 32 ? ~0U : (1U << bits) - 1;
      word = (word & ~(mask << shift)) | encoded(type, matrix.values[at]) << shift;
    }
  }

  std::string judge_wmma(const FormFacts& form, std::uint64_t seed, const Way& way) {
    Example example(form, seed);
    Words memory(kBytes / 4, 0x5a5a5a5a);
    const auto put = [&](Words& words, std::uint32_t place, Matrix& matrix, bool is_by_rows,
                         const std::string& type) {
      const auto rows = static_cast<std::uint32_t>(matrix.values.size() / matrix.columns);
      lay(words, place, matrix, is_by_rows, stride_of(way, is_by_rows, rows, matrix.columns), type);
    };
    put(memory, 0, example.a, way.is_a_by_rows, form.a);
    put(memory, 1, example.b, way.is_b_by_rows, form.b);
    put(memory, 2, example.c, way.is_c_by_rows, form.c);
    Words wanted = memory;
    put(wanted, 3, example.d, way.is_c_by_rows, form.d);
    const Words got = run_on(kernel(wmma_text(form, way), "", 0), memory);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != wanted[i])
        return fmt::format("{}: matrix {}, word {}: 0x{:x}, not 0x{:x}", form.name, i / 2048,
                           i % 2048, got[i], wanted[i]);
    }
    return "";
  }

  std::string judge(const FormFacts& form, std::uint64_t seed) {
    return form.is_wmma ? judge_wmma(form, seed, {}) : judge_mma(form, seed);
  }
};

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, MatrixForms, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

TEST_P(MatrixForms, MultiplyWholeMatrices) {
  ASSERT_GT(matrix_forms(GetParam()).size(), 50U);
  for (const MatrixForm& row : matrix_forms(GetParam())) {
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      EXPECT_EQ(judge(form_of(row.name), seed), "");
  }
}

TEST_P(MatrixForms, TilesLieInMemoryAsTheProgramSays) {
  for (const std::string_view name : {"wmma.m16n16k16.f32.f32", "wmma.m8n32k16.f16.f32",
                                      "wmma.m32n8k16.f32.f16", "wmma.m8n32k16.s32.s8.s8.s32"}) {
    for (std::uint32_t layout = 0; layout < 8; ++layout) {
      Way way{(layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0};
      for (const auto stride :
           {Way::Stride::kDense, Way::Stride::kConstant, Way::Stride::kRegister}) {
        way.stride = stride;
        way.space = layout % 3 == 0 ? "" : layout % 3 == 1 ? ".shared" : ".global";
        EXPECT_EQ(judge_wmma(form_of(std::string(name)), layout, way), "") << "layout " << layout;
      }
    }
  }
}

/// The row that is broken now: a product is a plain function.
struct BrokenProduct {
  MatrixProduct original{nullptr};
};
BrokenProduct& broken_product() {
  static BrokenProduct row;
  return row;
}
void flip_one_element(Warp& warp, const MatrixSlots& slots) {
  broken_product().original(warp, slots);
  constexpr std::size_t kLane = 13;
  warp.lanes[std::size_t{slots.d[0]} * kSlotBytes + 4 * kLane + 1] ^= std::byte{1};
}
void multiply_nothing(Warp&, const MatrixSlots&) {}

// A judge that no wrong product can make red judges nothing.
TEST_P(MatrixForms, ABrokenRowIsSeen) {
  std::vector<std::string> survivors;
  for (const MatrixForm& row : matrix_forms(GetParam())) {
    const FormFacts form = form_of(row.name);
    MatrixForm& place = matrix_form_for_test(GetParam(), row.name);
    for (const MatrixProduct wrong : {flip_one_element, multiply_nothing}) {
      broken_product().original = std::exchange(place.run, wrong);
      if (judge(form, 1).empty()) survivors.push_back(row.name);
      place.run = broken_product().original;
    }
  }
  EXPECT_THAT(survivors, IsEmpty());
}

TEST_P(MatrixForms, BytesWrapUnlessTheySaturate) {
  const FormFacts plain = form_of("mma.m16n8k32.s32.u8.u8.s32");
  const FormFacts saturating = form_of("mma.m16n8k32.satfinite.s32.u8.u8.s32");
  Words words(kFormLanes * kWordsOfLane);
  for (std::uint32_t lane = 0; lane < kFormLanes; ++lane) {
    for (std::uint32_t i = 0; i < 6; ++i)
      words[lane * kWordsOfLane + i] = 0xffffffff;
    for (std::uint32_t i = 8; i < 12; ++i)
      words[lane * kWordsOfLane + i] = 0x7fffffff;
  }
  const std::uint32_t more = 32 * 255 * 255;
  EXPECT_EQ(run_on(kernel(mma_text(plain), "", 64), words)[12], 0x7fffffff + more);
  EXPECT_EQ(run_on(kernel(mma_text(saturating), "", 64), words)[12], 0x7fffffffU);
}

TEST_P(MatrixForms, TransposesEightByEight) {
  const Program program = kernel(R"(
	ld.global.u32 %r20, [%rd3];
	movmatrix.sync.aligned.m8n8.trans.b16 %r21, %r20;
	st.global.u32 [%rd3+4], %r21;)",
                                 "", 8);
  const auto element = [](std::uint32_t row, std::uint32_t column) {
    return 0x1000 * row + column + 1;
  };
  Words words(kFormLanes * 2);
  for (std::uint32_t lane = 0; lane < kFormLanes; ++lane) {
    words[lane * 2] = element(lane / 4, lane % 4 * 2) | element(lane / 4, lane % 4 * 2 + 1) << 16;
  }
  const Words got = run_on(program, words);
  for (std::uint32_t lane = 0; lane < kFormLanes; ++lane) {
    EXPECT_EQ(got[lane * 2 + 1],
              element(lane % 4 * 2, lane / 4) | element(lane % 4 * 2 + 1, lane / 4) << 16);
  }
}

TEST_P(MatrixForms, TellsWildTiles) {
  const FormFacts form = form_of("wmma.m16n16k16.f32.f32");
  Way way;
  way.space = ".shared";
  // The stride comes from the caller: n rows of 8 KiB lie outside of shared memory.
  way.stride = Way::Stride::kRegister;
  EXPECT_THAT(fault_on(kernel(wmma_text(form, way), "", 0), Words(kBytes / 4), 8192),
              HasSubstr("out-of-bounds load of 2 bytes"));
}

TEST_P(MatrixForms, RefusesOthersByName) {
  for (const std::string_view text :
       {"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1, %r2}, {%r1}, {%r1}, {%r1, %r2}",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1}",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1}, {%r1}, {%r1}, {%r1}",
        "wmma.load.a.sync.aligned.row.m16n16k8.tf32 {%r1}, [%rd1]",
        "wmma.load.a.sync.aligned.row.m16n16k16.f32 {%r1}, [%rd1]",
        "wmma.load.c.sync.aligned.row.m16n16k16.s8 {%r1}, [%rd1]",
        "movmatrix.sync.aligned.m8n8.b16 %r1, %r2"}) {
    const std::string refusal = refusal_of(fmt::format(".reg .b64 %rd<2>; {};", text));
    EXPECT_THAT(refusal, HasSubstr(text.substr(0, text.find(' ')))) << text;
    EXPECT_THAT(refusal, HasSubstr("not supported"));
  }
  EXPECT_THAT(refusal_of(".reg .b64 %rd<2>; wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, "
                         "[%rd1], 16;"),
              HasSubstr("another number of registers"));
}

}  // namespace
}  // namespace kansoku::gpu::exec
