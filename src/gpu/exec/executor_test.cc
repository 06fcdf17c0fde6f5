// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/executor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A clock that goes on by a millisecond whenever somebody looks.
class HastyClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override {
    now_ += std::chrono::milliseconds{1};
    return now_;
  }

 private:
  mutable BootTime now_{};
};

class ExecutorTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, ExecutorTest, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

TEST_P(ExecutorTest, EveryThreadHasItsIndex) {
  const Program program = kernel(
      "setp.ge.u32 %p1, %r1, %r2; @%p1 bra END;\n"
      "st.global.u32 [%rd3], %r1;\nEND:");
  options_.grid = {5, 1, 1};
  options_.block = {48, 1, 1};  // half a warp at the end of each block
  const auto values = run(program, 240, 201);
  for (std::uint32_t i = 0; i < 240; ++i)
    EXPECT_EQ(values[i], i < 201 ? i : 0) << i;
}

TEST_P(ExecutorTest, NarrowBlocksHaveRowsInAWarp) {
  const Program program = kernel(R"(
	mov.u32 %r13, %tid.y;
	mov.u32 %r14, %tid.z;
	mad.lo.u32 %r15, %r13, %r11, %r12;
	mov.u32 %r16, %ntid.y;
	mul.lo.u32 %r16, %r16, %r11;
	mad.lo.u32 %r15, %r14, %r16, %r15;
	mad.lo.u32 %r17, %r13, 100, %r12;
	mad.lo.u32 %r17, %r14, 10000, %r17;
	mul.wide.u32 %rd2, %r15, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r17;)");
  for (const std::array<std::uint32_t, 3> block : {std::array<std::uint32_t, 3>{16, 16, 1},
                                                   {8, 4, 3},
                                                   {4, 3, 5},
                                                   {12, 5, 2},
                                                   {1, 64, 1},
                                                   {2, 2, 2}}) {
    options_.block = block;
    const auto values = run(program, std::size_t{block[0]} * block[1] * block[2]);
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      const std::uint32_t x = i % block[0], y = i / block[0] % block[1];
      const std::uint32_t z = i / (block[0] * block[1]);
      EXPECT_EQ(values[i], x + 100 * y + 10000 * z)
          << fmt::format("{} of {}x{}", i, block[0], block[1]);
    }
  }
}

TEST_P(ExecutorTest, SpecialRegistersSayWhereALaneIs) {
  constexpr std::array<std::string_view, 16> kNames{
      "%laneid",      "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
      "%lanemask_ge", "%lanemask_gt", "%warpid",      "%nwarpid",
      "%ctaid.y",     "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
      "%ntid.x",      "%ntid.y",      "WARP_SZ",      "%dynamic_smem_size"};
  std::string body =
      "mov.u32 %r14, %ctaid.y; mad.lo.u32 %r1, %r14, 3, %r10;"
      "mad.lo.u32 %r1, %r1, %r11, %r12;"
      "mul.wide.u32 %rd2, %r1, 64; add.u64 %rd3, %rd1, %rd2;\n";
  for (std::size_t i = 0; i < kNames.size(); ++i)
    body += fmt::format("mov.u32 %r3, {}; st.global.u32 [%rd3+{}], %r3;\n", kNames[i], 4 * i);
  const Program program = kernel(body);
  options_.grid = {3, 2, 1};
  options_.block = {80, 1, 1};
  options_.dynamic_shared_bytes = 48;
  const auto values = run(program, 6 * 80 * kNames.size());
  for (std::uint32_t thread = 0; thread < 6 * 80; ++thread) {
    const std::uint32_t lane = thread % 80 % 32, self = 1U << lane, below = self - 1;
    const std::array<std::uint32_t, 16> wanted{lane,
                                               self,
                                               self | below,
                                               below,
                                               ~below,
                                               ~below & ~self,
                                               thread % 80 / 32,
                                               3,
                                               thread / 240,
                                               3,
                                               2,
                                               1,
                                               80,
                                               1,
                                               32,
                                               48};
    for (std::size_t i = 0; i < kNames.size(); ++i)
      EXPECT_EQ(values[thread * kNames.size() + i], wanted[i]) << kNames[i] << " of " << thread;
  }
}

// Collatz: every lane goes around its own number of times, with a branch in each.
TEST_P(ExecutorTest, DivergentLoopsGoTheirOwnWay) {
  const Program program = kernel(R"(
	add.u32 %r3, %r1, 1;
	mov.u32 %r4, 0;
LOOP:
	setp.eq.u32 %p1, %r3, 1;
	@%p1 bra DONE;
	and.b32 %r5, %r3, 1;
	setp.eq.u32 %p2, %r5, 0;
	@%p2 bra EVEN;
	mad.lo.u32 %r3, %r3, 3, 1;
	bra NEXT;
EVEN:
	shr.u32 %r3, %r3, 1;
NEXT:
	add.u32 %r4, %r4, 1;
	bra LOOP;
DONE:
	st.global.u32 [%rd3], %r4;)");
  options_.block = {96, 1, 1};
  const auto values = run(program, 96);
  for (std::uint32_t i = 0; i < 96; ++i) {
    std::uint32_t steps = 0;
    for (std::uint32_t v = i + 1; v != 1; ++steps)
      v = v % 2 == 0 ? v / 2 : 3 * v + 1;
    EXPECT_EQ(values[i], steps) << i;
  }
}

