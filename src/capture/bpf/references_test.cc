// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/references.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sys/elf.h"

// Functions as compilers write them, and the targets whose addresses they take.
#define REFERENCE_TARGET(name, body)                                                            \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" body "\n.size " #name \
      ", . - " #name "\n")

asm(".section .rodata\n.globl reference_table, reference_text\n"
    ".type reference_table, @object\n.type reference_text, @object\n"
    ".p2align 3\nreference_table: .quad 1, 2, 3\n.size reference_table, 24\n"
    "reference_text: .asciz \"0.25.1\"\n.size reference_text, 7\n.text\n");

REFERENCE_TARGET(reference_by_lea,
                 "endbr64\nmov %edi, %edi\nlea reference_table(%rip), %rax\n"
                 "mov (%rax,%rdi,8), %rax\nret");
REFERENCE_TARGET(reference_of_text, "lea reference_text(%rip), %rax\nret");
// Unoptimised: it saves its argument first.
REFERENCE_TARGET(reference_unoptimised,
                 "push %rbp\nmov %rsp, %rbp\nmov %edi, -4(%rbp)\nmov -4(%rbp), %eax\n"
                 "lea 0(,%rax,8), %rdx\nlea reference_table(%rip), %rax\n"
                 "mov (%rdx,%rax), %rax\npop %rbp\nret");
// A program at fixed addresses.
REFERENCE_TARGET(reference_fixed, "mov %edi, %edi\nmov 0x404060(,%rdi,8), %rax\nret");
REFERENCE_TARGET(reference_none, "lea 1(%rdi), %rax\nmov %fs:40, %rcx\nret");
REFERENCE_TARGET(reference_behind_return, "xor %eax, %eax\nret\nlea reference_text(%rip), %rax");
REFERENCE_TARGET(reference_behind_branch,
                 "test %edi, %edi\nje 1f\nlea reference_text(%rip), %rax\n1: ret");
REFERENCE_TARGET(reference_behind_call,
                 "push %rax\ncall reference_none\nlea reference_text(%rip), %rax\npop %rcx\nret");
// The linker's tables are none of the function's.
REFERENCE_TARGET(reference_jumps_on, "endbr64\njmp *reference_table(%rip)");
REFERENCE_TARGET(reference_calls_first,
                 "push %rax\ncall *reference_table(%rip)\nlea reference_text(%rip), %rax\n"
                 "pop %rcx\nret");
REFERENCE_TARGET(reference_switch, "mov %edi, %edi\njmp *0x404060(,%rdi,8)");
REFERENCE_TARGET(reference_far, ".rept 16\nnop\n.endr\nlea reference_text(%rip), %rax\nret");
REFERENCE_TARGET(reference_last, ".rept 15\nnop\n.endr\nlea reference_text(%rip), %rax\nret");
REFERENCE_TARGET(reference_no_code, ".byte 0x06\nlea reference_text(%rip), %rax\nret");

namespace kansoku::capture::bpf {
namespace {

class References : public testing::Test {
 protected:
  void SetUp() override {
    auto file = sys::ElfFile::open("/proc/self/exe");
    ASSERT_TRUE(file.has_value());
    file_ = std::move(file).value();
  }
  [[nodiscard]] std::optional<std::uint64_t> address(const std::string& name) const {
    const sys::Symbol* const symbol = file_->find_symbol(name);
    EXPECT_NE(symbol, nullptr) << name;
    return symbol == nullptr ? std::nullopt : std::optional(symbol->address);
  }
  [[nodiscard]] std::optional<std::uint64_t> taken(const std::string& name) const {
    const sys::Symbol* const symbol = file_->find_symbol(name);
    EXPECT_NE(symbol, nullptr) << name;
    return symbol == nullptr ? std::nullopt : first_address_taken(*file_, *symbol);
  }
  std::unique_ptr<sys::ElfFile> file_;
};

TEST_F(References, OfATableThatIsLookedUp) {
  EXPECT_EQ(taken("reference_by_lea"), address("reference_table"));
  EXPECT_EQ(taken("reference_fixed"), 0x404060U);
}

TEST_F(References, OfATextThatIsReturned) {
  EXPECT_EQ(taken("reference_of_text"), address("reference_text"));
}

TEST_F(References, AreFoundInUnoptimisedCode) {
  EXPECT_EQ(taken("reference_unoptimised"), address("reference_table"));
}

TEST_F(References, NeedToComeBeforeAnyBranch) {
  for (const char* name : {"reference_none", "reference_behind_return", "reference_behind_branch",
                           "reference_behind_call", "reference_jumps_on", "reference_calls_first",
                           "reference_switch", "reference_no_code"})
    EXPECT_EQ(taken(name), std::nullopt) << name;
}

TEST_F(References, NeedToBeNearTheBegin) {
  EXPECT_EQ(taken("reference_last"), address("reference_text"));
  EXPECT_EQ(taken("reference_far"), std::nullopt);
}

TEST_F(References, OfAFunctionWithoutCodeAreNone) {
  EXPECT_EQ(first_address_taken(*file_, {"nowhere", 0x7fff00000000, 16, true, false}),
            std::nullopt);
}

}  // namespace
}  // namespace kansoku::capture::bpf
