// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/exits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/bpf/calls_for_test.h"
#include "capture/bpf/internal/unwind_table.h"
#include "sys/procfs.h"

// Functions whose ends have known shapes. Those that are called return their argument plus one. The
// symbols are exported (-rdynamic), so .dynsym has them.
#define EXIT_TARGET(name, body)                                                                 \
  extern "C" long name(long value);                                                             \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" body "\n.size " #name \
      ", . - " #name "\n")

EXIT_TARGET(exit_plain, "push %rbx\nlea 1(%rdi), %rax\npop %rbx\nret");
// As the check of the stack's guard stands.
EXIT_TARGET(exit_guard,
            "push %rbx\nsub $16, %rsp\nlea 1(%rdi), %rax\ncmp $-1, %rdi\nje 2f\n"
            "add $16, %rsp\npop %rbx\nret\n2: ud2");
EXIT_TARGET(exit_frame,
            "push %rbp\nmov %rsp, %rbp\npush %rbx\nsub $24, %rsp\nlea 1(%rdi), %rax\n"
            "cmp $-1, %rdi\nje 2f\nlea -8(%rbp), %rsp\npop %rbx\npop %rbp\nret\n2: ud2");
EXIT_TARGET(exit_leave,
            "push %rbp\nmov %rsp, %rbp\nsub $24, %rsp\nlea 1(%rdi), %rax\ncmp $-1, %rdi\n"
            "je 2f\nleave\nret\n2: ud2");
// Three ways to one return.
EXIT_TARGET(exit_arms,
            "push %rbx\nlea 1(%rdi), %rax\ntest $1, %dil\njne 1f\nmov %rax, %rcx\njmp 3f\n"
            "1: test $2, %dil\nje 3f\ncmp %rax, %rax\njne 4f\n3: pop %rbx\nret\n4: ud2");
EXIT_TARGET(exit_nop, "push %rbx\nlea 1(%rdi), %rax\n.byte 0x0f, 0x1f, 0x40, 0x00\npop %rbx\nret");
EXIT_TARGET(exit_after_call,
            "push %rbx\nlea 1(%rdi), %rbx\ncall exit_helper\nmov %rbx, %rax\npop %rbx\nret");
EXIT_TARGET(exit_helper, "push %rbx\npop %rbx\nret");
// With a description for the unwinder, which has no handlers.
#define DESCRIBED_TARGET(name, body) EXIT_TARGET(name, ".cfi_startproc\n" body "\n.cfi_endproc")
// As the last destructor of a function stands, and a message before the return.
DESCRIBED_TARGET(exit_cleanup,
                 "push %rbx\nlea 1(%rdi), %rbx\ntest $1, %dil\nje 1f\ncall exit_helper\n"
                 "1: mov %rbx, %rax\npop %rbx\nret");
DESCRIBED_TARGET(exit_kept,
                 "push %rbx\nlea 1(%rdi), %rax\nmov %rax, %rbx\ntest $1, %dil\nje 1f\n"
                 "xor %eax, %eax\ncall exit_helper\n1: mov %rbx, %rax\npop %rbx\nret");
DESCRIBED_TARGET(exit_loaded,
                 "push %rbx\nlea 1(%rdi), %rax\npush %rax\ntest $1, %dil\nje 1f\n"
                 "call exit_helper\n1: mov (%rsp), %rax\npop %rbx\npop %rbx\nret");
DESCRIBED_TARGET(exit_scratch,
                 "push %rbx\nlea 1(%rdi), %rcx\ntest $1, %dil\nje 1f\ncall exit_helper\n"
                 "1: mov %rcx, %rax\npop %rbx\nret");
DESCRIBED_TARGET(exit_part,
                 "push %r12\nlea 1(%rdi), %r12\ntest $1, %dil\nje 1f\ncall exit_helper\n"
                 "1: mov %r12d, %eax\npop %r12\nret");
DESCRIBED_TARGET(exit_other,
                 "push %rbx\nlea 1(%rdi), %rcx\ntest $1, %dil\nje 1f\nnop\n"
                 "1: mov %rcx, %rax\npop %rbx\nret");