TEST_P(ExecutorTest, BarriersOrderWarps) {
  const Program program = kernel(R"(
	.shared .align 4 .b8 tile[1024];
	mov.u64 %rd4, tile;
	mul.wide.u32 %rd5, %r12, 4;
	add.u64 %rd6, %rd4, %rd5;
	st.shared.u32 [%rd6], %r12;
	mov.u32 %r3, 128;
LOOP:
	bar.sync 0;
	setp.ge.u32 %p1, %r12, %r3;
	@%p1 bra SKIP;
	mul.wide.u32 %rd7, %r3, 4;
	add.u64 %rd7, %rd6, %rd7;
	ld.shared.u32 %r4, [%rd7];
	ld.shared.u32 %r5, [%rd6];
	add.u32 %r5, %r5, %r4;
	st.shared.u32 [%rd6], %r5;
SKIP:
	shr.u32 %r3, %r3, 1;
	setp.ne.u32 %p2, %r3, 0;
	@%p2 bra LOOP;
	bar.sync 0;
	ld.shared.u32 %r6, [tile];
	st.global.u32 [%rd3], %r6;)");
  options_.block = {256, 1, 1};
  const auto values = run(program, 256);
  EXPECT_THAT(values, Each(255 * 256 / 2));
}

TEST_P(ExecutorTest, WarpsExchangeValues) {
  const Program program = kernel(R"(
	mov.u32 %r3, %r12;
	shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1;
	add.u32 %r3, %r3, %r4;
	shfl.sync.bfly.b32 %r4, %r3, 8, 31, -1;
	add.u32 %r3, %r3, %r4;
	shfl.sync.down.b32 %r5|%p1, %r12, 4, 31, -1;
	shfl.sync.up.b32 %r6|%p2, %r12, 4, 0, -1;
	shfl.sync.idx.b32 %r7, %r12, 3, 0x181f, -1;
	selp.u32 %r8, 1000, 0, %p1;
	add.u32 %r5, %r5, %r8;
	selp.u32 %r8, 1000, 0, %p2;
	add.u32 %r6, %r6, %r8;
	st.global.v4.u32 [%rd3], {%r3, %r5, %r6, %r7};)",
                                 "", 16);
  const auto values = run(program, 128);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[4 * i], 4 * (i % 8) + 16 + 8 + 24) << i;
    EXPECT_EQ(values[4 * i + 1], i + 4 < 32 ? 1000 + i + 4 : i) << i;
    EXPECT_EQ(values[4 * i + 2], i >= 4 ? 1000 + i - 4 : i) << i;
    EXPECT_EQ(values[4 * i + 3], i / 8 * 8 + 3) << i;  // segments of eight
  }
}

TEST_P(ExecutorTest, WarpsVote) {
  const Program program = kernel(R"(
	and.b32 %r3, %r12, 3;
	setp.eq.u32 %p1, %r3, 1;
	vote.sync.ballot.b32 %r4, %p1, -1;
	vote.sync.all.pred %p2, %p1, -1;
	vote.sync.any.pred %p3, !%p1, -1;
	redux.sync.add.s32 %r5, %r12, -1;
	match.any.sync.b32 %r6, %r3, -1;
	selp.u32 %r7, 1, 0, %p2;
	selp.u32 %r8, 2, 0, %p3;
	or.b32 %r7, %r7, %r8;
	st.global.v4.u32 [%rd3], {%r4, %r5, %r6, %r7};)",
                                 "", 16);
  const auto values = run(program, 128);
  for (std::uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[4 * i], 0x22222222U);
    EXPECT_EQ(values[4 * i + 1], 496U);
    EXPECT_EQ(values[4 * i + 2], 0x11111111U << (i & 3));
    EXPECT_EQ(values[4 * i + 3], 2U);
  }
}

// As the tiles of a warp do: each half, and each quarter of the second one.
TEST_P(ExecutorTest, PartsOfAWarpComeTogether) {
  const std::string_view masks = R"(
	mov.u32 %r3, 0xffff;
	setp.ge.u32 %p1, %r12, 16;
	and.b32 %r4, %r12, 24;
	mov.u32 %r5, 0xff;
	shl.b32 %r5, %r5, %r4;
	selp.b32 %r3, %r5, %r3, %p1;)";
  const Program parts = kernel(fmt::format(R"({}
	shfl.sync.bfly.b32 %r6, %r12, 5, 31, %r3;
	and.b32 %r7, %r12, 3;
	setp.eq.u32 %p2, %r7, 0;
	vote.sync.ballot.b32 %r8, %p2, %r3;
	setp.lt.u32 %p3, %r12, 24;
	vote.sync.any.pred %p4, !%p3, %r3;
	selp.u32 %r9, 1, 0, %p4;
	shl.b32 %r6, %r6, 1;
	or.b32 %r6, %r6, %r9;
	redux.sync.add.u32 %r3, %r12, %r3;
	bar.warp.sync -1;
	shl.b32 %r3, %r3, 8;
	or.b32 %r6, %r6, %r3;
	xor.b32 %r6, %r6, %r8;
	st.global.u32 [%rd3], %r6;)",
                                           masks));
  const Words got = run(parts, 32);
  const auto sum = [](std::uint32_t first, std::uint32_t count) {
    return count * first + count * (count - 1) / 2;
  };
  for (std::uint32_t i = 0; i < 32; ++i) {
    const std::uint32_t first = i < 16 ? 0 : i & 24, count = i < 16 ? 16 : 8;
    const std::uint32_t ballot = (count == 16 ? 0x1111U : 0x11U) << first;
    EXPECT_EQ(got[i], ((i ^ 5) << 1 | (first == 24 ? 1U : 0U) | sum(first, count) << 8) ^ ballot)
        << i;
  }
  // Lanes 0 and 1 name each other, but with masks that differ.
  EXPECT_THAT(fault_of(kernel("shl.b32 %r3, %r12, 2; or.b32 %r3, %r3, 3; shl.b32 %r4, 1, %r12; "
                              "or.b32 %r3, %r3, %r4; shfl.sync.idx.b32 %r4, %r12, 0, 31, %r3;"),
                       2),
              HasSubstr("lanes missing"));
}

