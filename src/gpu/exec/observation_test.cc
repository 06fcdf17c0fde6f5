// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/observation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"

namespace kansoku::gpu::exec {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kThreads = 64;

struct Outcome {
  std::optional<Fault> fault;
  Observations seen;
  std::vector<std::uint32_t> out;
  std::uint64_t out_address{0};
};

Program load(std::string_view text, Memory& memory) {
  auto module = ptx::parse_module(text);
  EXPECT_TRUE(module) << (module ? "" : module.error().what);
  EXPECT_THAT(ptx::verify(*module), IsEmpty());
  auto program = Program::load(std::move(*module), memory);
  EXPECT_TRUE(program) << (program ? "" : program.error().what);
  return std::move(*program);
}

/// Kernel k(out) with 256 bytes of shared memory s, twice that of `out`, and %r1 the thread's
/// index, %r2 four times that.
std::string kernel(std::string_view body) {
  return fmt::format(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
	.reg .b16 %rs<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;
	.shared .align 16 .b8 s[256];
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	cvt.u64.u32 %rd2, %r2;
	ld.param.u64 %rd1, [out];
	add.u64 %rd3, %rd1, %rd2;
	mov.u64 %rd4, s;
	add.u64 %rd5, %rd4, %rd2;
{}
	ret;
}})",
                     body);
}

Outcome observe(std::string_view body, const Observe& what, std::uint32_t blocks = 1,
                std::uint32_t workers = 1) {
  auto memory = Memory::create(std::uint64_t{1} << 20).value();
  const Program program = load(kernel(body), memory);
  Outcome outcome;
  outcome.out.resize(2 * kThreads * blocks);
  outcome.out_address = memory.allocate(outcome.out.size() * 4).value();
  LaunchOptions options;
  options.grid = {blocks, 1, 1};
  options.block = {kThreads, 1, 1};
  options.workers = workers;
  const auto params = std::as_bytes(std::span(&outcome.out_address, 1));
  options.params = params;
  options.observe = what;
  options.observations = &outcome.seen;
  auto fault = launch(program, 0, memory, options);
  EXPECT_TRUE(fault) << (fault ? "" : fault.error().what);
  outcome.fault = *fault;
  std::memcpy(outcome.out.data(),
              reinterpret_cast<const void*>(static_cast<std::uintptr_t>(outcome.out_address)),
              outcome.out.size() * 4);
  return outcome;
}

/// A bug, the same without it, and what must be said.
struct Planted {
  std::string_view name;
  FaultKind kind;
  std::string_view bug, twin;
  std::string_view text;  // part of the message
};

