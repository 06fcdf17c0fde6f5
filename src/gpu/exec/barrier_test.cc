// SPDX-License-Identifier: Apache-2.0
// Barriers that some threads only pass by, and the barrier of a grid as a cooperative launch allows
// it: a counter in the launch's workspace, and blocks that wait in loops.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// A clock that goes on by a millisecond whenever somebody looks: a hang ends.
class LookedAtClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override {
    return BootTime{std::chrono::milliseconds{++looks_}};
  }

 private:
  mutable std::atomic<std::int64_t> looks_{0};
};

class BarrierTest : public KernelTest {
 protected:
  BarrierTest() {
    options_.clock = &clock_;
    options_.time_limit = std::chrono::seconds{60};
  }
  LookedAtClock clock_;
};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, BarrierTest, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

// Warp 0 produces and goes on, warp 1 waits for it: twice, so that a barrier begins anew.
TEST_P(BarrierTest, ArrivingCountsWithoutWaiting) {
  options_.block = {64, 1, 1};
  const auto text = [](std::string_view arrival) {
    return fmt::format(R"(
	.shared .align 4 .b8 s[256];
	.reg .b64 %s0;
	mov.u64 %s0, s;
	and.b32 %r20, %r12, 31;
	mul.wide.u32 %rd5, %r20, 4;
	add.u64 %s0, %s0, %rd5;
	setp.ge.u32 %p1, %r12, 32;
	@%p1 bra CONSUME;
	add.u32 %r21, %r20, 100;
	st.shared.u32 [%s0], %r21;
	{0} 1, 64;
	bar.sync 2, 64;
	add.u32 %r21, %r20, 200;
	st.shared.u32 [%s0], %r21;
	{0} 1, 64;
	bra END;
CONSUME:
	bar.sync 1, 64;
	ld.shared.u32 %r22, [%s0];
	bar.sync 2, 64;
	bar.sync 1, 64;
	ld.shared.u32 %r23, [%s0];
	mad.lo.u32 %r22, %r22, 1000, %r23;
	st.global.u32 [%rd3], %r22;
END:)",
                       arrival);
  };
  for (const std::string_view arrival : {"bar.arrive", "barrier.cta.arrive.aligned", "bar.sync"}) {
    const Words words = run(kernel(text(arrival)), 64);
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(words[32 + lane], (100 + lane) * 1000 + 200 + lane) << arrival;
  }
  EXPECT_THAT(fault_of(kernel(text("bar.arrive 3, 64; //")), 64), HasSubstr("deadlock"))
      << "nobody arrives at the consumer's barrier";
}

TEST_P(BarrierTest, OthersMayWaitForWhatStandsBehindABarrier) {
  options_.block = {96, 1, 1};
  const Program program = kernel(R"(
	.shared .align 4 .b8 flag[4];
	setp.ge.u32 %p1, %r12, 64;
	@%p1 bra SPIN;
	bar.sync 1, 64;
	st.volatile.shared.u32 [flag], 1;
	bra END;
SPIN:
	ld.volatile.shared.u32 %r20, [flag];
	setp.eq.u32 %p2, %r20, 0;
	@%p2 bra SPIN;
	st.global.u32 [%rd3], %r20;
END:)");
  const Words words = run(program, 96);
  EXPECT_THAT(std::span(words).last(32), Each(1U));
}

TEST_P(BarrierTest, ABlockHasSixteen) {
  EXPECT_THAT(fault_of(kernel("bar.sync %r2;"), 32, 16), HasSubstr("beyond the 16"));
  EXPECT_THAT(fault_of(kernel("bar.arrive %r2, 64;"), 32, 16), HasSubstr("beyond the 16"));
  EXPECT_EQ(fault_of(kernel("bar.sync %r2;"), 32, 15), "");
  EXPECT_THAT(refusal_of("bar.arrive 1;"), HasSubstr("number of operands"));
}

// --- the grid ------------------------------------------------------------------------------------

// Code that a header may write for grid.sync(): the last block to come opens the next generation.
// The first of its threads stands for each block.
constexpr std::string_view kGridBarrier = R"({
	.reg .b32 gl, gh, ga, gg, gn; .reg .b64 gw; .reg .pred gp, gf;
	bar.sync 0;
	setp.ne.u32 gf, %r12, 0;
	@gf bra OVER;
	mov.u32 gl, %envreg1;
	mov.u32 gh, %envreg2;
	mov.b64 gw, {gl, gh};
	mov.u32 gn, %nctaid.x;
	sub.u32 gn, gn, 1;
	fence.acq_rel.gpu;
	ld.acquire.gpu.global.u32 gg, [gw+4];
	atom.global.gpu.add.u32 ga, [gw], 1;
	setp.eq.u32 gp, ga, gn;
	@gp bra LAST;
WAIT:
	ld.acquire.gpu.global.u32 ga, [gw+4];
	setp.eq.u32 gp, ga, gg;
	@gp bra WAIT;
	bra OVER;