TEST_P(ExecutorTest, WarpsMatchAndReduce) {
  const Program program = kernel(R"(
	mul.lo.u32 %r3, %r12, %r12;
	mad.lo.u32 %r3, %r3, 7, -200;
	or.b32 %r3, %r3, 1024;
	xor.b32 %r3, %r3, %r2;
	cvt.u64.u32 %rd4, %r12;
	shl.b64 %rd4, %rd4, 32;
	match.all.sync.b32 %r20|%p1, 77, -1;
	match.all.sync.b32 %r21|%p2, %r12, -1;
	match.all.sync.b64 %r22|_, %rd4, -1;
	match.any.sync.b64 %r23, %rd4, -1;
	selp.u32 %r24, 1, 0, %p1;
	selp.u32 %r25, 1, 0, %p2;
	setp.lt.u32 %p3, %r12, 16;
	vote.sync.uni.pred %p4, %p3, -1;
	vote.sync.uni.pred %p5, %p1, -1;
	selp.u32 %r26, 1, 0, %p4;
	selp.u32 %r27, 1, 0, %p5;
	st.global.v4.u32 [%rd3], {%r20, %r21, %r22, %r23};
	st.global.v4.u32 [%rd3+16], {%r24, %r25, %r26, %r27};
	redux.sync.min.u32 %r20, %r3, -1;
	redux.sync.max.u32 %r21, %r3, -1;
	redux.sync.min.s32 %r22, %r3, -1;
	redux.sync.max.s32 %r23, %r3, -1;
	redux.sync.and.b32 %r24, %r3, -1;
	redux.sync.or.b32 %r25, %r3, -1;
	redux.sync.xor.b32 %r26, %r3, -1;
	activemask.b32 %r27;
	st.global.v4.u32 [%rd3+32], {%r20, %r21, %r22, %r23};
	st.global.v4.u32 [%rd3+48], {%r24, %r25, %r26, %r27};)",
                                 "", 64);
  const auto values = run(program, 32 * 16, 0x50);
  std::uint32_t all_and = ~0U, all_or = 0, all_xor = 0, least = ~0U, greatest = 0;
  std::int32_t least_signed = INT32_MAX, greatest_signed = INT32_MIN;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t value = ((lane * lane * 7 - 200) | 1024) ^ 0x50;
    all_and &= value;
    all_or |= value;
    all_xor ^= value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    least_signed = std::min(least_signed, static_cast<std::int32_t>(value));
    greatest_signed = std::max(greatest_signed, static_cast<std::int32_t>(value));
  }
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::vector<std::uint32_t> own(values.begin() + 16 * lane,
                                         values.begin() + 16 * lane + 16);
    EXPECT_THAT(own, ElementsAre(~0U, 0, 0, 1U << lane, 1, 0, 0, 1, least, greatest,
                                 static_cast<std::uint32_t>(least_signed),
                                 static_cast<std::uint32_t>(greatest_signed), all_and, all_or,
                                 all_xor, ~0U));
  }
}

constexpr std::string_view kFactorial = R"(
.func (.param .b32 result) factorial(.param .b32 a)
{
	.reg .b32 %r<9>; .reg .pred %p;
	ld.param.u32 %r1, [a];
	setp.lt.u32 %p, %r1, 2;
	@%p bra ONE;
	{
	sub.u32 %r2, %r1, 1;
	.param .b32 argument;
	.param .b32 value;
	st.param.b32 [argument+0], %r2;
	call.uni (value), factorial, (argument);
	ld.param.b32 %r3, [value+0];
	}
	mul.lo.u32 %r4, %r3, %r1;
	st.param.b32 [result+0], %r4;
	ret;
ONE:
	st.param.b32 [result+0], 1;
	ret;
}
)";

TEST_P(ExecutorTest, LanesRecurseToTheirOwnDepth) {
  const Program program = kernel(R"(
	and.b32 %r3, %r1, 7;
	setp.eq.u32 %p1, %r3, 5;
	mov.u32 %r4, 77;
	@%p1 bra SKIP;
	{
	.param .b32 argument;
	.param .b32 value;
	st.param.b32 [argument+0], %r3;
	call.uni (value), factorial, (argument);
	ld.param.b32 %r4, [value+0];
	}
SKIP:
	st.global.u32 [%rd3], %r4;)",
                                 kFactorial);
  const auto values = run(program, 32);
  constexpr std::array<std::uint32_t, 8> kWanted{1, 1, 2, 6, 24, 77, 720, 5040};
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(values[i], kWanted[i & 7]) << i;
}

// The lane that releases the others stands behind them.
TEST_P(ExecutorTest, SpinningLanesDoNotStarveTheOneTheyWaitFor) {
  for (const std::uint32_t releaser : {31U, 0U, 64U}) {
    const Program program = kernel(R"(
	.shared .align 4 .b8 flag[4];
	setp.eq.u32 %p1, %r12, %r2;
	@%p1 bra RELEASE;
SPIN:
	ld.volatile.shared.u32 %r3, [flag];
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra SPIN;
	bra DONE;
RELEASE:
	mov.u32 %r4, 1;
	st.volatile.shared.u32 [flag], %r4;
DONE:
	st.global.u32 [%rd3], 9;)");
    options_.block = {96, 1, 1};
    const auto values = run(program, 96, releaser);
    EXPECT_THAT(values, Each(9U));
  }
}

