// SPDX-License-Identifier: Apache-2.0
// Addresses of functions, in variables and registers, and calls of what they name; and functions
// with more registers than a frame has room for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/exec/internal/decode/register_slots.h"
#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class IndirectCall : public KernelTest {
 protected:
  static constexpr std::string_view kFunctions = R"(
.func (.param .b32 r) twice(.param .b32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	add.u32 %r2, %r1, %r1;
	st.param.b32 [r], %r2;
	ret;
}
.func (.param .b32 r) square(.param .b32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	mul.lo.u32 %r2, %r1, %r1;
	st.param.b32 [r], %r2;
	ret;
}
.func other(.param .b64 x) { ret; }
.func (.param .b32 r) unknown(.param .b32 x) { wgmma.fence.sync.aligned; ret; }
.global .align 8 .u64 table[5] = {twice, generic(square), other, unknown, 0};
)";
  /// Calls what `target` leaves in %rd7 with %r20 and adds the result to the thread's place.
  Program calling(std::string_view target) {
    return kernel(fmt::format(R"(
	add.u32 %r20, %r1, 3;
	{0}
	{{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], %r20;
	prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
	call (b), %rd7, (a), prototype_0;
	ld.param.b32 %r21, [b];
	}}
	st.global.u32 [%rd3], %r21;)",
                              target),
                  kFunctions);
  }
};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, IndirectCall, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

TEST_P(IndirectCall, TheRegisterSaysWhom) {
  Words words = run(calling("mov.u64 %rd7, square;"), 32);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(words[i], (i + 3) * (i + 3));
  words = run(calling("ld.global.u64 %rd7, [table];"), 32);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(words[i], 2 * (i + 3));
}

TEST_P(IndirectCall, EachLaneMayCallAnother) {
  const Words words = run(calling("and.b32 %r22, %r1, 1; mul.wide.u32 %rd5, %r22, 8;"
                                  "mov.u64 %rd6, table; add.u64 %rd6, %rd6, %rd5;"
                                  "ld.global.u64 %rd7, [%rd6];"),
                          32);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(words[i], i % 2 == 0 ? 2 * (i + 3) : (i + 3) * (i + 3)) << i;
}

TEST_P(IndirectCall, TellsWhatIsNoSuchFunction) {
  const auto is_told = HasSubstr("call of no function of this kind");
  for (const std::string_view target :
       {"ld.global.u64 %rd7, [table+16];", "ld.global.u64 %rd7, [table+24];",
        "ld.global.u64 %rd7, [table+32];", "mov.u64 %rd7, 12345;", "mov.u64 %rd7, table;",
        "mov.u64 %rd7, square; add.u64 %rd7, %rd7, 1;"})
    EXPECT_THAT(fault_of(calling(target), 32), is_told) << target;
}

TEST_P(IndirectCall, TargetsMayBeListed) {
  const Program program = kernel(R"(
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], 9;
	mov.u64 %rd7, square;
	targets : .calltargets twice, square;
	call (b), %rd7, (a), targets;
	ld.param.b32 %r21, [b];
	}
	st.global.u32 [%rd3], %r21;)",
                                 kFunctions);
  EXPECT_THAT(run(program, 32), Each(81U));
}

// --- registers -----------------------------------------------------------------------------------

class ManyRegisters : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, ManyRegisters, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

// 60,000 registers of both widths, a few in use at a time, in a loop and in ways that part.
TEST_P(ManyRegisters, ThoseThatDoNotMeetShareASlot) {
  constexpr std::uint32_t kSteps = 20'000;
  std::string body =
      ".reg .b32 %x<20001>; .reg .b64 %y<20001>; .reg .b32 %z<20001>;\n"
      "mov.u32 %x0, %r1;\nmov.u32 %r20, 0;\nLOOP:\n";
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    if (i % 1000 == 500) {
      body += fmt::format(
          "and.b32 %z{0}, %r1, 1;\nsetp.ne.u32 %p1, %z{0}, 0;\n@%p1 bra ODD{0};\n"
          "mul.lo.u32 %x{1}, %x{0}, 3;\nbra OVER{0};\nODD{0}:\nadd.u32 %x{1}, %x{0}, "
          "77;\nOVER{0}:\n",
          i, i + 1);
      continue;
    }
    body += fmt::format(
        "cvt.u64.u32 %y{0}, %x{0};\nadd.u64 %y{0}, %y{0}, {2};\ncvt.u32.u64 %x{1}, %y{0};\n", i,
        i + 1, i % 100);
  }
  body += fmt::format(
      "mov.u32 %x0, %x{};\nadd.u32 %r20, %r20, 1;\nsetp.lt.u32 %p2, %r20, 2;\n@%p2 bra LOOP;\n"
      "st.global.u32 [%rd3], %x0;\n",
      kSteps);
  const Program program = kernel(body);
  const auto found = program.find_kernel("k");
  ASSERT_TRUE(found) << found.error().what;
  const Words words = run(program, 32);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    std::uint32_t x = lane;
    for (int round = 0; round < 2; ++round) {
      for (std::uint32_t i = 0; i < kSteps; ++i)
        x = i % 1000 != 500 ? x + i % 100 : lane % 2 != 0 ? x + 77 : x * 3;
    }
    EXPECT_EQ(words[lane], x) << "lane " << lane;
  }
}

TEST_P(ManyRegisters, ThoseThatMeetDoNot) {
  std::string body = ".reg .b32 %x<300>;\n";
  for (std::uint32_t i = 0; i < 300; ++i)
    body += fmt::format("add.u32 %x{0}, %r12, {0};\n", i);
  body += "mov.u32 %r20, 0;\n";
  for (std::uint32_t i = 0; i < 300; ++i)
    body += fmt::format("mad.lo.u32 %r20, %r20, 3, %x{};\n", i);
  const Words words = run(kernel(body + "st.global.u32 [%rd3], %r20;"), 32);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < 300; ++i)
      sum = sum * 3 + lane + i;
    EXPECT_EQ(words[lane], sum);
  }
  body = ".reg .b64 %x<9000>;\n";
  std::string sums;
  for (std::uint32_t i = 0; i < 9000; ++i) {
    body += fmt::format("ld.global.u64 %x{0}, [%rd1];\n", i);
    sums += fmt::format("add.u64 %rd5, %rd5, %x{0};\n", i);
  }
  const Program program =
      kernel(body + "mov.u64 %rd5, 0;\n" + sums + "st.global.u64 [%rd1], %rd5;");
  EXPECT_THAT(program.kernels()[0].refusal,
              AllOf(HasSubstr("more than 16383 registers at once"), HasSubstr("k takes")));
}

}  // namespace
}  // namespace kansoku::gpu::exec
