// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/memory_access.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"

namespace kansoku::gpu::ptx {
namespace {

std::string text_of(const MemoryAccess& access) {
  const std::string_view kind = access.kind == MemoryAccess::Kind::kLoad    ? "load"
                                : access.kind == MemoryAccess::Kind::kStore ? "store"
                                                                            : "atomic";
  return fmt::format("{}{} {}x{} operand {}{}{}", kind, space_name(access.space), access.count,
                     access.bytes, access.operand, access.is_strong ? " strong" : "",
                     access.is_tile ? " tile" : "");
}

/// Accesses of the instruction, as text.
std::string accesses_of(std::string_view instruction) {
  auto module = parse_module(fmt::format(
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %q; .shared .align 16 .b8 s[64];\n{}\n}}\n",
      instruction));
  EXPECT_TRUE(module) << (module ? "" : module.error().what);
  EXPECT_TRUE(verify(*module).empty()) << instruction;
  const Function& function = module->functions[0];
  std::string text;
  for (const MemoryAccess& access : memory_access(function, function.instructions[0])) {
    EXPECT_EQ(function.operand(function.instructions[0], access.operand).kind,
              OperandKind::kAddress);
    text += (text.empty() ? "" : ", ") + text_of(access);
  }
  return text;
}

TEST(MemoryAccess, SaysWhereAndHowMuch) {
  EXPECT_EQ(accesses_of("ld.global.nc.v4.f32 {%r1, %r2, %r3, %r4}, [%rd1];"),
            "load.global 4x4 operand 1");
  EXPECT_EQ(accesses_of("ld.param.u64 %rd1, [p];"), "load.param 1x8 operand 1");
  EXPECT_EQ(accesses_of("ldu.global.u16 %r1, [%rd1];"), "load.global 1x2 operand 1");
  EXPECT_EQ(accesses_of("ld.volatile.u8 %r1, [%rd1];"), "load 1x1 operand 1 strong");
  EXPECT_EQ(accesses_of("st.shared.v2.b64 [s], {%rd1, %rd2};"), "store.shared 2x8 operand 0");
  EXPECT_EQ(accesses_of("st.release.gpu.global.u32 [%rd1], %r1;"),
            "store.global 1x4 operand 0 strong");
  EXPECT_EQ(accesses_of("atom.global.cas.b64 %rd1, [%rd2], %rd3, %rd4;"),
            "atomic.global 1x8 operand 1 strong");
  EXPECT_EQ(accesses_of("red.shared::cta.add.u32 [s], %r1;"), "atomic.shared 1x4 operand 0 strong");
}

TEST(MemoryAccess, CopiesHaveTwoAndTilesLieApart) {
  EXPECT_EQ(accesses_of("cp.async.ca.shared.global [s], [%rd1], 8;"),
            "load.global 1x8 operand 1, store.shared 1x8 operand 0");
  EXPECT_EQ(accesses_of("ldmatrix.sync.aligned.m8n8.x2.b16 {%r1, %r2}, [%rd1];"),
            "load.shared 1x16 operand 1 tile");
  EXPECT_EQ(accesses_of("wmma.load.a.sync.aligned.row.m8n32k16.f16 {%r1, %r2}, [%rd1], 16;"),
            "load 4x2 operand 1 tile");
  EXPECT_EQ(accesses_of("wmma.load.b.sync.aligned.col.m8n32k16.shared.s8 {%r1, %r2}, [s];"),
            "load.shared 16x1 operand 1 tile");
  EXPECT_EQ(accesses_of("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%r1}, 16;"),
            "store.global 8x4 operand 0 tile");
}

TEST(MemoryAccess, OthersHaveNone) {
  for (const std::string_view text :
       {"add.u32 %r1, %r2, %r3;", "prefetch.global.L2 [%rd1];", "cp.async.commit_group;",
        "cvta.to.global.u64 %rd1, %rd2;", "bar.sync 0;", "ret;",
        "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%r1}, {%r1}, {%r1}, {%r1};"})
    EXPECT_EQ(accesses_of(text), "") << text;
}

}  // namespace
}  // namespace kansoku::gpu::ptx