TEST_P(ExecutorTest, BlocksAddToOnePlace) {
  const Program program = kernel(R"(
	atom.global.add.u32 %r3, [%rd1], 1;
	red.global.max.u32 [%rd1+4], %r1;
	atom.global.cas.b32 %r4, [%rd1+8], 0, %r1;
	atom.global.inc.u32 %r5, [%rd1+12], 9;)");
  options_.grid = {100, 1, 1};
  options_.workers = 2;
  const auto values = run(program, 4);
  EXPECT_EQ(values[0], 3200U);
  EXPECT_EQ(values[1], 3199U);
  EXPECT_NE(values[2], 0U);
  EXPECT_EQ(values[3], 0U);  // 3200 steps around a ring of ten
}

TEST_P(ExecutorTest, PrintsInTheOrderOfLanes) {
  const Program program = kernel(R"(
	.local .align 8 .b8 depot[24];
	.reg .f64 %d<3>;
	setp.gt.u32 %p1, %r12, 1;
	@%p1 bra END;
	mov.u64 %rd4, depot;
	cvta.local.u64 %rd5, %rd4;
	st.local.u32 [depot], %r12;
	cvt.rn.f64.u32 %d1, %r12;
	add.f64 %d1, %d1, 0d3FE0000000000000;
	st.local.f64 [depot+8], %d1;
	mov.u64 %rd6, word;
	cvta.global.u64 %rd6, %rd6;
	st.local.u64 [depot+16], %rd6;
	mov.u64 %rd7, format;
	cvta.global.u64 %rd7, %rd7;
	{
	.param .b64 a; .param .b64 b; .param .b32 c;
	st.param.b64 [a], %rd7;
	st.param.b64 [b], %rd5;
	call.uni (c), vprintf, (a, b);
	ld.param.b32 %r3, [c];
	st.global.u32 [%rd3], %r3;
	}
END:)",
                                 R"(
.extern .func (.param .b32 c) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 format[19] = {37, 51, 100, 37, 37, 32, 37, 46, 50, 102, 32, 37, 115, 10};
.global .align 1 .b8 word[4] = {97, 98, 99};
)");
  std::string printed;
  options_.print = [&](std::string_view text) { printed += text; };
  const auto values = run(program, 32);
  EXPECT_EQ(printed, "  0% 0.50 abc\n  1% 1.50 abc\n");
  EXPECT_EQ(values[1], 3U);  // arguments, as CUDA's printf returns them
}

TEST_P(ExecutorTest, TheClockGoesOn) {
  const Program program = kernel(R"(
	.reg .b64 %t<4>;
	mov.u64 %t1, %clock64;
	mov.u64 %t2, %clock64;
	setp.gt.u64 %p1, %t2, %t1;
	selp.u32 %r3, 1, 0, %p1;
	st.global.u32 [%rd3], %r3;)");
  EXPECT_EQ(run(program, 32)[0], 1U);
}

TEST_P(ExecutorTest, AFailedAssertionNamesItsThreads) {
  const auto asserting = [this](std::string_view declaration) {
    return kernel(R"(
	setp.lt.u32 %p1, %r1, 2;
	@!%p1 bra END;
	mov.u64 %rd5, what;
	cvta.global.u64 %rd5, %rd5;
	{
	.param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
	st.param.b64 [a], %rd5;
	add.u64 %rd6, %rd5, 3;
	st.param.b64 [b], %rd6;
	st.param.b32 [c], 77;
	add.u64 %rd6, %rd5, 6;
	st.param.b64 [d], %rd6;
	st.param.b64 [e], 1;
	call.uni __assertfail, (a, b, c, d, e);
	}
END:)",
                  declaration);
  };
  constexpr std::string_view kTexts =
      ".global .align 1 .b8 what[9] = {105, 62, 0, 102, 46, 0, 107, 40, 0};\n";  // i> f. k(
  const Program program = asserting(
      std::string(kTexts) +
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
      ".param .b64 e);\n");
  std::string complaints;
  options_.complain = [&](std::string_view text) { complaints += text; };
  EXPECT_THAT(fault_of(program, 20),
              AllOf(HasSubstr("failed assertion"), HasSubstr("thread (0, 0, 0)")));
  EXPECT_EQ(complaints,
            "f.:77: k(: block: [0,0,0], thread: [0,0,0] Assertion `i>` failed.\n"
            "f.:77: k(: block: [0,0,0], thread: [1,0,0] Assertion `i>` failed.\n");
}

TEST_P(ExecutorTest, TellsWildAndMisalignedAccesses) {
  const Program beyond = kernel("st.global.u32 [%rd3], %r1;");
  EXPECT_THAT(fault_of(beyond, 20),
              AllOf(HasSubstr("out-of-bounds store of 4 bytes"), HasSubstr("thread (20, 0, 0)")));
  const Program before = kernel("add.u64 %rd3, %rd3, -4; ld.global.u32 %r3, [%rd3];");
  EXPECT_THAT(fault_of(before, 64),
              AllOf(HasSubstr("out-of-bounds load of 4 bytes"), HasSubstr("thread (0, 0, 0)")));
  const Program odd = kernel("add.u64 %rd3, %rd3, 2; ld.global.u32 %r3, [%rd3];");
  EXPECT_THAT(fault_of(odd, 64), HasSubstr("misaligned load of 4 bytes"));
  const Program vector = kernel("st.global.v2.u32 [%rd3], {%r1, %r1};");
  EXPECT_THAT(fault_of(vector, 64),
              AllOf(HasSubstr("misaligned store of 8 bytes"), HasSubstr("thread (1, 0, 0)")));
  const Program shared = kernel(
      ".shared .b8 s[16]; mov.u64 %rd4, s; mul.wide.u32 %rd5, %r12, 4;"
      "add.u64 %rd4, %rd4, %rd5; st.shared.u32 [%rd4], %r1;");
  EXPECT_THAT(fault_of(shared, 64), HasSubstr("out-of-bounds store of 4 bytes"));
  const Program freed = kernel("st.global.u32 [%rd3], %r1;");
  const std::uint64_t gone = upload(std::vector<std::uint32_t>(32));
  ASSERT_TRUE(memory_.free(gone));
  EXPECT_THAT(launch_with(freed, gone, 0), HasSubstr("out-of-bounds store"));
}

