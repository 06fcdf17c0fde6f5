// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

// Functions whose first cheap instruction, or first instruction, lies in a loop, and some for which
// it only looks so. They are looked at, not called.
#define SITE_TARGET(name, body)                                                                 \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" body "\n.size " #name \
      ", . - " #name "\n")

// The jump back is the first cheap instruction.
SITE_TARGET(site_back_edge, "mov $4, %eax\n1: dec %eax\ntest %eax, %eax\njne 1b\nret");
// So is the one behind it, which the loop comes by, too.
SITE_TARGET(site_inside, "mov $4, %eax\n1: dec %eax\npush %rbx\npop %rbx\njne 1b\nret");
SITE_TARGET(site_before_loop, "mov $4, %eax\npush %rbx\n1: dec %eax\njne 1b\npop %rbx\nret");
SITE_TARGET(site_in_loop, "dec %rdi\njg site_in_loop\nret");
SITE_TARGET(site_calls_itself, "push %rbx\ncall site_calls_itself\npop %rbx\nret");
// A switch whose second case is the function's begin, as a loop without a condition has.
SITE_TARGET(site_switch,
            "push %rbx\npop %rbx\nlea 9f(%rip), %rdx\nmov %rdi, %rax\nand $1, %eax\n"
            "movslq (%rdx,%rax,4), %rax\nadd %rdx, %rax\njmp *%rax\n8: ret\n"
            ".pushsection .rodata\n9: .long 8b - 9b, site_switch - 9b\n.popsection");
// And one that stays behind it.
SITE_TARGET(site_switch_behind,
            "push %rbx\npop %rbx\nlea 9f(%rip), %rdx\nmov %rdi, %rax\nand $1, %eax\n"
            "movslq (%rdx,%rax,4), %rax\nadd %rdx, %rax\njmp *%rax\n7: nop\n8: ret\n"
            ".pushsection .rodata\n9: .long 8b - 9b, 7b - 9b\n.popsection");
// Jumps by a table of pointers, which the loader fills in.
SITE_TARGET(site_pointers,
            "push %rbx\nlea 9f(%rip), %rdx\nand $1, %edi\njmp *(%rdx,%rdi,8)\n8: pop %rbx\nret\n"
            ".pushsection .data.rel.ro, \"aw\"\n9: .quad 8b, 8b\n.popsection");
// By the distance between labels.
SITE_TARGET(site_distances,
            "push %rbx\nlea 7f(%rip), %rdx\nlea 9f(%rip), %rcx\nand $1, %edi\n"
            "movslq (%rcx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n7: nop\n8: pop %rbx\nret\n"
            ".pushsection .rodata\n9: .long 0, 8b - 7b\n.popsection");
// Their rare parts lie elsewhere and lead to the begin, or behind it.
SITE_TARGET(site_rare_again, "test %rdi, %rdi\nje site_rare_again.cold\nret");
asm(".type site_rare_again.cold, @function\nsite_rare_again.cold: inc %rdi\njmp site_rare_again\n"
    ".size site_rare_again.cold, . - site_rare_again.cold\n");
SITE_TARGET(site_rare_behind,
            "test %rdi, %rdi\nje site_rare_behind.cold\nrare_back: push %rbx\npop %rbx\nret");
asm(".type site_rare_behind.cold, @function\nsite_rare_behind.cold: inc %rdi\njmp rare_back\n"
    ".size site_rare_behind.cold, . - site_rare_behind.cold\n");
// Two functions that call each other last: each call of the one begins with its first instruction.
SITE_TARGET(site_ping, "push %rbx\npop %rbx\ntest %rdi, %rdi\njne site_pong\nret");
SITE_TARGET(site_pong, "push %rbx\npop %rbx\ndec %rdi\njmp site_ping");