// Lines of a body begin at 15.
const Planted kPlanted[] = {
    {"store behind the end", FaultKind::kOutOfBounds, "	st.global.u32 [%rd3+512], %r1;",
     "	st.global.u32 [%rd3+256], %r1;", "store of 4 bytes"},
    {"load in front of the begin", FaultKind::kOutOfBounds, "	ld.global.u32 %r3, [%rd3+-4];",
     "	ld.global.u32 %r3, [%rd3];", "thread (0, 0, 0)"},
    {"shared store behind the end", FaultKind::kOutOfBounds, "	st.shared.u32 [%rd5+4], %r1;",
     "	st.shared.u32 [%rd5], %r1;", "thread (63, 0, 0)"},
    {"generic load of nothing", FaultKind::kOutOfBounds,
     "	mov.u64 %rd6, 64;\n	ld.u32 %r3, [%rd6];", "	ld.u32 %r3, [%rd3];", "line 16"},
    {"store at an odd address", FaultKind::kMisaligned, "	st.global.u32 [%rd3+2], %r1;",
     "	st.global.u16 [%rd3+2], %rs1;", "misaligned store"},
    {"vector not aligned", FaultKind::kMisaligned, "	ld.global.v2.u32 {%r3, %r4}, [%rd3];",
     "	add.u64 %rd3, %rd3, %rd2;\n	ld.global.v2.u32 {%r3, %r4}, [%rd3];", "thread (1, 0, 0)"},
    {"shared vector not aligned", FaultKind::kMisaligned,
     "	st.shared.v4.u32 [s+8], {%r1, %r1, %r1, %r1};",
     "	setp.eq.u32 %p1, %r1, 0;\n	@%p1 st.shared.v4.u32 [s+16], {%r1, %r1, %r1, %r1};",
     "store of 16 bytes"},
    {"read of what nobody wrote", FaultKind::kUninitialisedShared, "	ld.shared.u32 %r3, [%rd5];",
     "	st.shared.u32 [%rd5], %r1;\n	ld.shared.u32 %r3, [%rd5];", "load of 4 bytes at 0x0"},
    {"half of a word is written", FaultKind::kUninitialisedShared,
     "	st.shared.u16 [%rd5], %rs1;\n	ld.shared.u32 %r3, [%rd5];",
     "	st.shared.u16 [%rd5], %rs1;\n	st.shared.u16 [%rd5+2], %rs1;\n"
     "	ld.shared.u32 %r3, [%rd5];",
     "line 16"},
    {"counter never set to zero", FaultKind::kUninitialisedShared,
     "	atom.shared.add.u32 %r3, [s], 1;",
     "	setp.eq.u32 %p1, %r1, 0;\n	@%p1 st.shared.u32 [s], 0;\n	bar.sync 0;\n"
     "	atom.shared.add.u32 %r3, [s], 1;",
     "thread (0, 0, 0)"},
    {"neighbour's value without a barrier", FaultKind::kSharedRace,
     "	st.shared.u32 [%rd5], %r1;\n	xor.b32 %r3, %r2, 128;\n	cvt.u64.u32 %rd6, %r3;\n"
     "	add.u64 %rd6, %rd6, %rd4;\n	ld.shared.u32 %r4, [%rd6];\n	st.global.u32 [%rd3], %r4;",
     "	st.shared.u32 [%rd5], %r1;\n	xor.b32 %r3, %r2, 128;\n	cvt.u64.u32 %rd6, %r3;\n"
     "	add.u64 %rd6, %rd6, %rd4;\n	bar.sync 0;\n	ld.shared.u32 %r4, [%rd6];\n"
     "	st.global.u32 [%rd3], %r4;",
     "no barrier between"},
    {"neighbour within a warp", FaultKind::kSharedRace,
     "	st.shared.u32 [%rd5], %r1;\n	xor.b32 %r3, %r2, 4;\n	cvt.u64.u32 %rd6, %r3;\n"
     "	add.u64 %rd6, %rd6, %rd4;\n	ld.shared.u32 %r4, [%rd6];",
     "	st.shared.u32 [%rd5], %r1;\n	xor.b32 %r3, %r2, 4;\n	cvt.u64.u32 %rd6, %r3;\n"
     "	add.u64 %rd6, %rd6, %rd4;\n	bar.warp.sync -1;\n	ld.shared.u32 %r4, [%rd6];",
     "after the store at line 15"},
    {"read, then overwritten by another", FaultKind::kSharedRace,
     "	st.shared.u32 [%rd5], %r1;\n	bar.sync 0;\n	ld.shared.u32 %r3, [s+4];\n"
     "	st.shared.u32 [%rd5], %r3;",
     "	st.shared.u32 [%rd5], %r1;\n	bar.sync 0;\n	ld.shared.u32 %r3, [s+4];\n"
     "	bar.sync 0;\n	st.shared.u32 [%rd5], %r3;",
     "after the load at line 17"},
    {"all write one place", FaultKind::kSharedRace, "	st.shared.u32 [s], %r1;",
     "	setp.eq.u32 %p1, %r1, 0;\n	@%p1 st.shared.u32 [s], %r1;", "store of 4 bytes at 0x0"},
    {"barrier of half of the warps", FaultKind::kSharedRace,
     "	st.shared.u32 [%rd5], %r1;\n	setp.lt.u32 %p1, %r1, 32;\n	@%p1 bar.sync 1, 32;\n"
     "	ld.shared.u32 %r3, [s];",
     "	st.shared.u32 [%rd5], %r1;\n	setp.lt.u32 %p1, %r1, 32;\n	@%p1 bar.sync 1, 32;\n"
     "	@!%p1 bra $end;\n	ld.shared.u32 %r3, [s];\n$end:",
     "thread (32, 0, 0)"},
    {"barrier in one arm", FaultKind::kBarrierDivergence,
     "	setp.lt.u32 %p1, %r1, 16;\n	@%p1 bar.sync 0;\n	add.u32 %r3, %r1, 1;\n	bar.sync "
     "0;",
     "	setp.lt.u32 %p1, %r1, 16;\n	bar.sync 0;\n	@%p1 add.u32 %r3, %r1, 1;\n	bar.sync "
     "0;",
     "ptx line 16"},
    {"lanes end in front of a barrier", FaultKind::kBarrierDivergence,
     "	setp.lt.u32 %p1, %r1, 16;\n	@%p1 bra $end;\n	bar.sync 0;\n$end:",
     "	setp.lt.u32 %p1, %r1, 32;\n	@%p1 bra $end;\n	bar.sync 0;\n$end:",
     "ended at line 19 while others waited"},
    {"each arm has its own barrier", FaultKind::kBarrierDivergence,
     "	setp.lt.u32 %p1, %r1, 16;\n	@%p1 bra $less;\n	bar.sync 0;\n	bra $end;\n$less:\n"
     "	bar.sync 0;\n$end:",
     "	setp.lt.u32 %p1, %r1, 32;\n	@%p1 bra $less;\n	bar.sync 0;\n	bra $end;\n$less:\n"
     "	bar.sync 0;\n$end:",
     "barrier divergence"},
};

