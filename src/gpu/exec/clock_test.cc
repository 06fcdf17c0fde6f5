// SPDX-License-Identifier: Apache-2.0
// The clocks that kernels read, and what launches count for a model of time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/time.h"
#include "gpu/exec/cost.h"
#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class ClockTest : public KernelTest {
 protected:
  ClockTest() {
    // Numbers that sums can be told apart by; 1 GHz: a cycle is a nanosecond.
    costs_.clock_mhz = 1000;
    for (std::size_t i = 0; i < kCostClasses; ++i)
      costs_.classes[i] = {16, 1};
    options_.sm_count = 2;
  }
  void cost(CostClass which, std::uint32_t issue16, std::uint32_t latency) {
    costs_.classes[static_cast<std::size_t>(which)] = {issue16, latency};
  }
  /// Counts of kernel k on so many words.
  LaunchCounts counts_of(const Program& program, std::size_t words, std::uint32_t n = 0) {
    LaunchCounts counts;
    options_.costs = &costs_;
    options_.counts = &counts;
    run(program, words, n);
    options_.costs = nullptr;
    options_.counts = nullptr;
    return counts;
  }
  /// How many warp instructions of the class kernel k executes.
  std::uint64_t count_of(const Program& program, CostClass which, std::size_t words,
                         std::uint32_t n = 0) {
    const CycleCosts costs = costs_;
    costs_.classes = {};
    cost(which, 1, 0);
    const LaunchCounts counts = counts_of(program, words, n);
    costs_ = costs;
    std::uint64_t sum = 0;
    for (const SmCounts& sm : counts.sms)
      sum += sm.issue16;
    return sum;
  }

  CycleCosts costs_;
};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, ClockTest, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

// out = instructions between two looks at the clock
constexpr char kTenAdds[] = R"(
	mov.u32 %r4, %clock;
	add.u32 %r5, %r1, 1; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1;
	add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1;
	add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1;
	mov.u32 %r6, %clock;
	sub.u32 %r7, %r6, %r4;
	st.global.u32 [%rd3], %r7;
)";

TEST_P(ClockTest, CountsWhatTheWarpExecuted) {
  options_.block = {128, 1, 1};
  const Program program = kernel(kTenAdds);
  EXPECT_TRUE(program.kernels()[0].reads_clock);
  EXPECT_THAT(run(program, 128), Each(11u)) << "ten, and the first look itself";
}

TEST_P(ClockTest, BeginsAnewInEachBlock) {
  options_.grid = {8, 1, 1};
  const Words words = run(kernel(R"(
	mov.u32 %r4, %clock;
	st.global.u32 [%rd3], %r4;
)"),
                          256);
  EXPECT_THAT(words, Each(words[0]));
  EXPECT_EQ(words[0], 8u) << "the instructions in front of it";
}

TEST_P(ClockTest, CountsBothSidesOfABranch) {
  const Words words = run(kernel(R"(
	mov.u32 %r4, %clock;
	setp.lt.u32 %p1, %r12, 16;
	@%p1 bra $low;
	add.u32 %r5, %r1, 1; add.u32 %r5, %r5, 1;
	bra $end;
$low:
	add.u32 %r5, %r1, 2; add.u32 %r5, %r5, 2;
$end:
	mov.u64 %rd4, %clock64;
	cvt.u32.u64 %r6, %rd4;
	sub.u32 %r7, %r6, %r4;
	st.global.u32 [%rd3], %r7;
)"),
                          32);
  EXPECT_THAT(words, Each(8u)) << "look, setp, bra, both sides with 3 and 2";
}

TEST_P(ClockTest, WhoWaitsIsCountedOnce) {
  const Words words = run(kernel(R"(
	mov.u32 %r4, %clock;
	setp.lt.u32 %p1, %r12, 16;
	@%p1 bra $behind;
$meet:
	shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;
	bra $end;
$behind:
	add.u32 %r5, %r1, 1;
	bra $meet;
$end:
	mov.u32 %r6, %clock;
	sub.u32 %r7, %r6, %r4;
	st.global.u32 [%rd3], %r7;
)"),
                          32);
  EXPECT_THAT(words, Each(7u)) << "the shuffle when all had come";
}

TEST_P(ClockTest, FunctionsAndRegistersThatLeadToTheClockAreFound) {
  const Program program = kernel(R"(
	{
	.param .b32 result;
	call.uni (result), now, ();
	ld.param.b32 %r4, [result];
	}
	st.global.u32 [%rd3], %r4;
)",
                                 R"(.func (.param .b32 out) now()
{
	.reg .b32 %r<2>;
	mov.u32 %r1, %clock;
	st.param.b32 [out], %r1;
	ret;
}
)");
  EXPECT_TRUE(program.kernels()[0].reads_clock);
  EXPECT_FALSE(program.kernels()[0].reads_timer);
  EXPECT_THAT(run(program, 32), Each(9u)) << "the call is one";
  EXPECT_FALSE(kernel("	st.global.u32 [%rd3], %r1;\n").kernels()[0].reads_clock);
}

