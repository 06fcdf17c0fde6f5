// SPDX-License-Identifier: Apache-2.0
// Graph, liveness, uniformity and linear forms over small kernels.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "gpu/ptx/cfg.h"
#include "gpu/ptx/linear_form.h"
#include "gpu/ptx/liveness.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/uniformity.h"
#include "gpu/ptx/verifier.h"

namespace kansoku::gpu::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Kernel {
 public:
  explicit Kernel(std::string_view body, std::string_view head = ".visible .entry k") {
    auto parsed = parse_module(fmt::format(
        "{}(.param .u64 p, .param .u32 n)\n{{\n.reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred "
        "%p<9>; .reg .f32 %f<9>;\n{}\n}}\n",
        head, body));
    EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().what);
    if (parsed) module = std::move(*parsed);
    cfg = build_cfg(function());
  }
  [[nodiscard]] const Function& function() const { return module.functions.at(0); }
  [[nodiscard]] std::uint32_t reg(std::string_view name) const {
    const auto& all = function().registers;
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Register& entry) { return entry.name == name; });
    EXPECT_NE(found, all.end()) << name;
    return static_cast<std::uint32_t>(found - all.begin());
  }
  [[nodiscard]] Uniformity uniformity(std::string_view name) const {
    return analyse_uniformity(function(), cfg).registers.at(reg(name));
  }

  Module module;
  Cfg cfg;
};

constexpr std::string_view kDiamond = R"(
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra A;
	mov.u32 %r2, 1;
	bra B;
A:	mov.u32 %r2, 2;
B:	mov.u32 %r3, %r2;
	ret;)";

TEST(Registers, BarriersThatReduceHaveAResult) {
  const Kernel kernel(R"(
	bar.sync 0, %r1;
	bar.red.popc.u32 %r2, %r3, %p1;
	barrier.cta.red.or.pred %p2, 0, %r4, !%p3;
	ret;)");
  const auto access = [&](std::size_t i) {
    return registers_of(kernel.function(), kernel.function().instructions.at(i));
  };
  EXPECT_THAT(access(0).writes, IsEmpty());
  EXPECT_THAT(access(1).writes, ElementsAre(kernel.reg("%r2")));
  EXPECT_THAT(access(1).reads, ElementsAre(kernel.reg("%r3"), kernel.reg("%p1")));
  EXPECT_THAT(access(2).writes, ElementsAre(kernel.reg("%p2")));
  EXPECT_THAT(access(2).reads, ElementsAre(kernel.reg("%r4"), kernel.reg("%p3")));
  EXPECT_THAT(verify(kernel.module), IsEmpty());
  const Kernel wrong("bar.red.or.pred %p2, 0, %r1; bar.red.popc.u32 %p1, 0, %p3; ret;");
  EXPECT_EQ(verify(wrong.module).size(), 3U) << "no predicate, of another width; no 32 bits";
}

TEST(Uniformity, WhatABarrierCountsIsTheWarps) {
  const Kernel kernel(R"(
	setp.eq.u32 %p1, %r9, %r9;
	bar.red.popc.u32 %r1, 0, %p1;
	mov.u32 %r2, %tid.x;
	setp.eq.u32 %p2, %r2, 3;
	bar.red.popc.u32 %r3, 0, %p2;
	ret;)");
  EXPECT_EQ(kernel.uniformity("%r1"), Uniformity::kWarp) << "threads of a block may have ended";
  EXPECT_EQ(kernel.uniformity("%r3"), Uniformity::kWarp);
}

TEST(Cfg, DiamondMeetsAtItsEnd) {
  const Kernel kernel(kDiamond);
  ASSERT_EQ(kernel.cfg.blocks.size(), 4U);
  EXPECT_THAT(kernel.cfg.blocks[0].successors, ElementsAre(2, 1));
  EXPECT_THAT(immediate_dominators(kernel.cfg), ElementsAre(kNoIndex, 0, 0, 0));
  EXPECT_THAT(immediate_post_dominators(kernel.cfg), ElementsAre(3, 3, 3, 4));
}

TEST(Cfg, LoopsAndThreadsThatNeverEnd) {
  const Kernel loop(R"(
	mov.u32 %r1, 0;
L:	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra L;
	@%p1 exit;
	ret;)");
  EXPECT_THAT(loop.cfg.blocks[1].successors, ElementsAre(1, 2));
  EXPECT_THAT(immediate_post_dominators(loop.cfg), ElementsAre(1, 2, 4, 4));
  const Kernel endless("L: bra L;");
  EXPECT_THAT(immediate_post_dominators(endless.cfg), ElementsAre(1));
  EXPECT_TRUE(dominates(immediate_dominators(loop.cfg), 0, 3));
  EXPECT_FALSE(dominates(immediate_dominators(loop.cfg), 3, 0));
  EXPECT_TRUE(build_cfg(Kernel("").function()).blocks.empty());
}

TEST(Cfg, IrreducibleGraphsHaveDominatorsToo) {
  const Kernel kernel(R"(
	@%p1 bra B;
A:	@%p2 bra B;
	ret;
B:	@%p3 bra A;
	ret;)");
  EXPECT_THAT(immediate_dominators(kernel.cfg), ElementsAre(kNoIndex, 0, 1, 0, 3));
}