TEST_P(ExecutorTest, GenericAddressesReachAllSpaces) {
  const Program program = kernel(R"(
	.shared .align 4 .b8 s[128];
	.local .align 4 .b8 l[8];
	mov.u64 %rd4, s;
	cvta.shared.u64 %rd5, %rd4;
	mul.wide.u32 %rd6, %r12, 4;
	add.u64 %rd5, %rd5, %rd6;
	st.u32 [%rd5], %r12;
	ld.shared.u32 %r3, [s+12];
	mov.u64 %rd7, l;
	cvta.local.u64 %rd7, %rd7;
	st.u32 [%rd7+4], %r12;
	ld.local.u32 %r4, [l+4];
	mad.lo.u32 %r3, %r3, 1000, %r4;
	isspacep.shared %p1, %rd5;
	isspacep.global %p2, %rd3;
	isspacep.local %p3, %rd3;
	selp.u32 %r5, 10000, 0, %p1;
	add.u32 %r3, %r3, %r5;
	selp.u32 %r5, 20000, 0, %p2;
	add.u32 %r3, %r3, %r5;
	selp.u32 %r5, 40000, 0, %p3;
	add.u32 %r3, %r3, %r5;
	st.u32 [%rd3], %r3;)");
  const auto values = run(program, 32);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(values[i], 33000 + i);
}

TEST_P(ExecutorTest, TellsWhoCannotGoOn) {
  const Program trap = kernel("setp.eq.u32 %p1, %r12, 7; @%p1 trap;");
  EXPECT_THAT(fault_of(trap, 32),
              AllOf(HasSubstr("trap: kernel k"), HasSubstr("thread (7, 0, 0)")));
  const Program divergent =
      kernel("setp.gt.u32 %p1, %r12, 7; @%p1 bra L; bar.sync 0;\nL: bar.sync 0;");
  EXPECT_THAT(fault_of(divergent, 32), HasSubstr("barrier divergence"));
  const Program lonely = kernel("bar.sync 1, 64;");
  EXPECT_THAT(fault_of(lonely, 32), HasSubstr("deadlock"));
  const Program partial = kernel(
      "setp.gt.u32 %p1, %r12, 7; @%p1 exit; "
      "shfl.sync.idx.b32 %r3, %r12, 20, 31, 0xff;");
  EXPECT_THAT(fault_of(partial, 32), HasSubstr("lanes missing"));
}

TEST_P(ExecutorTest, EndlessKernelsRunOutOfTime) {
  const HastyClock clock;
  options_.clock = &clock;
  options_.time_limit = std::chrono::milliseconds{5};
  EXPECT_THAT(fault_of(kernel("L: bra L;"), 32), HasSubstr("time-out"));
  EXPECT_THAT(fault_of(kernel("L: bar.sync 0; bra L;"), 32), HasSubstr("time-out"));
  EXPECT_THAT(fault_of(kernel("L: shfl.sync.idx.b32 %r3, %r12, 0, 31, -1; bra L;"), 32),
              HasSubstr("time-out"));
  // Half of the lanes go around one loop, half around another one.
  EXPECT_THAT(fault_of(kernel("setp.gt.u32 %p1, %r12, 7; @%p1 bra M; L: bra L; M: bra M;"), 32),
              HasSubstr("time-out"));
  // No loop, but 2^40 calls.
  const Program tree = kernel(R"({
	.param .b32 a;
	st.param.b32 [a], 40;
	call.uni twice, (a);
	})",
                              R"(
.func twice(.param .b32 n)
{
	.reg .b32 %r; .reg .pred %p;
	ld.param.u32 %r, [n];
	setp.eq.u32 %p, %r, 0;
	@%p ret;
	sub.u32 %r, %r, 1;
	.param .b32 a;
	st.param.b32 [a], %r;
	call.uni twice, (a);
	call.uni twice, (a);
	ret;
})");
  EXPECT_THAT(fault_of(tree, 32), HasSubstr("time-out"));
  const Program empty = kernel("");
  options_.grid = {1 << 20, 1 << 10, 1};
  EXPECT_THAT(fault_of(empty, 32), HasSubstr("time-out"));
}

TEST_P(ExecutorTest, TheFaultIsToldNotWhoStoppedBecauseOfIt) {
  options_.grid = {2, 1, 1};
  options_.workers = 2;
  const Program program = kernel("setp.eq.u32 %p1, %r10, 1; @%p1 trap; L: bra L;");
  EXPECT_THAT(fault_of(program, 64), AllOf(HasSubstr("trap"), HasSubstr("block (1, 0, 0)")));
}

TEST_P(ExecutorTest, LanesThatLoopLongerAreWaitedForAtABarrier) {
  // One lane goes around often enough for the others to get their turn in between.
  for (const int rounds : {1, 63, 64, 65, 1000}) {
    const Program program = kernel(fmt::format(R"(
	.shared .b32 s;
	mov.u32 %r3, 0;
	setp.ne.u32 %p1, %r12, 5;
	@%p1 bra DONE;
LOOP:
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p2, %r3, {};
	@%p2 bra LOOP;
	st.shared.u32 [s], %r3;
DONE:
	bar.sync 0;
	ld.shared.u32 %r4, [s];
	st.global.u32 [%rd3], %r4;)",
                                               rounds));
    for (const std::uint32_t value : run(program, 32))
      EXPECT_EQ(value, static_cast<std::uint32_t>(rounds));
  }
}