constexpr char kTimer[] = R"(
	mov.u64 %rd4, %globaltimer;
	st.global.u64 [%rd3], %rd4;
)";

TEST_P(ClockTest, TheTimerIsTheClockThatIsGiven) {
  const Program program = kernel(kTimer, "", 8);
  EXPECT_TRUE(program.kernels()[0].reads_timer);
  options_.block = {1, 1, 1};
  ManualClock clock;
  clock.advance(Nanos{0x1234567890});
  options_.clock = &clock;
  EXPECT_THAT(run(program, 2), ElementsAre(0x34567890u, 0x12u));
  options_.clock = nullptr;
  EXPECT_THAT(run(program, 2), ElementsAre(8u, 0u)) << "without one: what the warp executed";
}

TEST_P(ClockTest, TheTimerIsVirtualIfThereAreCosts) {
  cost(CostClass::kArithmetic, 16, 3);
  cost(CostClass::kOther, 16, 5);
  cost(CostClass::kMultiply, 16, 7);
  costs_.clock_mhz = 500;
  options_.begin_ns = 1'000'000;
  options_.block = {1, 1, 1};
  ManualClock clock;
  options_.clock = &clock;
  LaunchCounts counts;
  options_.costs = &costs_;
  options_.counts = &counts;
  // 3 mov, add.u64: 3 cycles each; mad, mul: 7; 2 ld.param: 5. At 2 ns.
  EXPECT_THAT(run(kernel(kTimer, "", 8), 2),
              ElementsAre(1'000'000 + 2 * (4 * 3 + 2 * 7 + 2 * 5), 0u));
}

TEST_P(ClockTest, LaunchesHaveANumber) {
  options_.number = (std::uint64_t{3} << 32) + 17;
  options_.block = {1, 1, 1};
  EXPECT_THAT(
      run(kernel("	mov.u64 %rd4, %gridid;\n	st.global.u64 [%rd3], %rd4;\n", "", 8), 2),
      ElementsAre(17u, 3u));
  options_.number = 5;
  EXPECT_THAT(fault_of(kernel("	trap;\n"), 1), ::testing::HasSubstr(", launch 5"));
}

TEST_P(ClockTest, ClassesAndSectorsAreCounted) {
  const Program program = kernel(R"(
	ld.global.u32 %r4, [%rd3];
	ld.global.u32 %r5, [%rd1];
	shl.b64 %rd4, %rd2, 3;
	add.u64 %rd5, %rd1, %rd4;
	ld.global.u8 %r6, [%rd5];
	xor.b32 %r7, %r12, 31;
	mul.wide.u32 %rd6, %r7, 4;
	add.u64 %rd7, %rd1, %rd6;
	ld.global.u32 %r8, [%rd7];
	cvt.rn.f32.u32 %f1, %r4;
	sin.approx.f32 %f2, %f1;
	div.rn.f32 %f3, %f2, %f1;
	rcp.approx.ftz.f32 %f4, %f3;
	shfl.sync.bfly.b32 %r9, %r4, 1, 31, -1;
	atom.global.add.u32 %r14, [%rd1], %r9;
	st.global.u32 [%rd3], %r9;
)");
  const LaunchCounts counts = counts_of(program, 256);
  EXPECT_EQ(counts.sectors, 4u + 1 + 32 + 4 + 1 + 4) << "a line, one, far apart, back to front";
  EXPECT_EQ(count_of(program, CostClass::kGlobal, 256), 5u);
  EXPECT_EQ(count_of(program, CostClass::kAtomic, 256), 1u);
  EXPECT_EQ(count_of(program, CostClass::kOther, 256), 2u);
  EXPECT_EQ(count_of(program, CostClass::kMultiply, 256), 3u);
  EXPECT_EQ(count_of(program, CostClass::kConversion, 256), 1u);
  EXPECT_EQ(count_of(program, CostClass::kSpecial, 256), 2u);
  EXPECT_EQ(count_of(program, CostClass::kDivision, 256), 1u);
  EXPECT_EQ(count_of(program, CostClass::kExchange, 256), 1u);
  EXPECT_EQ(count_of(program, CostClass::kControl, 256), 1u) << "ret";
  EXPECT_EQ(count_of(program, CostClass::kArithmetic, 256), 3u + 1 + 4);
  EXPECT_EQ(counts.sms[0].issue16, 16 * (8u + 16 + 1));
}

