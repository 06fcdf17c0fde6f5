// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/kernel_code.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kansoku::capture {
namespace {

KernelCode code_of(const std::string& text) {
  std::istringstream symbols(text);
  return KernelCode::read(symbols);
}

// Out of order, as modules are; data and a function of a module among them.
constexpr const char* kSymbols =
    "ffffffff81000c60 T asm_exc_page_fault\n"
    "ffffffff81000d40 T asm_common_interrupt\n"
    "ffffffff81304970 T __x64_sys_mmap\n"
    "ffffffff813049d0 T __ia32_sys_mmap\n"
    "ffffffff81305000 t __do_sys_brk\n"
    "ffffffff81305800 T ksys_mmap_pgoff\n"
    "ffffffff81306000 T __vm_munmap\n"
    "ffffffff81306800 T after\n"
    "ffffffff81360070 t handle_softirqs\n"
    "ffffffff81360400 T do_softirq\n"
    "ffffffff81360600 t __irq_exit_rcu\n"
    "ffffffff81360700 T after_exit\n"
    "ffffffff821f2ed0 T exc_page_fault\n"
    "ffffffff821f2fd0 T exc_other\n"
    "ffffffff815ad480 T try_to_free_mem_cgroup_pages\n"
    "ffffffff815ad900 T next\n"
    "ffffffff815843c0 T uprobe_notify_resume\n"
    "ffffffff81584900 T next2\n"
    "ffffffff82900000 D sysvec_of_data\n"
    "ffffffffc0200000 t helper\t[module]\n"
    "ffffffff81249030 T x64_sys_call\n"
    "ffffffff81249999 T end\n";

TEST(KernelCode, TheInnermostFrameThatTellsDecides) {
  const KernelCode code = code_of(kSymbols);
  ASSERT_TRUE(code.is_known());
  const std::uint64_t call = 0xffffffff81304980, fault = 0xffffffff821f2f00,
                      softirq = 0xffffffff81360100, reclaim = 0xffffffff815ad500,
                      probe = 0xffffffff81584400, dispatch = 0xffffffff81249040;
  const auto use = [&](std::vector<std::uint64_t> frames) { return code.use_of(frames); };
  EXPECT_EQ(use({dispatch, call}), (KernelUse{KernelPart::kCall, "mmap"}));
  EXPECT_EQ(use({0xffffffff81305010}), (KernelUse{KernelPart::kCall, "brk"}));
  EXPECT_EQ(use({0xffffffff81305810}), (KernelUse{KernelPart::kCall, "mmap"}));
  EXPECT_EQ(use({0xffffffff81306010}), (KernelUse{KernelPart::kCall, "munmap"}));
  EXPECT_EQ(use({dispatch, fault, call}).part, KernelPart::kPageFaults);
  EXPECT_EQ(use({reclaim, fault}).part, KernelPart::kReclaim);
  const std::uint64_t exit = 0xffffffff81360610, sent = 0xffffffff81360410;
  EXPECT_EQ(use({softirq, exit, reclaim, fault}).part, KernelPart::kInterrupts);
  EXPECT_EQ(use({softirq, sent, dispatch, call}), (KernelUse{KernelPart::kCall, "mmap"}));
  EXPECT_EQ(use({probe}).part, KernelPart::kProbes);
  EXPECT_EQ(use({dispatch}).part, KernelPart::kOther);
  EXPECT_EQ(use({}).part, KernelPart::kOther);
  EXPECT_EQ(use({0xffffffff82900004}).part, KernelPart::kOther);  // data
}

TEST(KernelCode, AFunctionEndsWhereTheNextSymbolBegins) {
  const KernelCode code = code_of(kSymbols);
  const auto part = [&](std::uint64_t address) { return code.use_of(std::vector{address}).part; };
  EXPECT_EQ(part(0xffffffff8130496f), KernelPart::kOther);
  EXPECT_EQ(part(0xffffffff81304970), KernelPart::kCall);
  EXPECT_EQ(part(0xffffffff813049cf), KernelPart::kCall);
  EXPECT_EQ(part(0xffffffff813049d0), KernelPart::kOther);
}

TEST(KernelCode, HiddenAddressesAreNotKnown) {
  EXPECT_FALSE(code_of("0000000000000000 T exc_page_fault\n").is_known());
  EXPECT_FALSE(code_of("").is_known());
  EXPECT_FALSE(code_of("nonsense\nffff\nzz T handle_softirqs\nff T\n").is_known());
}

}  // namespace
}  // namespace kansoku::capture