TEST_P(ExecutorTest, WhatAllBlocksShareIsComputedOnceAndHoldsForAll) {
  // Only odd blocks come to the second half, whose values are nevertheless those of the launch;
  // %r20 is written twice, so it belongs to each block.
  const Program program = kernel(R"(
	ld.param.u32 %r20, [n];
	add.u32 %r20, %r20, %r10;
	and.b32 %r21, %r10, 1;
	setp.eq.u32 %p1, %r21, 0;
	@%p1 bra EVEN;
	ld.param.u32 %r22, [n];
	mov.u32 %r23, %nctaid.x;
	mad.lo.u32 %r24, %r22, 1000, %r23;
	add.u32 %r20, %r20, %r24;
EVEN:
	st.global.u32 [%rd3], %r20;)");
  options_.block = {33, 1, 1};  // the second warp has one lane
  const std::uint32_t blocks = 50;
  options_.grid = {blocks, 1, 1};
  const auto values = run(program, 33 * blocks, 7);
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    const std::uint32_t block = i / 33;
    EXPECT_EQ(values[i], 7 + block + (block % 2 != 0 ? 7000 + blocks : 0)) << i;
  }
}

TEST_P(ExecutorTest, LanesThatHaveEndedAreNotWaitedFor) {
  const Program program = kernel(
      "setp.gt.u32 %p1, %r12, 7; @%p1 exit; bar.sync 0; "
      "st.global.u32 [%rd3], 9;");
  EXPECT_EQ(run(program, 32)[7], 9U);
}

TEST_P(ExecutorTest, RefusesImpossibleLaunches) {
  const Program program = kernel("");
  options_.block = {1025, 1, 1};
  EXPECT_THAT(fault_of(program, 1), HasSubstr("more than 1024 threads"));
  options_.block = {32, 1, 1};
  options_.grid = {1, 0, 1};
  EXPECT_THAT(fault_of(program, 1), HasSubstr("an extent of 0"));
  options_.grid = {1, 1, 1};
  options_.dynamic_shared_bytes = 1 << 20;
  EXPECT_THAT(fault_of(program, 1), HasSubstr("shared memory"));
  options_.dynamic_shared_bytes = 0;
  options_.params = {};
  const auto refused = launch(program, 0, memory_, options_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("got 0 bytes of parameters, expected 12"));
}