TEST_P(ClockTest, GenericAddressesGoWhereTheyLead) {
  const Program program = kernel(R"(
	mov.u64 %rd4, s;
	cvta.shared.u64 %rd5, %rd4;
	st.u32 [%rd5], %r1;
	st.u32 [%rd3], %r1;
)",
                                 ".shared .align 4 .b8 s[4];");
  EXPECT_EQ(count_of(program, CostClass::kShared, 256), 1u);
  EXPECT_EQ(count_of(program, CostClass::kGlobal, 256), 1u);
  EXPECT_EQ(counts_of(program, 32).sectors, 4u);
}

TEST_P(ClockTest, BlocksBelongToMultiprocessors) {
  options_.grid = {3, 1, 1};
  options_.block = {64, 1, 1};
  for (const std::uint32_t workers : {1u, 3u}) {
    options_.workers = workers;
    const LaunchCounts counts = counts_of(kernel("	st.global.u32 [%rd3], %r1;\n"), 192);
    ASSERT_EQ(counts.sms.size(), 2u);
    EXPECT_EQ(counts.sms[0].blocks, 2u);
    EXPECT_EQ(counts.sms[1].blocks, 1u);
    // 10 instructions a warp, a cycle each; warps of a block go side by side.
    EXPECT_EQ(counts.sms[0].issue16, 2u * 2 * 10 * 16);
    EXPECT_EQ(counts.sms[1].issue16, 2u * 10 * 16);
    EXPECT_EQ(counts.sms[0].latency_cycles, 2u * 10);
    EXPECT_EQ(counts.sms[0].latency_cycles_max, 10u);
  }
}

TEST_P(ClockTest, WhoWaitsAtABarrierWaitsForTheSlowest) {
  cost(CostClass::kDivision, 16, 100);
  options_.block = {64, 1, 1};
  // The first warp divides in front of the barrier, the second one behind it.
  const Program program = kernel(R"(
	setp.lt.u32 %p1, %r12, 32;
	@!%p1 bra $wait;
	div.u32 %r4, %r1, %r2;
$wait:
	bar.sync 0;
	@%p1 bra $end;
	div.u32 %r4, %r1, %r2;
$end:
)");
  EXPECT_EQ(count_of(program, CostClass::kDivision, 64, 3), 2u);
  EXPECT_EQ(counts_of(program, 64, 3).sms[0].latency_cycles_max, 8u + 2 + 100 + 1 + 1 + 100 + 1);
}

TEST_P(ClockTest, WhatIsObservedCountsTheSame) {
  options_.grid = {4, 1, 1};
  options_.block = {64, 1, 1};
  cost(CostClass::kExchange, 16, 30);
  cost(CostClass::kConversion, 8, 3);
  const Program program = kernel(R"(
	.reg .b32 %x<9>;
	mov.u32 %r4, 0;
	and.b32 %x1, %r12, 7;
	setp.gt.u32 %p2, %x1, 4;
$again:
	add.u32 %r4, %r4, 1;
	@%p2 cvt.rn.f32.u32 %f1, %r4;
	@!%p2 mul.lo.u32 %x2, %r4, 3;
	setp.lt.u32 %p1, %r4, %r12;
	@%p2 bra $odd;
	xor.b32 %x3, %r4, %x1;
	activemask.b32 %x4;
	bra $next;
$odd:
	{
	.param .b32 arg;
	.param .b32 result;
	st.param.b32 [arg], %r4;
	call.uni (result), twice, (arg);
	ld.param.b32 %x5, [result];
	}
	@%p1 ld.global.u32 %x6, [%rd3];
$next:
	@%p1 bra $again;
	bar.warp.sync -1;
	shfl.sync.bfly.b32 %x7, %r4, 1, 31, -1;
	setp.eq.u32 %p3, %x1, 7;
	@%p3 exit;
	add.u32 %x8, %x7, 1;
	st.global.u32 [%rd3], %x8;
)",
                                 R"(.func (.param .b32 out) twice(.param .b32 in)
{
	.reg .b32 %r<3>; .reg .pred %p<2>;
	ld.param.b32 %r1, [in];
	setp.gt.u32 %p1, %r1, 9;
	@%p1 ret;
	add.u32 %r2, %r1, %r1;
	st.param.b32 [out], %r2;
	ret;
}
)");
  const LaunchCounts plain = counts_of(program, 256);
  Observations seen;
  options_.observe.hazards = true;
  options_.observations = &seen;
  const LaunchCounts observed = counts_of(program, 256);
  EXPECT_EQ(observed.sectors, plain.sectors);
  for (std::size_t i = 0; i < plain.sms.size(); ++i) {
    EXPECT_EQ(observed.sms[i].issue16, plain.sms[i].issue16);
    EXPECT_EQ(observed.sms[i].latency_cycles, plain.sms[i].latency_cycles);
  }
}

}  // namespace
}  // namespace kansoku::gpu::exec