// 5-byte nops in front of a cheap instruction, of slow ones, of nothing, and of the head of a loop.
#define NOP5 ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
SITE_TARGET(site_nop5_push, NOP5 "push %rbx\npop %rbx\nret");
SITE_TARGET(site_nop5_slow, NOP5 NOP5 "mov %rdi, %rdi\nmov %rdi, %rax\nret");
SITE_TARGET(site_nop5_alone, NOP5);
SITE_TARGET(site_nop5_loop, NOP5 "1: dec %rdi\njne 1b\nret");

namespace kansoku::capture::bpf {
namespace {

class SiteTest : public ::testing::Test {
 protected:
  SiteTest() : file_(sys::ElfFile::open("/proc/self/exe").value()) {}

  [[nodiscard]] Site site(const std::string& name) {
    const sys::Symbol* found = file_->find_symbol(name);
    EXPECT_NE(found, nullptr) << name;
    return pick_site(*file_, *found, {});
  }
  std::unique_ptr<sys::ElfFile> file_;
};

TEST_F(SiteTest, LiesBeforeAllThatTheFunctionLeadsBackTo) {
  EXPECT_EQ(site("site_back_edge").offset_bytes, 0U);
  EXPECT_EQ(site("site_inside").offset_bytes, 0U);
  EXPECT_NE(site("site_before_loop").offset_bytes, 0U);
  EXPECT_EQ(site("site_rare_behind").site_class, SiteClass::kBranch);
  for (const std::string name : {"site_back_edge", "site_inside", "site_before_loop",
                                 "site_rare_behind", "site_switch_behind"})
    EXPECT_TRUE(site(name).is_once) << name;
}

TEST_F(SiteTest, IsNoneWhereTheFirstInstructionLiesInALoop) {
  for (const std::string name : {"site_in_loop", "site_switch", "site_rare_again"}) {
    EXPECT_FALSE(site(name).is_once) << name;
    EXPECT_EQ(site(name).reason, "its first instruction lies in a loop") << name;
  }
}

TEST_F(SiteTest, IsTheBeginOfCallsThatTheFunctionMakesOfItself) {
  for (const std::string name : {"site_calls_itself", "site_ping", "site_pong"}) {
    EXPECT_TRUE(site(name).is_once) << name << ": " << site(name).reason;
    EXPECT_EQ(site(name).offset_bytes, 0U) << name;
  }
}

TEST_F(SiteTest, IsNoneWhereAJumpMayLeadAnywhere) {
  for (const std::string name : {"site_pointers", "site_distances"}) {
    EXPECT_FALSE(site(name).is_once) << name;
    EXPECT_EQ(site(name).reason, "the target of a jump in it is unknown") << name;
  }
}

TEST_F(SiteTest, IsNeverAFiveByteNop) {
  EXPECT_EQ(site("site_nop5_push").offset_bytes, 5U);
  EXPECT_EQ(site("site_nop5_push").site_class, SiteClass::kPush);
  EXPECT_EQ(site("site_nop5_slow").offset_bytes, 10U);
  EXPECT_TRUE(site("site_nop5_slow").is_once && site("site_nop5_slow").is_probeable);
  EXPECT_FALSE(site("site_nop5_alone").is_once && site("site_nop5_alone").is_probeable);
  EXPECT_FALSE(site("site_nop5_loop").is_once);
  const std::uint64_t address = file_->find_symbol("site_nop5_push")->address;
  EXPECT_TRUE(is_nop5_at(*file_, address));
  EXPECT_FALSE(is_nop5_at(*file_, address + 5));
}

TEST_F(SiteTest, IsNoneInWhatMayBeNoCode) {
  sys::Symbol one = *file_->find_symbol("site_ping");
  one.bytes = 0;
  EXPECT_EQ(pick_site(*file_, one, {}).reason, "its size is unknown");
  one.bytes = 1U << 20U;
  EXPECT_EQ(pick_site(*file_, one, {}).reason, "it is too long to analyse");
}

}  // namespace
}  // namespace kansoku::capture::bpf