LAST:
	st.relaxed.gpu.global.u32 [gw], 0;
	fence.acq_rel.gpu;
	atom.global.gpu.add.u32 ga, [gw+4], 1;
OVER:
	bar.sync 0;
	})";

// Round after round each block hands what it has to the next one, and counts one up. Blocks with an
// odd number take longer: blocks that run alike keep step by chance.
std::string rounds(std::string_view barrier) {
  return fmt::format(R"(
	mov.u32 %r20, 0;
	mov.u32 %r25, %nctaid.x;
	and.b32 %r31, %r10, 1;
	setp.ne.u32 %p6, %r31, 0;
ROUND:
	mul.lo.u32 %r21, %r20, %r2;
	mad.lo.u32 %r22, %r10, 64, %r12;
	add.u32 %r23, %r22, 64;
	mul.lo.u32 %r24, %r25, 64;
	rem.u32 %r23, %r23, %r24;
	mul.wide.u32 %rd5, %r22, 4;
	add.u64 %rd5, %rd1, %rd5;
	mul.wide.u32 %rd6, %r23, 4;
	add.u64 %rd6, %rd1, %rd6;
	ld.global.u32 %r30, [%rd5];
	@%p6 bar.sync 0;
	{0}
	add.u32 %r30, %r30, 1;
	st.global.u32 [%rd6], %r30;
	{0}
	add.u32 %r20, %r20, 1;
	setp.lt.u32 %p5, %r20, 12;
	@%p5 bra ROUND;)",
                     barrier);
}

class GridBarrier : public BarrierTest {
 protected:
  static constexpr std::uint32_t kBlocks = 37, kThreads = 64;
  void SetUp() override {
    BarrierTest::SetUp();
    options_.block = {kThreads, 1, 1};
    options_.grid = {kBlocks, 1, 1};
    options_.is_cooperative = true;
  }
  /// Blocks whose threads hold what 12 hand-overs bring there.
  std::uint32_t right_blocks(const Program& program) {
    Words words(std::size_t{kBlocks} * kThreads);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = static_cast<std::uint32_t>(i) * 100;
    const Words got = run_on(program, words);
    std::uint32_t right = 0;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      const std::uint32_t from = (block + kBlocks - 12 % kBlocks) % kBlocks;
      bool is_right = true;
      for (std::uint32_t i = 0; i < kThreads; ++i)
        is_right = is_right && got[block * kThreads + i] == (from * kThreads + i) * 100 + 12;
      right += is_right ? 1 : 0;
    }
    return right;
  }
};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, GridBarrier, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

TEST_P(GridBarrier, BlocksMeetAgainAndAgain) {
  const Program program = kernel(rounds(kGridBarrier));
  for (const std::uint32_t workers : {1U, 2U, 5U}) {
    options_.workers = workers;
    for (int launch = 0; launch < 3; ++launch)
      EXPECT_EQ(right_blocks(program), kBlocks) << workers << " workers";
  }
}

// Without a barrier the same kernel is wrong: the test above sees what it is for.
TEST_P(GridBarrier, ABarrierThatDoesNothingIsSeen) {
  EXPECT_LT(right_blocks(kernel(rounds(""))), kBlocks);
  EXPECT_LT(right_blocks(kernel(rounds("bar.sync 0;"))), kBlocks);
}

TEST_P(GridBarrier, LaunchesAtOnceDoNotMeet) {
  const Program program = kernel(rounds(kGridBarrier));
  std::vector<std::thread> threads;
  std::array<std::string, 3> faults;
  std::array<std::uint64_t, 3> outs{};
  for (auto& out : outs)
    out = upload(Words(std::size_t{kBlocks} * kThreads));
  for (std::size_t i = 0; i < outs.size(); ++i) {
    threads.emplace_back([&, i] {
      LaunchOptions options = options_;
      options.workers = 1;
      std::array<std::byte, 12> params{};
      std::memcpy(params.data(), &outs[i], sizeof outs[i]);
      options.params = params;
      const auto fault = launch(program, 0, memory_, options);
      faults[i] = !fault ? fault.error().what : *fault ? (*fault)->text() : "";
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_THAT(faults, Each(""));
  for (const std::uint64_t out : outs)
    EXPECT_THAT(download(out, std::size_t{kBlocks} * kThreads), Each(12U));
}

TEST_P(GridBarrier, OtherLaunchesHaveNoWorkspace) {
  const Program program = kernel(R"(
	mov.u32 %r20, %envreg1;
	mov.u32 %r21, %envreg2;
	or.b32 %r20, %r20, %r21;
	st.global.u32 [%rd3], %r20;)");
  options_.grid = {1, 1, 1};
  options_.is_cooperative = false;
  EXPECT_THAT(run(program, kThreads), Each(0U));
  options_.is_cooperative = true;
  EXPECT_THAT(run(program, kThreads), Each(::testing::Ne(0U)));
}

}  // namespace
}  // namespace kansoku::gpu::exec