TEST_P(ExecutorTest, RefusesWhatItDoesNotKnowByLine) {
  EXPECT_THAT(refusal_of("wgmma.fence.sync.aligned;"), HasSubstr("ptx line 6: wgmma.fence"));
  EXPECT_THAT(refusal_of("add.f8 %r1, %r2, %r3;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("ld.global %r1, [%r2];"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("st [%r2], %r1;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("cvta.to.global %r1, %r2;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("cvta.u64 %r1, %r2;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("redux.sync.add.u64 %r1, %r2, -1;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("match.any.sync %r1, %r2, -1;"), HasSubstr("not supported"));
  EXPECT_THAT(refusal_of("shfl.sync.idx %r1, %r2, 0, 31, -1;"), HasSubstr("not supported"));
  const std::string_view takes_word = ".func f(.param .b32 n) { ret; }\n";
  EXPECT_EQ(refusal_of(".param .b32 a; call.uni f, (a);", takes_word), "");
  EXPECT_THAT(refusal_of(".param .b64 a; call.uni f, (a);", takes_word),
              HasSubstr("an argument with a size"));
  EXPECT_THAT(refusal_of(".branchtargets A;"), HasSubstr("a directive that is not supported"));
  EXPECT_EQ(refusal_of(".pragma \"nounroll\"; ret;"), "");
}

TEST_P(ExecutorTest, HelpComesWhileABlockWaitsForAnother) {
  const HastyClock clock;
  options_.workers = 2;
  options_.clock = &clock;
  options_.grid = {2, 1, 1};
  options_.block = {1, 1, 1};
  // Block 0 is handed out first and waits for block 1, though not for ever.
  const Program program = kernel(R"(
	setp.ne.u32 %p1, %r1, 0;
	mov.u32 %r4, 300000000;
	@%p1 bra L;
W:	ld.volatile.global.u32 %r3, [%rd3+4];
	setp.ne.u32 %p2, %r3, 0;
	@%p2 bra L;
	sub.u32 %r4, %r4, 1;
	setp.ne.u32 %p2, %r4, 0;
	@%p2 bra W;
L:	setp.ne.u32 %p3, %r4, 0;
	selp.u32 %r5, 1, 2, %p3;
	st.volatile.global.u32 [%rd3], %r5;)");
  EXPECT_THAT(run(program, 2), Each(1U));
}

TEST_P(ExecutorTest, BarriersReduceAPredicate) {
  // 70 threads: 24 multiples of three, none above 69, in three warps of which one is not whole.
  const auto reduced = [&](std::string_view reduction) {
    options_.block = {70, 1, 1};
    return run(kernel(fmt::format(R"(
	rem.u32 %r3, %r12, 3;
	setp.eq.u32 %p1, %r3, 0;
	setp.lt.u32 %p2, %r12, 70;
	{}
	st.global.u32 [%rd3], %r4;)",
                                  reduction)),
               70);
  };
  EXPECT_THAT(reduced("bar.red.popc.u32 %r4, 0, %p1;"), Each(24U));
  EXPECT_THAT(reduced("barrier.cta.red.popc.aligned.u32 %r4, 1, !%p1;"), Each(46U));
  const auto tested = [&](std::string_view operation) {
    return reduced(fmt::format("{} selp.u32 %r4, 1, 0, %p3;", operation));
  };
  EXPECT_THAT(tested("bar.red.or.pred %p3, 0, %p1;"), Each(1U));
  EXPECT_THAT(tested("bar.red.and.pred %p3, 0, %p1;"), Each(0U));
  EXPECT_THAT(tested("bar.red.and.pred %p3, 0, %p2;"), Each(1U));
  EXPECT_THAT(tested("barrier.red.or.pred %p3, 2, !%p2;"), Each(0U));
  // The first two warps alone.
  options_.block = {70, 1, 1};
  const Words some = run(kernel(R"(
	setp.ge.u32 %p1, %r12, 64;
	@%p1 bra L;
	setp.lt.u32 %p2, %r12, 10;
	bar.red.popc.u32 %r4, 3, 64, %p2;
	st.global.u32 [%rd3], %r4;
L:)"),
                         70);
  EXPECT_THAT(std::span(some).first(64), Each(10U));
  EXPECT_THAT(std::span(some).last(6), Each(0U));
  EXPECT_THAT(refusal_of("bar.red.xor.pred %r1, 0, %r2;"), HasSubstr("not supported"));
}

TEST_P(ExecutorTest, AKernelThatCannotRunIsRefusedAlone) {
  const Program program = load(R"(
.func leaf()
{
	.reg .b32 %r<2>;
	mov.u32 %r1, %envreg3;
	ret;
}
.func branch()
{
	call.uni leaf;
	ret;
}
.visible .entry calls() { call.uni branch; ret; }
.visible .entry fence() { wgmma.fence.sync.aligned; ret; }
.visible .entry k(.param .u64 out, .param .u32 n)
{
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	st.global.u32 [%rd1], 7;
	ret;
}
)");
  ASSERT_EQ(program.kernels().size(), 3U);
  const auto calls = program.find_kernel("calls"), fence = program.find_kernel("fence");
  ASSERT_FALSE(calls);
  ASSERT_FALSE(fence);
  EXPECT_EQ(calls.error().code, Code::kUnsupported);
  EXPECT_THAT(calls.error().what,
              HasSubstr("kernel calls: calls branch: calls leaf: ptx line 8: mov"));
  EXPECT_THAT(fence.error().what, HasSubstr("kernel fence: ptx line 17: wgmma.fence"));
  EXPECT_EQ(program.find_kernel("absent").error().code, Code::kNotFound);
  options_.params = {};
  const auto refused = launch(program, 0, memory_, options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  ASSERT_EQ(program.find_kernel("k").value(), 2U);
  // An observed kernel runs on code that is decoded anew, without the refused ones.
  Observations seen;
  options_.observe.hazards = true;
  options_.observations = &seen;
  const std::uint64_t out = upload(Words(1));
  std::array<std::byte, 12> params{};
  std::memcpy(params.data(), &out, sizeof out);
  options_.params = params;
  const auto fault = launch(program, 2, memory_, options_);
  ASSERT_TRUE(fault);
  EXPECT_FALSE(*fault);
  EXPECT_THAT(download(out, 1), Each(7U));
}

TEST_P(ExecutorTest, VariablesHoldTheirValues) {
  const Program program = kernel(R"(
	ld.const.u32 %r3, [c+4];
	ld.global.u64 %rd4, [pointer];
	ld.global.u32 %r4, [%rd4];
	mad.lo.u32 %r3, %r3, 100, %r4;
	st.global.u32 [%rd3], %r3;)",
                                 ".const .u32 c[2] = {1, 2};\n.global .u32 v[3] = {7, 8, 9};\n"
                                 ".global .u64 pointer = v+8;\n");
  EXPECT_THAT(run(program, 32), Each(209U));
  const auto range = program.find_variable("v");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->end - range->begin, 12U);
}

TEST(DeviceMemory, KeepsAllocationsApart) {
  auto memory = Memory::create(1 << 20).value();
  const std::uint64_t a = memory.allocate(100).value(), b = memory.allocate(5000).value();
  EXPECT_GE(b, a + 100 + Memory::kGuardBytes);
  EXPECT_EQ(memory.find(a + 99).begin, a);
  EXPECT_EQ(memory.find(a + 100).begin, 0U);
  EXPECT_EQ(memory.used_bytes(), 5100U);
  EXPECT_FALSE(memory.allocate(1 << 20));
  EXPECT_FALSE(memory.free(a + 1));
  EXPECT_TRUE(memory.free(a));
  EXPECT_FALSE(memory.free(a));
  EXPECT_EQ(memory.used_bytes(), 5000U);
}

TEST(DeviceMemory, RangesAreListedAnewOnlyAfterAChange) {
  auto memory = Memory::create(1 << 20).value();
  const std::uint64_t a = memory.allocate(100).value();
  const Memory::Ranges before = memory.ranges();
  EXPECT_EQ(before.get(), memory.ranges().get());
  EXPECT_THAT(*before, testing::ElementsAre(Memory::Range{a, a + 100}));
  const std::uint64_t b = memory.allocate(50).value();
  EXPECT_THAT(*memory.ranges(),
              testing::ElementsAre(Memory::Range{a, a + 100}, Memory::Range{b, b + 50}));
  EXPECT_TRUE(memory.free(a));
  EXPECT_THAT(*memory.ranges(), testing::ElementsAre(Memory::Range{b, b + 50}));
  EXPECT_EQ(before->size(), 1U) << "who has the old list keeps it";
}

TEST(DeviceMemory, ReservationsLieApartFromAllocations) {
  auto memory = Memory::create(1 << 20).value();
  const std::uint64_t bytes = std::uint64_t{64} << 30;
  const std::uint64_t place = memory.reserve(bytes).value();
  EXPECT_EQ(place % Memory::kGranule, 0U);
  EXPECT_TRUE(memory.is_own(place + bytes - 1));
  EXPECT_FALSE(memory.is_own(place + bytes));
  EXPECT_TRUE(memory.ranges()->empty()) << "nothing is mapped";
  EXPECT_TRUE(memory.release({place, place + bytes}));
  EXPECT_FALSE(memory.is_own(place));
  EXPECT_EQ(memory.reserve(Memory::kGranule, Memory::kGranule, place).value(), place);
}

TEST(DeviceMemory, BeginsWhereItIsTold) {
  constexpr std::uint64_t kBase = 0x7e8000000000;
  const auto memory = Memory::create(1 << 20, kBase);
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->is_own(kBase));
  const auto again = Memory::create(1 << 20, kBase);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().what, HasSubstr("at 0x7e8000000000"));
}