// A handler that goes on behind its call, and its table: one call, and where its exceptions lead.
DESCRIBED_TARGET(exit_caught,
                 ".cfi_lsda 0x1b, exit_caught_table\npush %rbx\nlea 1(%rdi), %rbx\ntest $1, %dil\n"
                 "je 1f\n3: call exit_helper\n4: jmp 1f\n2: mov %rax, %rdi\ncall exit_helper\n"
                 "1: mov %rbx, %rax\npop %rbx\nret\n"
                 ".pushsection .gcc_except_table,\"a\"\nexit_caught_table: .byte 0xff, 0xff, 1\n"
                 ".uleb128 6f - 5f\n5: .uleb128 3b - exit_caught, 4b - 3b, 2b - exit_caught, 0\n"
                 "6: .popsection");
EXIT_TARGET(exit_undescribed,
            "push %rbx\nlea 1(%rdi), %rbx\ntest $1, %dil\nje 1f\ncall exit_helper\n"
            "1: mov %rbx, %rax\npop %rbx\nret");
// Both ways of one jump end the call.
EXIT_TARGET(exit_both,
            "push %rbx\nlea 1(%rdi), %rax\ntest %rdi, %rdi\nje 1f\npop %rbx\nret\n"
            "1: pop %rbx\nret");
// The jump to its return is its first cheap instruction, where the probe of its begin is.
EXIT_TARGET(exit_at_entry, "lea 1(%rdi), %rax\njmp 1f\nud2\n1: ret");
EXIT_TARGET(exit_jump, "test %rdi, %rdi\njne 1f\njmp exit_plain\n1: lea 1(%rdi), %rax\nret");
// Its work is done by a function without a symbol, which others call too.
EXIT_TARGET(exit_wrapper, "jmp hidden_work");
asm(".text\n.type hidden_work, @function\nhidden_work:\n.cfi_startproc\npush %rbx\n"
    ".cfi_adjust_cfa_offset 8\nlea 1(%rdi), %rax\ncmp $-1, %rdi\nje 2f\npop %rbx\nret\n2: ud2\n"
    ".cfi_endproc\n.size hidden_work, . - hidden_work\n"
    // The next function in the table of the unwinder.
    "behind_hidden_work:\n.cfi_startproc\nret\n.cfi_endproc\n");
EXIT_TARGET(exit_beside_wrapper, "push %rbx\ncall hidden_work\npop %rbx\nret");
asm(".data\nexit_pointer: .quad exit_plain\n.text\n");
EXIT_TARGET(exit_indirect, "push %rbx\npop %rbx\nmov exit_pointer(%rip), %rax\njmp *%rax");
// As where a processor's check of branches has padding before a loop or a return.
EXIT_TARGET(exit_padded,
            "push %rbx\nlea 1(%rdi), %rax\ntest $1, %dil\njne 1f\njmp 2f\n"
            ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n2: pop %rbx\nret\n"
            "1: .byte 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\npop %rbx\nret");
EXIT_TARGET(exit_prefixed, "push %rbx\npop %rbx\nlea 1(%rdi), %rax\n.byte 0x2e\nret");
// Its cold part jumps back behind the branch that leads to the return, and returns, too.
EXIT_TARGET(exit_cold,
            ".cfi_startproc\npush %rbx\n.cfi_adjust_cfa_offset 8\nlea 1(%rdi), %rax\ncmp $3, %edi\n"
            "je cold_begin\ncmp $4, %edi\nje cold_return\ntest %rax, %rax\nje 3f\n"
            "cold_back: pop %rbx\nret\n3: ud2\n.cfi_endproc");
asm(".text\n.type cold_begin, @function\ncold_begin:\n.cfi_startproc\nmov %rax, %rcx\njmp "
    "cold_back\n"
    "cold_return: pop %rbx\nret\n.cfi_endproc\n.size cold_begin, . - cold_begin\n");
// Code behind a jump to which nothing leads stands for the landing pads of exceptions.
EXIT_TARGET(exit_pad,
            "push %rbx\njmp 1f\nmov %rax, %rdi\njmp hidden_work\n1: lea 1(%rdi), %rax\n"
            "pop %rbx\nret\npop %rbx\nret");
