// SPDX-License-Identifier: Apache-2.0
// Suffixes of instructions that the operation table does not hold: what is not understood is
// refused, never passed over. tests/gpu/check_forms.cc asks the same of the table.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/exec/kernel_for_test.h"

namespace kansoku::gpu::exec {
namespace {

class SuffixTest : public KernelTest {
 protected:
  std::string refused(std::string_view text) {
    return refusal_of(fmt::format(
        ".reg .b64 %rd<9>; .reg .pred %p<4>; .shared .align 16 .b8 s[512]; .param .b32 a;\n"
        "L: {}\nret;",
        text));
  }
};
INSTANTIATE_TEST_SUITE_P(AllInstructionSets, SuffixTest, KernelTest::all_isas(),
                         KernelTest::isa_of_case);

constexpr std::string_view kInstructions[] = {
    "ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%r1, %r2}, [%rd1];",
    "ld.relaxed.gpu.shared.u32 %r1, [s];",
    "ld.param.b32 %r1, [a];",
    "ldu.global.u32 %r1, [%rd1];",
    "st.volatile.global.u32 [%rd1], %r1;",
    "st.global.wt.v2.b32 [%rd1], {%r1, %r2};",
    "atom.global.gpu.add.u32 %r1, [%rd1], 1;",
    "atom.acq_rel.sys.shared.cas.b32 %r1, [s], 1, 2;",
    "red.relaxed.gpu.global.max.s32 [%rd1], 1;",
    "cvta.to.global.u64 %rd1, %rd2;",
    "isspacep.shared %p1, %rd1;",
    "mov.u32 %r1, %tid.x;",
    "mov.b64 %rd1, {%r1, %r2};",
    "mov.pred %p1, %p2;",
    "and.pred %p1, %p2, %p3;",
    "not.pred %p1, %p2;",
    "bra.uni L;",
    "ret.uni;",
    "exit;",
    "trap;",
    "bar.sync 0;",
    "bar.arrive 1, 64;",
    "bar.warp.sync -1;",
    "bar.cta.red.popc.u32 %r1, 0, %p1;",
    "barrier.cta.sync.aligned 0, 32;",
    "membar.gl;",
    "fence.acq_rel.gpu;",
    "nanosleep.u32 10;",
    "prefetch.global.L2 [%rd1];",
    "prefetch.global.L2::evict_last [%rd1];",
    "prefetch.L1 [%rd1];",
    "prefetchu.L1 [%rd1];",
    "griddepcontrol.wait;",
    "griddepcontrol.launch_dependents;",
    "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;",
    "vote.sync.ballot.b32 %r1, %p1, -1;",
    "match.any.sync.b32 %r1, %r2, -1;",
    "redux.sync.add.s32 %r1, %r2, -1;",
    "activemask.b32 %r1;",
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [s];",
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2}, {%r3}, {%r1, %r2};",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%r1, %r2}, [s], 16;",
    "wmma.store.d.sync.aligned.col.m8n32k16.f16 [%rd1], {%r1, %r2, %r3, %r4}, 8;",
    "cp.async.cg.shared.global.L2::128B [s], [%rd1], 16;",
    "cp.async.commit_group;",
    "cp.async.wait_group 0;",
};

TEST_P(SuffixTest, WhatIsUnderstoodRuns) {
  for (const std::string_view text : kInstructions)
    EXPECT_EQ(refused(text), "") << text;
}

TEST_P(SuffixTest, WhatIsNotIsRefused) {
  for (const std::string_view text : kInstructions) {
    const std::size_t end = text.find_first_of(" ;");
    const std::size_t dot = std::min(text.find('.'), end);
    for (const std::string_view word :
         {".rz", ".x4.x4", ".bulk", ".tanh", ".u16.u16.u16", ".shared::cluster", ".nonsense"}) {
      for (const std::size_t at : {dot, end}) {
        const std::string wrong = std::string(text).insert(at, word);
        EXPECT_NE(refused(wrong), "") << wrong;
      }
    }
    // Nothing may stand twice.
    if (dot == end) continue;
    for (std::size_t begin = dot; begin < end;) {
      const std::size_t next = std::min(text.find('.', begin + 1), end);
      const std::string word(text.substr(begin, next - begin));
      const std::string wrong = std::string(text).insert(end, word);
      EXPECT_NE(refused(wrong), "") << wrong;
      begin = next;
    }
  }
}

}  // namespace
}  // namespace kansoku::gpu::exec