std::string said(const Outcome& outcome) {
  std::string text = outcome.fault ? outcome.fault->text() + "\n" : "";
  for (const Fault& hazard : outcome.seen.hazards)
    text += hazard.text() + "\n";
  return text;
}

TEST(ObservationTest, FindsEveryPlantedBugAndNothingInItsTwin) {
  const Observe what{.hazards = true};
  for (const Planted& planted : kPlanted) {
    SCOPED_TRACE(planted.name);
    const Outcome bug = observe(planted.bug, what);
    EXPECT_THAT(said(bug), HasSubstr(planted.text));
    if (bug.fault) {
      EXPECT_EQ(bug.fault->kind, planted.kind);
    } else {
      ASSERT_FALSE(bug.seen.hazards.empty());
      EXPECT_THAT(bug.seen.hazards, Contains(Field(&Fault::kind, planted.kind)));
      EXPECT_GE(bug.seen.hazard_count, bug.seen.hazards.size());
    }
    const Outcome twin = observe(planted.twin, what);
    EXPECT_EQ(said(twin), "");
  }
}

TEST(ObservationTest, SameValueFromLanesOfOneInstructionIsNoRace) {
  EXPECT_EQ(said(observe("	setp.lt.u32 %p1, %r1, 32;\n	@%p1 st.shared.u32 [s], 7;",
                         {.hazards = true})),
            "");
}

TEST(ObservationTest, HazardsAreBoundedAndCounted) {
  std::string body;
  for (int i = 0; i < 150; ++i)
    body += "	ld.shared.u32 %r3, [%rd5];\n";
  const Outcome outcome = observe(body, {.hazards = true}, 2);
  EXPECT_EQ(outcome.seen.hazards.size(), Observations::kHazardsMax);
  EXPECT_EQ(outcome.seen.hazard_count, 2U * 150 * kThreads);
}