EXIT_TARGET(exit_switch,
            "push %rbx\nlea 9f(%rip), %rdx\nmov %rdi, %rax\nand $1, %eax\n"
            "movslq (%rdx,%rax,4), %rax\nadd %rdx, %rax\njmp *%rax\n"
            "7: lea 1(%rdi), %rax\npop %rbx\nret\n8: lea 1(%rdi), %rax\npop %rbx\nret\n"
            ".pushsection .rodata\n9: .long 7b - 9b, 8b - 9b\n.popsection");
EXIT_TARGET(exit_marked,
            "push %rbx\nlea 7f(%rip), %rax\nnotrack jmp *%rax\n7: lea 1(%rdi), %rax\n"
            "pop %rbx\nret");
// A branch over one byte, which with the next ones is another instruction.
EXIT_TARGET(exit_overlap, "jmp 1f\n.byte 0x48\n1: nop\nret");
EXIT_TARGET(exit_data, ".byte 0xeb, 0x01, 0x06\nret");
EXIT_TARGET(exit_endless, "1: jmp 1b");
// Calls another function last, but not always.
EXIT_TARGET(exit_jump_if,
            "push %rbx\npop %rbx\ntest $1, %dil\nje exit_plain\nlea 1(%rdi), %rax\nret");
// Their calls cannot be told from the rounds of the loop that begins with their first instruction.
EXIT_TARGET(count_loop, "1: dec %rdi\njg 1b\nmov %rdi, %rax\nret");
EXIT_TARGET(count_ways, "1: sub $2, %rdi\nje exit_plain\njg 1b\nmov $1, %eax\nret");
EXIT_TARGET(count_called,
            "1: dec %rdi\njg 1b\nje 2f\nmov $1, %eax\nret\n"
            "2: push %rbx\nmov $-1, %rdi\ncall count_called\npop %rbx\nret");
EXIT_TARGET(count_label,
            "1: push %rbx\npop %rbx\ndec %rdi\njg 1b\npush %rbx\n"
            "lea 2f(%rip), %rax\npush %rax\npop %rax\nmov (%rsp), %rbx\n"
            "jmp *%rbx\n2: pop %rbx\nret");
EXIT_TARGET(exit_only_jump, "jmp exit_plain");

// At the limits, and one beyond.
#define MANY_RETURNS(name, count)                                           \
  EXIT_TARGET(name, "push %rbx\npop %rbx\nlea 1(%rdi), %rax\n.rept " #count \
                    "\ntest %rdi, %rdi\nje 1f\nret\n1:\n.endr\nnop\nret")
MANY_RETURNS(exit_64_places, 63);
MANY_RETURNS(exit_65_places, 64);
#define MANY_BRANCHES(name, count)                                          \
  EXIT_TARGET(name, "push %rbx\npop %rbx\nlea 1(%rdi), %rax\n.rept " #count \
                    "\ncmp $5, %rdi\nje 9f\n.endr\njmp 9f\nud2\n9: ret")
MANY_BRANCHES(exit_8_branches, 7);
MANY_BRANCHES(exit_9_branches, 8);
#define FAR_BRANCH(name, count)                                                  \
  EXIT_TARGET(name, "push %rbx\npop %rbx\ntest %rdi, %rdi\nje 2f\n.rept " #count \
                    "\nlea 1(%rdi), %rax\n.endr\nret\n2: ud2")
FAR_BRANCH(exit_near, 31);
FAR_BRANCH(exit_far, 32);
#define LARGE_FRAME(name, bytes)                                                             \
  EXIT_TARGET(name, "push %rbx\nsub $" #bytes ", %rsp\ntest %rdi, %rdi\nje 2f\nadd $" #bytes \
                    ", %rsp\npop %rbx\nret\n2: ud2")
LARGE_FRAME(exit_large, 65520);
LARGE_FRAME(exit_too_large, 65528);