TEST(DeviceMemory, GoesOnWhenAddressesAreUsedUp) {
  auto memory = Memory::create(1 << 16).value();
  for (int i = 0; i < 10'000; ++i) {
    const auto address = memory.allocate(30'000);
    ASSERT_TRUE(address) << i;
    std::memset(reinterpret_cast<void*>(static_cast<std::uintptr_t>(*address)), 1, 30'000);
    ASSERT_TRUE(memory.free(*address));
  }
}

/// True if the kernel can read a byte there.
bool is_readable(std::uint64_t address) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const bool is_read =
      write(ends[1], reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return is_read;
}

TEST(DeviceMemory, WhatIsHeldStaysUntilItIsLetGo) {
  auto memory = Memory::create(1 << 20).value();
  const std::uint64_t a = memory.allocate(5000).value();
  {
    const Memory::Hold first(memory);
    const Memory::Hold second(memory);
    EXPECT_TRUE(memory.free(a));
    EXPECT_EQ(memory.find(a).end, 0U);
    EXPECT_EQ(memory.used_bytes(), 0U);
    EXPECT_TRUE(is_readable(a + 4999));
    EXPECT_FALSE(memory.free(a));
  }
  EXPECT_FALSE(is_readable(a));
}

TEST(DeviceMemory, AddressesThatAreHeldAreNotGivenAgain) {
  auto memory = Memory::create(1 << 16).value();
  const std::uint64_t first = memory.allocate(30'000).value();
  const Memory::Hold hold(memory);
  EXPECT_TRUE(memory.free(first));
  for (int i = 0; i < 1000; ++i) {
    const auto address = memory.allocate(30'000);
    if (!address) break;  // all are held
    ASSERT_TRUE(*address + 30'000 <= first || *address >= first + 30'000);
    ASSERT_TRUE(memory.free(*address));
  }
  EXPECT_TRUE(is_readable(first));
}

TEST(DeviceMemory, MappingsThatAreHeld) {
  constexpr std::uint64_t kBytes = Memory::kGranule;
  auto memory = Memory::create(kBytes * 4).value();
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kBytes)), 0);
  const std::uint64_t at = memory.reserve(kBytes * 2).value();
  const Memory::Range low{at, at + kBytes}, high{at + kBytes, at + 2 * kBytes};
  EXPECT_TRUE(memory.map(low, fd, 0));
  EXPECT_TRUE(memory.map(high, fd, 0));
  EXPECT_FALSE(is_readable(at));
  EXPECT_TRUE(memory.set_accessible({at, at + 2 * kBytes}, true));
  {
    const Memory::Hold hold(memory);
    EXPECT_TRUE(memory.set_accessible(low, false));
    EXPECT_EQ(memory.find(at).end, 0U);
    EXPECT_TRUE(is_readable(at));
    // Unmapped, and at once something else there: the new mapping stays.
    EXPECT_TRUE(memory.unmap(high));
    EXPECT_TRUE(is_readable(high.begin));
    EXPECT_TRUE(memory.map(high, fd, 0));
    EXPECT_TRUE(memory.set_accessible(high, true));
  }
  EXPECT_FALSE(is_readable(at));
  EXPECT_TRUE(is_readable(high.begin));
  EXPECT_TRUE(memory.unmap({at, at + 2 * kBytes}));
  EXPECT_FALSE(is_readable(high.begin));
  // Behind a reservation nothing begins at once.
  EXPECT_FALSE(is_readable(high.end));
  const std::uint64_t beside = memory.allocate(1).value();
  EXPECT_TRUE(beside >= high.end + Memory::kGuardBytes || beside < at);
  close(fd);
}

TEST(DeviceMemory, AReservationThatIsReleasedWhileItIsHeldStays) {
  constexpr std::uint64_t kBytes = Memory::kGranule;
  auto memory = Memory::create(kBytes).value();
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kBytes)), 0);
  const std::uint64_t at = memory.reserve(kBytes).value();
  const Memory::Range range{at, at + kBytes};
  EXPECT_TRUE(memory.map(range, fd, 0));
  EXPECT_TRUE(memory.set_accessible(range, true));
  {
    const Memory::Hold hold(memory);
    EXPECT_TRUE(memory.unmap(range));
    EXPECT_TRUE(memory.release(range));
    EXPECT_FALSE(memory.is_own(at));
    EXPECT_TRUE(is_readable(at));
  }
  EXPECT_FALSE(is_readable(at));
  close(fd);
}

}  // namespace
}  // namespace kansoku::gpu::exec