TEST(ObservationTest, CountsInstructionsBranchesSectorsAndPasses) {
  const Outcome outcome = observe(
      "	st.shared.u32 [%rd5], %r1;\n"  // 2 warps, one pass each
      "	shl.b32 %r3, %r1, 7;\n"        // all lanes in one bank, modulo 256 bytes:
      "	and.b32 %r3, %r3, 128;\n"      // two words
      "	cvt.u64.u32 %rd6, %r3;\n"
      "	add.u64 %rd6, %rd6, %rd4;\n"
      "	bar.sync 0;\n"
      "	ld.shared.u32 %r4, [%rd6];\n"
      "	st.global.u32 [%rd3], %r4;\n"  // 128 bytes a warp: 4 sectors
      "	setp.lt.u32 %p1, %r1, 8;\n"
      "	@%p1 bra $end;\n"  // one of two warps diverges
      "	add.u64 %rd7, %rd3, %rd2;\n"
      "	st.global.u32 [%rd7], %r4;\n"  // every second word
      "$end:",
      {.profile = true});
  const Profile& profile = outcome.seen.profile;
  const auto count = [&](InstructionClass which) {
    return profile.classes[static_cast<std::size_t>(which)];
  };
  EXPECT_EQ(count(InstructionClass::kSharedStore).warps, 2U);
  EXPECT_EQ(count(InstructionClass::kSharedLoad).threads, 64U);
  EXPECT_EQ(count(InstructionClass::kGlobalStore).warps, 4U);
  EXPECT_EQ(count(InstructionClass::kGlobalStore).threads, 64U + 56U);
  EXPECT_EQ(count(InstructionClass::kBarrier).warps, 2U);
  EXPECT_EQ(profile.branches, 2U);
  EXPECT_EQ(profile.divergent_branches, 1U);
  EXPECT_EQ(profile.shared_requests, 4U);
  EXPECT_EQ(profile.shared_passes, 2U + 2U * 2U);
  EXPECT_EQ(profile.shared_passes_needed, 4U);
  EXPECT_EQ(profile.global_requests, 4U);
  EXPECT_EQ(profile.global_sectors, 2U * 4U + 6U + 8U);
  EXPECT_EQ(profile.global_sectors_needed, 2U * 4U + 3U + 4U);
  // Lines of the text, each with its count; the total is that of the classes.
  InstructionCount total;
  for (const Profile::Line& line : profile.lines) {
    total.warps += line.count.warps;
    total.threads += line.count.threads;
    if (line.line == 15) {
      EXPECT_EQ(line.count.threads, 64U);
    }
  }
  EXPECT_EQ(total.warps, profile.total().warps);
  EXPECT_EQ(total.threads, profile.total().threads);
  EXPECT_EQ(profile.total().threads, 64U * 20 - 8U * 2);
}

TEST(ObservationTest, GivesTheBytesReadAndWritten) {
  // Reads its own word, writes it, reads the next thread's second half of the buffer.
  const Outcome outcome = observe(
      "	ld.global.u32 %r3, [%rd3];\n	st.global.u32 [%rd3], %r1;\n"
      "	ld.global.u32 %r4, [%rd3];\n	st.global.u16 [%rd3+256], %rs1;\n"
      "	ld.global.u16 %rs2, [%rd3+256];",
      {.access_sets = true});
  const std::uint64_t a = outcome.out_address;
  const AccessSets& sets = outcome.seen.sets;
  ASSERT_EQ(sets.read_first.size(), 1U);
  EXPECT_EQ(sets.read_first[0].begin, a);
  EXPECT_EQ(sets.read_first[0].end, a + 256);
  ASSERT_EQ(sets.written.size(), 1U + 63U);
  EXPECT_EQ(sets.written[0].begin, a);
  EXPECT_EQ(sets.written[0].end, a + 256 + 2);
  EXPECT_EQ(sets.written[1].begin, a + 256 + 4);
  EXPECT_EQ(sets.read.size(), 1U + 63U);
}