// A function for each condition: where it does not hold the call ends at the jump, else behind
// another call.
#define CONDITION_TARGET(condition)                                                           \
  EXIT_TARGET(exit_if_##condition, "push %rbx\nlea 1(%rdi), %rax\ncmp $5, %edi\nj" #condition \
                                   " 2f\npop %rbx\nret\n"                                     \
                                   "2: pop %rbx\ncall exit_helper\nret")
CONDITION_TARGET(o);
CONDITION_TARGET(no);
CONDITION_TARGET(b);
CONDITION_TARGET(ae);
CONDITION_TARGET(e);
CONDITION_TARGET(ne);
CONDITION_TARGET(be);
CONDITION_TARGET(a);
CONDITION_TARGET(s);
CONDITION_TARGET(ns);
CONDITION_TARGET(p);
CONDITION_TARGET(np);
CONDITION_TARGET(l);
CONDITION_TARGET(ge);
CONDITION_TARGET(le);
CONDITION_TARGET(g);

extern "C" long exit_throws(long value);
long exit_throws(long value) {
  if (value % 2 == 0) throw value;
  return value;
}
// Its calls end by a handler, too.
extern "C" [[gnu::noinline]] long exit_catches(long value);
long exit_catches(long value) {
  long out = 0;
  {
    const auto kept = std::make_unique<long>(1);
    try {
      out = exit_throws(value) + *kept;
    } catch (long caught) {
      out = caught + *kept;
    }
  }
  return out;
}

namespace kansoku::capture::bpf {
namespace {

using Compiled = long (*)(long);
using Targets = std::vector<std::pair<std::string, Compiled>>;

const Targets kShapes{{"exit_plain", exit_plain},    {"exit_guard", exit_guard},
                      {"exit_frame", exit_frame},    {"exit_leave", exit_leave},
                      {"exit_arms", exit_arms},      {"exit_nop", exit_nop},
                      {"exit_both", exit_both},      {"exit_at_entry", exit_at_entry},
                      {"exit_jump", exit_jump},      {"exit_indirect", exit_indirect},
                      {"exit_pad", exit_pad},        {"exit_switch", exit_switch},
                      {"exit_marked", exit_marked},  {"exit_after_call", exit_after_call},
                      {"exit_jump_if", exit_jump_if}};
const Targets kConditions{
    {"exit_if_o", exit_if_o},   {"exit_if_no", exit_if_no}, {"exit_if_b", exit_if_b},
    {"exit_if_ae", exit_if_ae}, {"exit_if_e", exit_if_e},   {"exit_if_ne", exit_if_ne},
    {"exit_if_be", exit_if_be}, {"exit_if_a", exit_if_a},   {"exit_if_s", exit_if_s},
    {"exit_if_ns", exit_if_ns}, {"exit_if_p", exit_if_p},   {"exit_if_np", exit_if_np},
    {"exit_if_l", exit_if_l},   {"exit_if_ge", exit_if_ge}, {"exit_if_le", exit_if_le},
    {"exit_if_g", exit_if_g}};

class FindExits : public ::testing::Test {
 protected:
  FindExits() : file_(sys::ElfFile::open("/proc/self/exe").value()) {}

