// SPDX-License-Identifier: Apache-2.0
#include "sys/unwind.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace kansoku::sys {
namespace {

constexpr std::uint64_t kBase = 0x400000;

/// A search table, a CIE and an FDE for one function of 32 bytes at kBase:
///   +0 CFA = rsp+8; +1 rsp+16, rbp at CFA-16; +4 CFA = rbp+16, rbx lost; from +4 on the same.
std::vector<std::uint8_t> image() {
  return {// .eh_frame_hdr: version, encodings, .eh_frame (unused), one row
          1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0,
          // CIE at 20: 20 bytes; "zR", 1, -8, 16; pc-relative; def_cfa rsp 8; return at CFA-8
          20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
          // FDE at 44: 32 bytes
          32, 0, 0, 0, 28, 0, 0, 0, 0xcc, 0xff, 0xff, 0xff, 32, 0, 0, 0, 0,
          // advance 1; def_cfa_offset 16; rbp at CFA-16; advance 3; remember; def_cfa_register rbp
          0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0a, 0x0d, 6,
          // rbx undefined; advance 8; restore_state
          0x07, 3, 0x48, 0x0b, 0, 0, 0, 0, 0, 0};
}

std::optional<UnwindRow> row_at(const std::vector<std::uint8_t>& bytes, std::uint64_t offset) {
  const auto read = [&](std::uint64_t address, std::span<std::byte> into) -> std::size_t {
    if (address < kBase || address - kBase >= bytes.size()) return 0;
    const std::size_t from = address - kBase, count = std::min(into.size(), bytes.size() - from);
    std::memcpy(into.data(), bytes.data() + from, count);
    return count;
  };
  return unwind_row(kBase, read, kBase + offset);
}

TEST(Unwind, FollowsTheInstructionsUpToTheAddress) {
  const auto first = row_at(image(), 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->cfa_register, kRegisterRsp);
  EXPECT_EQ(first->cfa_offset, 8);
  EXPECT_EQ(first->registers[kRegisterReturn].offset, -8);
  EXPECT_EQ(first->registers[kRegisterRbp].rule, UnwindRow::Rule::kSame);
  const auto pushed = row_at(image(), 1);
  ASSERT_TRUE(pushed);
  EXPECT_EQ(pushed->cfa_offset, 16);
  EXPECT_EQ(pushed->registers[kRegisterRbp].rule, UnwindRow::Rule::kSaved);
  EXPECT_EQ(pushed->registers[kRegisterRbp].offset, -16);
  const auto body = row_at(image(), 7);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->cfa_register, kRegisterRbp);
  EXPECT_EQ(body->registers[3].rule, UnwindRow::Rule::kUndefined);
  const auto restored = row_at(image(), 31);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->cfa_register, kRegisterRsp);
  EXPECT_EQ(restored->registers[3].rule, UnwindRow::Rule::kSame);
}

TEST(Unwind, KnowsNothingBeyondTheFunction) {
  EXPECT_FALSE(row_at(image(), 32));
  EXPECT_FALSE(row_at(image(), std::uint64_t{0} - 1));
}

TEST(Unwind, RefusesWhatIsCutOrOfAnotherForm) {
  const std::vector<std::uint8_t> whole = image();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(row_at({whole.begin(), whole.begin() + static_cast<long>(size)}, 7)) << size;
  for (std::size_t i = 0; i < whole.size(); ++i) {  // any byte wrong: an answer or none
    std::vector<std::uint8_t> wrong = whole;
    wrong[i] ^= 0xff;
    static_cast<void>(row_at(wrong, 7));
  }
  std::vector<std::uint8_t> expression = whole;
  expression[44 + 4 + 13 + 1] = 0x0f;  // def_cfa_expression
  EXPECT_FALSE(row_at(expression, 7));
}

}  // namespace
}  // namespace kansoku::sys