TEST(ObservationTest, LookingChangesNoResultAndDoesNotDependOnWorkers) {
  const std::string_view body =
      "	mov.u32 %r5, %ctaid.x;\n	shl.b32 %r6, %r5, 9;\n	cvt.u64.u32 %rd6, %r6;\n"
      "	add.u64 %rd7, %rd3, %rd6;\n	st.shared.u32 [%rd5], %r1;\n	bar.sync 0;\n"
      "	ld.shared.u32 %r7, [s+12];\n	mad.lo.u32 %r8, %r7, %r1, %r5;\n"
      "	st.global.u32 [%rd7], %r8;";
  const Observe all{true, true, true};
  const Outcome plain = observe(body, {}, 8), one = observe(body, all, 8),
                three = observe(body, all, 8, 3);
  EXPECT_EQ(plain.out, one.out);
  EXPECT_EQ(plain.out, three.out);
  EXPECT_EQ(one.seen.profile.total().threads, three.seen.profile.total().threads);
  EXPECT_EQ(one.seen.sets.written.size(), 8U);
  EXPECT_EQ(three.seen.sets.written.size(), 8U);
  EXPECT_EQ(said(three), "");
}

TEST(ObservationTest, TheExamplesAreClean) {
  for (const std::string_view name :
       {"vector_add", "sgemm", "softmax", "histogram", "reduction", "layer_norm"}) {
    SCOPED_TRACE(name);
    std::ifstream file(fmt::format("{}/tests/data/ptx/{}.ptx", KANSOKU_SOURCE_DIR, name));
    std::stringstream text;
    text << file.rdbuf();
    auto memory = Memory::create(std::uint64_t{4} << 20).value();
    const Program program = load(text.str(), memory);
    const KernelInfo& info = program.kernels()[0];
    // Buffers for every pointer, 64 for every number; a matrix of 64 x 64 fits.
    std::vector<std::byte> params(info.params_total_bytes);
    for (std::size_t i = 0; i < info.param_bytes.size(); ++i) {
      const std::uint64_t value =
          info.param_bytes[i] == 8 ? memory.allocate(std::uint64_t{64} << 10).value() : 64;
      std::memcpy(params.data() + info.param_offsets[i], &value, info.param_bytes[i]);
    }
    Outcome outcome;
    LaunchOptions options;
    options.grid = name == "sgemm" ? std::array{4U, 4U, 1U} : std::array{2U, 1U, 1U};
    options.block = name == "sgemm" ? std::array{16U, 16U, 1U} : std::array{256U, 1U, 1U};
    options.params = params;
    options.observe = {true, true, true};
    options.observations = &outcome.seen;
    outcome.fault = launch(program, 0, memory, options).value();
    EXPECT_EQ(said(outcome), "");
    EXPECT_FALSE(outcome.seen.sets.written.empty());
  }
}

TEST(ObservationTest, CooperativeBlocksMayWaitForEachOther) {
  auto memory = Memory::create(std::uint64_t{1} << 20).value();
  // Block 0 waits until all others have counted themselves.
  const Program program = load(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %nctaid.x;
	sub.u32 %r3, %r2, 1;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra $other;
$wait:
	ld.acquire.gpu.global.u32 %r4, [%rd1];
	setp.lt.u32 %p2, %r4, %r3;
	@%p2 bra $wait;
	bra $end;
$other:
	red.global.add.u32 [%rd1], 1;
$end:
	ret;
})",
                               memory);
  const std::uint64_t out = memory.allocate(4).value();
  for (const std::uint32_t workers : {1U, 2U}) {
    LaunchOptions options;
    options.grid = {40, 1, 1};
    options.sm_count = 2;
    options.workers = workers;
    options.is_cooperative = true;
    options.params = std::as_bytes(std::span(&out, 1));
    const auto fault = launch(program, 0, memory, options);
    ASSERT_TRUE(fault) << fault.error().what;
    EXPECT_FALSE(*fault);
    options.grid = {65, 1, 1};
    const auto refused = launch(program, 0, memory, options);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().what, HasSubstr("64 can be resident"));
  }
}

}  // namespace
}  // namespace kansoku::gpu::exec