  [[nodiscard]] const sys::Symbol& symbol(const std::string& name) {
    const sys::Symbol* found = file_->find_symbol(name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  }
  [[nodiscard]] Exits find(const std::string& name, std::uint8_t value_bytes = 0,
                           bool before_calls = false) {
    const std::uint64_t entry = pick_site(*file_, symbol(name), {true, true}).address;
    return find_exits(
        *file_, symbol(name),
        {.entry_site = entry, .value_bytes = value_bytes, .before_calls = before_calls});
  }
  /// "je not taken rsp+24, return": the exits in order; or why there are none.
  [[nodiscard]] std::string text(const std::string& name, std::uint8_t value_bytes = 0,
                                 bool before_calls = false) {
    const Exits found = find(name, value_bytes, before_calls);
    std::string out(found.problem);
    for (const Exit& exit : found.exits) {
      out += out.empty() ? "" : ", ";
      out += site_class_name(exit.site_class);
      if (exit.is_jump) out += " away";
      if (exit.when == Exit::When::kTaken) out += fmt::format(" {:x} taken", exit.condition);
      if (exit.when == Exit::When::kNotTaken) out += fmt::format(" {:x} not taken", exit.condition);
      if (exit.from_frame || exit.stack_bytes != 0)
        out += fmt::format(" {}+{}", exit.from_frame ? "rbp" : "rsp", exit.stack_bytes);
      if (exit.value_register != 0) out += fmt::format(" r{}", exit.value_register);
    }
    return out;
  }
  std::unique_ptr<sys::ElfFile> file_;
};

TEST_F(FindExits, AreReturnsWhereNothingCheapLeadsToThem) {
  const sys::Symbol& plain = symbol("exit_plain");
  const Exits found = find("exit_plain");
  ASSERT_EQ(found.exits.size(), 1U) << found.problem;
  EXPECT_EQ(found.exits[0].address, plain.address + plain.bytes - 1);
  EXPECT_EQ(text("exit_plain"), "other");
  EXPECT_EQ(text("exit_after_call"), "other") << "the call may take long";
  EXPECT_EQ(text("exit_cold"), "other, other") << "the cold part goes past the branch, or returns";
  EXPECT_EQ(text("exit_both"), "other, other") << "one probe cannot stand for two returns";
  EXPECT_EQ(text("exit_at_entry"), "other");
}

TEST_F(FindExits, AreTheBranchesThatLeadToAReturnAndNowhereElse) {
  EXPECT_EQ(text("exit_guard"), "jcc 4 not taken rsp+24");
  EXPECT_EQ(text("exit_frame"), "jcc 4 not taken rbp+8");
  EXPECT_EQ(text("exit_leave"), "jcc 4 not taken rbp+8");
  EXPECT_EQ(text("exit_arms"), "jmp rsp+8, jcc 4 taken rsp+8, jcc 5 not taken rsp+8");
  EXPECT_EQ(text("exit_nop"), "nop rsp+8");
  EXPECT_EQ(text("exit_padded"), "jcc 5 taken rsp+8, jmp rsp+8") << "no probes at padding";
  EXPECT_EQ(text("exit_if_le"), "jcc e not taken rsp+8, other");
}

TEST_F(FindExits, HaveLimits) {
  EXPECT_EQ(find("exit_64_places").exits.size(), 64U);
  EXPECT_EQ(text("exit_65_places"), "it ends in too many places");
  EXPECT_EQ(find("exit_8_branches").exits.size(), 8U);
  EXPECT_EQ(text("exit_9_branches"), "other");
  EXPECT_EQ(text("exit_near"), "jcc 4 not taken");
  EXPECT_EQ(text("exit_far"), "other");
  EXPECT_EQ(text("exit_large"), "jcc 4 not taken rsp+65528");
  EXPECT_EQ(text("exit_too_large"), "other");
}

TEST_F(FindExits, KnowCodeByTheTablesOfTheUnwinder) {
  const sys::Symbol& cold = symbol("exit_cold");
  for (const std::uint64_t at : {cold.address, cold.address + 1, cold.address + cold.bytes - 1}) {
    const auto around = code_around(*file_, at);
    ASSERT_TRUE(around) << at - cold.address;
    EXPECT_EQ(around->begin, cold.address);
    EXPECT_EQ(around->bytes, cold.bytes);
    EXPECT_FALSE(around->has_handlers);
  }
  const auto behind = code_around(*file_, cold.address + cold.bytes);
  EXPECT_TRUE(!behind || behind->begin == cold.address + cold.bytes);
  EXPECT_FALSE(code_around(*file_, 0));
  EXPECT_FALSE(code_around(*file_, ~0ULL));
  EXPECT_FALSE(code_around(*file_, file_->section(".eh_frame_hdr")->address)) << "no code";
}

TEST_F(FindExits, AreReturnsWhereTheReturnedValueIsWanted) {
  EXPECT_EQ(text("exit_plain", 8), "other");
  EXPECT_EQ(text("exit_kept", 8), "other") << "the call may take long";
  EXPECT_EQ(text("exit_loaded", 8, true), "other") << "it lies in no register";
  EXPECT_EQ(text("exit_scratch", 8, true), "other") << "a call may change the register";
  EXPECT_EQ(text("exit_part", 8, true), "other") << "half of it";
  EXPECT_EQ(text("exit_other", 8), "other") << "no probe reads rcx";
}

TEST_F(FindExits, KnowTheRegisterThatHoldsTheReturnedValue) {
  EXPECT_EQ(text("exit_guard", 8), "jcc 4 not taken rsp+24");
  EXPECT_EQ(text("exit_arms", 8), text("exit_arms"));
  EXPECT_EQ(text("exit_kept", 8, true), "jcc rsp+8 r3");
  EXPECT_EQ(text("exit_part", 4, true), "jcc rsp+8 r12");
}

TEST_F(FindExits, LieBeforeTheCallsOfDestructors) {
  EXPECT_EQ(text("exit_cleanup"), "other");
  EXPECT_EQ(text("exit_cleanup", 0, true), "jcc rsp+8");
  EXPECT_EQ(text("exit_undescribed", 0, true), "other") << "exceptions may lead anywhere";
  EXPECT_EQ(text("exit_after_call", 0, true), "other") << "there is nothing cheap before it";
}

TEST_F(FindExits, KnowWhereExceptionsLeadTo) {
  const auto pads_of = [&](const std::string& name) {
    const sys::Symbol& function = symbol(name);
    const auto around = code_around(*file_, function.address);
    return around ? landing_pads(*file_, *around) : std::nullopt;
  };
  const auto pads = pads_of("exit_catches");
  ASSERT_TRUE(pads.has_value());
  ASSERT_FALSE(pads->empty());
  const sys::Symbol& function = symbol("exit_catches");
  for (const std::uint64_t pad : *pads)
    EXPECT_LT(pad - function.address, function.bytes);
  const sys::Symbol& caught = symbol("exit_caught");
  constexpr std::uint64_t kHandlerAt = 18;
  EXPECT_THAT(pads_of("exit_caught"),
              ::testing::Optional(::testing::ElementsAre(caught.address + kHandlerAt)));
  EXPECT_EQ(text("exit_caught", 0, true), "other") << "exceptions lead past the jumps";
  EXPECT_THAT(pads_of("cold_begin"), ::testing::Optional(::testing::IsEmpty()));
  EXPECT_FALSE(landing_pads(*file_, {0, 1}).has_value());
  EXPECT_FALSE(landing_pads(*file_, {function.address + 1, 1}).has_value()) << "no begin of code";
}

TEST_F(FindExits, AreJumpsToOtherFunctions) {
  EXPECT_EQ(text("exit_jump"), "jmp away, other");
  EXPECT_EQ(text("exit_indirect"), "other away");
  EXPECT_EQ(text("exit_jump_if"), "jcc away 4 taken, other");
}

TEST_F(FindExits, CountCallsWhereNothingElseDoes) {
  for (const std::string name : {"count_loop", "count_ways", "count_called", "count_label"})
    EXPECT_FALSE(pick_site(*file_, symbol(name), {}).is_once) << name;
  const auto count = [&](const std::string& name) {
    return find_exits(*file_, symbol(name), {.counts = true});
  };
  EXPECT_EQ(count("count_loop").exits.size(), 1U);
  EXPECT_EQ(count("count_ways").exits.size(), 2U);
  EXPECT_EQ(count("count_called").exits.size(), 2U);
  EXPECT_EQ(count("count_label").problem, "the target of a jump in it is unknown");
  // Another function's exits would count its other calls, too.
  EXPECT_EQ(count("exit_wrapper").exits.at(0).leads_to, symbol("hidden_work").address);
}

TEST_F(FindExits, OfAFunctionThatOnlyJumpsToAnotherAreThoseOfTheOther) {
  EXPECT_EQ(text("exit_wrapper"), "jcc 4 not taken rsp+8");
  EXPECT_LT(find("exit_wrapper").exits.at(0).address,
            symbol("exit_beside_wrapper").address);  // behind which it lies
}

TEST_F(FindExits, AreNotInCodeThatOnlyExceptionsReach) {
  EXPECT_EQ(text("exit_pad"), "jmp rsp+8") << "nothing says that it has handlers that return";
}

TEST_F(FindExits, AreNotTheJumpsOfASwitch) {
  EXPECT_EQ(text("exit_switch"), "other, other");
  EXPECT_EQ(text("exit_marked"), "other");
}

TEST_F(FindExits, AreNotLookedForInWhatMayBeNoCode) {
  EXPECT_EQ(text("exit_overlap"), "its bytes may not be instructions");
  EXPECT_EQ(text("exit_data"), "its bytes may not be instructions");
  EXPECT_EQ(text("exit_prefixed"), "an exit cannot be probed");
  EXPECT_EQ(text("exit_endless"), "it never returns");
  EXPECT_EQ(text("exit_only_jump"), "it begins and ends with one instruction");
  sys::Symbol one = symbol("exit_plain");
  one.bytes = 0;
  EXPECT_EQ(find_exits(*file_, one, {}).problem, "its size is unknown");
  one.bytes = 1U << 20;
  EXPECT_EQ(find_exits(*file_, one, {}).problem, "it is too long to analyse");
  one = symbol("exit_plain");
  one.address = 1ULL << 40;
  EXPECT_TRUE(find_exits(*file_, one, {}).exits.empty()) << "in no segment";
  one = symbol("exit_plain");
  one.bytes -= 1;  // without its return
  EXPECT_EQ(find_exits(*file_, one, {}).problem, "it never returns");
}

// In every function of the C library that can be taken apart, no exit is the begin, and none is
// there twice.
TEST_F(FindExits, OfRealCodeAreSane) {
  std::string path;
  const auto maps = sys::Procfs().maps(::getpid());
  for (const sys::Mapping& mapping : *maps)
    if (mapping.path.find("/libc.so.6") != std::string::npos) path = mapping.path;
  if (path.empty()) GTEST_SKIP() << "no libc.so.6 in this process";
  const auto libc = sys::ElfFile::open(path).value();
  int with_exits = 0, cheap = 0;
  for (const sys::Symbol& function : libc->symbols()) {
    if (!function.is_function || function.is_ifunc) continue;
    const Site entry = pick_site(*libc, function, {true, true});
    const Exits found = find_exits(*libc, function, {.entry_site = entry.address});
    ASSERT_EQ(found.exits.empty(), !found.problem.empty()) << function.name;
    with_exits += found.exits.empty() ? 0 : 1;
    std::uint64_t last = 0;
    for (const Exit& exit : found.exits) {
      ASSERT_TRUE(libc->file_offset(exit.address)) << function.name;
      ASSERT_GT(exit.address, last) << function.name;
      ASSERT_NE(exit.address, entry.address) << function.name;
      last = exit.address;
      cheap += is_cheap(exit.site_class) ? 1 : 0;
    }
  }
  EXPECT_GT(with_exits, 1000);
  EXPECT_GT(cheap, 300);
}

class ExitsLive : public FindExits, public ::testing::WithParamInterface<AttachMode> {
 protected:
  void SetUp() override {
    engine_ = engine_for_test(GetParam());
    if (!engine_) GTEST_SKIP() << "needs root and bpf";
  }
  void attach(const std::string& name, std::uint32_t probe) {
    ASSERT_TRUE(engine_->describe_probe(probe, probe_for_test(WIRE_SINK_RING)).has_value());
    const auto attached =
        engine_->attach_uprobes("/proc/self/exe", call_specs_for_test(*file_, name, probe), false);
    ASSERT_TRUE(attached.has_value()) << attached.error().what;
  }
  /// "b1 e1 ": begins, ends and instants with their probes, since the last time.
  [[nodiscard]] std::string drain() {
    std::string out;
    engine_->drain([&](std::span<const std::byte> record) {
      const auto* head = reinterpret_cast<const wire_event*>(record.data());
      const char kind = head->kind == WIRE_BEGIN ? 'b' : head->kind == WIRE_END ? 'e' : 'i';
      out += fmt::format("{}{} ", kind, head->probe);
    });
    return out;
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(ExitsLive, EveryCallOfEveryShapeEndsOnce) {
  for (const auto& [name, function] : kShapes) {
    attach(name, 1);
    for (long i = 0; i < 8; ++i) {
      EXPECT_EQ(function(i), i + 1) << name;
      EXPECT_EQ(drain(), "b1 e1 ") << name << " " << i;
    }
    engine_->detach_all();
  }
}

TEST_P(ExitsLive, EveryCallEndsOnceBeforeItsDestructors) {
  const Targets shapes{{"exit_cleanup", exit_cleanup},
                       {"exit_kept", exit_kept},
                       {"exit_loaded", exit_loaded},
                       {"exit_catches", exit_catches},
                       {"exit_after_call", exit_after_call}};
  for (const bool wants_value : {false, true}) {
    for (const auto& [name, function] : shapes) {
      ASSERT_TRUE(engine_->describe_probe(1, probe_for_test(WIRE_SINK_RING)).has_value());
      const auto specs = call_specs_for_test(*file_, name, 1, wants_value, true);
      ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", specs, false).has_value()) << name;
      for (long i = 0; i < 8; ++i) {
        EXPECT_EQ(function(i), i + 1) << name;
        EXPECT_EQ(drain(), "b1 e1 ") << name << " " << i;
      }
      engine_->detach_all();
    }
  }
}

TEST_P(ExitsLive, AnExitWithoutABeginTellsOfItsCallOnce) {
  const auto attach_counting = [&](const std::string& name, std::uint32_t probe) {
    const wire_probe instant = probe_for_test(WIRE_SINK_RING, WIRE_PROBE_INSTANT);
    ASSERT_TRUE(engine_->describe_probe(probe, instant).has_value());
    std::vector<UprobeSpec> specs;
    for (const Exit& exit : find_exits(*file_, symbol(name), {.counts = true}).exits)
      specs.push_back(
          {*file_->file_offset(exit.address), 0, exit.cookie(probe | WIRE_COOKIE_INSTANT)});
    ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", specs, false).has_value());
  };
  attach_counting("count_loop", 1);
  attach_counting("count_ways", 2);
  attach_counting("count_called", 3);
  for (long i = 1; i < 9; ++i) {
    EXPECT_EQ(count_loop(i), 0);
    EXPECT_EQ(drain(), "i1 ") << i;
    EXPECT_EQ(count_ways(i), 1);
    EXPECT_EQ(drain(), "i2 ") << i;
    EXPECT_EQ(count_called(i), 1);
    EXPECT_EQ(drain(), "i3 i3 ") << i << ": it calls itself";
  }
}

TEST_P(ExitsLive, AnExitThatIsSharedEndsTheCallsOfItsOwnFunctionOnly) {
  attach("exit_wrapper", 1);
  EXPECT_EQ(exit_wrapper(3), 4);
  EXPECT_EQ(drain(), "b1 e1 ");
  EXPECT_EQ(exit_beside_wrapper(3), 4);
  EXPECT_EQ(drain(), "");
}

TEST_P(ExitsLive, AConditionalJumpEndsACallWhereItsConditionSaysSo) {
  constexpr std::array<int, 9> kArguments{0, 4, 5, 6, 8, -1, -128, -2147483647 - 1, 2147483647};
  for (const auto& [name, function] : kConditions) {
    attach(name, 1);
    attach("exit_helper", 2);
    int at_once = 0;
    for (const int argument : kArguments) {
      EXPECT_EQ(function(argument), argument + 1L) << name;
      const std::string seen = drain();
      if (seen == "b1 e1 ") {
        ++at_once;
      } else {
        EXPECT_EQ(seen, "b1 b2 e2 e1 ") << name << " " << argument;
      }
    }
    EXPECT_GT(at_once, 0) << name << " both ways are taken";
    EXPECT_LT(at_once, static_cast<int>(kArguments.size())) << name;
    engine_->detach_all();
  }
}

INSTANTIATE_TEST_SUITE_P(AllModes, ExitsLive,
                         ::testing::Values(AttachMode::kSession, AttachMode::kMulti,
                                           AttachMode::kPerf),
                         [](const auto& mode) {
                           return std::string(attach_mode_name(mode.param));
                         });

}  // namespace
}  // namespace kansoku::capture::bpf