TEST(Liveness, FollowsValuesAroundLoopsAndPastGuardedWrites) {
  const Kernel kernel(R"(
	mov.u32 %r1, 0;
	mov.u32 %r2, 5;
L:	add.u32 %r1, %r1, %r2;
	@%p2 mov.u32 %r3, %r1;
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra L;
	mov.u32 %r4, %r3;
	ret;)");
  const Liveness live = compute_liveness(kernel.function(), kernel.cfg);
  const auto names = [&](const RegisterSet& set) {
    std::vector<std::string> out;
    for (const std::uint32_t index : set.members())
      out.push_back(kernel.function().registers[index].name);
    std::sort(out.begin(), out.end());
    return out;
  };
  EXPECT_THAT(names(live.in[0]), ElementsAre("%p2", "%r3"));
  EXPECT_THAT(names(live.in[1]), ElementsAre("%p2", "%r1", "%r2", "%r3"));
  EXPECT_THAT(names(live.out[1]), ElementsAre("%p2", "%r1", "%r2", "%r3"));
  EXPECT_THAT(names(live.in[2]), ElementsAre("%r3"));
}

TEST(Uniformity, ComesFromOperands) {
  const Kernel kernel(R"(
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r1, %r3, 7;
	add.u32 %r5, %r4, %r2;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	ld.global.u32 %r6, [%rd3];
	setp.eq.u32 %p1, %r5, 0;
	vote.sync.any.pred %p2, %p1, -1;
	ret;)");
  EXPECT_EQ(kernel.uniformity("%rd1"), Uniformity::kGrid);
  EXPECT_EQ(kernel.uniformity("%r4"), Uniformity::kBlock);
  EXPECT_EQ(kernel.uniformity("%r5"), Uniformity::kVarying);
  EXPECT_EQ(kernel.uniformity("%rd3"), Uniformity::kBlock);
  EXPECT_EQ(kernel.uniformity("%r6"), Uniformity::kVarying);  // somebody may write there
  EXPECT_EQ(kernel.uniformity("%p2"), Uniformity::kWarp);
}

TEST(Uniformity, ArgumentsOfDeviceFunctionsAreEachThreadsOwn) {
  const Kernel kernel("ld.param.u64 %rd1, [p]; ret;", ".func k");
  EXPECT_EQ(kernel.uniformity("%rd1"), Uniformity::kVarying);
}

// A constant on either way, but which way a thread went is its own.
TEST(Uniformity, ComesFromControlToo) {
  const Kernel varying(fmt::format("mov.u32 %r1, %tid.x;{}", kDiamond));
  EXPECT_EQ(varying.uniformity("%r3"), Uniformity::kVarying);
  const auto result = analyse_uniformity(varying.function(), varying.cfg);
  EXPECT_THAT(result.is_divergent, ElementsAre(false, true, true, false));
  const Kernel uniform(fmt::format("ld.param.u32 %r1, [n];{}", kDiamond));
  EXPECT_EQ(uniform.uniformity("%r3"), Uniformity::kGrid);
  const Kernel block(fmt::format("mov.u32 %r1, %ctaid.y;{}", kDiamond));
  EXPECT_EQ(block.uniformity("%r3"), Uniformity::kBlock);
}

// Every round has the same value for all threads in it, but they leave in different rounds.
TEST(Uniformity, LoopsThatThreadsLeaveApart) {
  const Kernel kernel(R"(
	mov.u32 %r9, %tid.x;
	mov.u32 %r1, 0;
L:	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, %r9;
	@%p1 bra L;
	mov.u32 %r2, %r1;
	ret;)");
  EXPECT_EQ(kernel.uniformity("%r2"), Uniformity::kVarying);
}

std::string address_of(const Kernel& kernel, std::size_t instruction) {
  LinearForms forms(kernel.function());
  const Instruction& load = kernel.function().instructions[instruction];
  const auto form = forms.of_address(kernel.function().operand(load, 1));
  EXPECT_TRUE(form);
  return form ? print_form(kernel.module, kernel.function(), *form) +
                    (form->is_exact ? "" : " (if nothing wraps)")
              : "";
}

TEST(LinearForms, ExplainsTheUsualAddress) {
  const Kernel kernel(R"(
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.s32 %r4, %r1, %r2, %r3;
	mul.wide.s32 %rd3, %r4, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.f32 %f1, [%rd4+12];
	ret;)");
  EXPECT_EQ(address_of(kernel, 8), "12 + p + 4*tid.x + 4*ntid.x*ctaid.x (if nothing wraps)");
}

TEST(LinearForms, IsExactWhereNothingCanWrap) {
  const Kernel kernel(R"(
	.shared .b8 tile[64];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd1, %r1, 4;
	mov.u64 %rd2, tile;
	add.s64 %rd3, %rd2, %rd1;
	sub.s64 %rd4, %rd3, 4;
	shl.b64 %rd5, %rd4, 1;
	sub.s64 %rd6, %rd5, %rd4;
	ld.shared.f32 %f1, [%rd6];
	ret;)");
  EXPECT_EQ(address_of(kernel, 7), "-4 + 4*tid.x + tile");
}

TEST(LinearForms, WhatChangesIsASymbol) {
  const Kernel kernel(R"(
	ld.param.u64 %rd1, [p];
L:	ld.global.f32 %f1, [%rd1];
	add.s64 %rd1, %rd1, 4;
	mul.lo.u64 %rd2, %rd1, %rd1;
	mul.lo.u64 %rd3, %rd2, %rd2;
	ld.global.f32 %f2, [%rd3+8];
	@%p1 bra L;
	ret;)");
  EXPECT_EQ(address_of(kernel, 1), "%rd1");
  EXPECT_EQ(address_of(kernel, 5), "8 + %rd3");  // more than three factors
}

}  // namespace
}  // namespace kansoku::gpu::ptx
