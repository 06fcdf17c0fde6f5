// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/instructions.h"

#include <algorithm>

namespace kansoku::capture::bpf {
namespace {

bool is_push_register(const Instruction& instruction) {
  return instruction.info.mnemonic == ZYDIS_MNEMONIC_PUSH &&
         instruction.info.operand_count_visible == 1 &&
         instruction.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         instruction.info.opcode >= 0x50 && instruction.info.opcode <= 0x57;
}

bool is_nop5(const Instruction& instruction) {
  static constexpr std::array kNop5{std::byte{0x0f}, std::byte{0x1f}, std::byte{0x44},
                                    std::byte{0x00}, std::byte{0x00}};
  return std::equal(instruction.bytes.begin(), instruction.bytes.end(), kNop5.begin(), kNop5.end());
}

// The nops that assemblers write. The kernel emulates those of its own table only, others are
// single-stepped: kernels before 2025 know the first one (second-hand).
bool is_common_nop(std::span<const std::byte> bytes) {
  static constexpr std::array<std::array<unsigned char, 8>, 7> kNops{{
      {0x90},
      {0x66, 0x90},
      {0x0f, 0x1f, 0x00},
      {0x0f, 0x1f, 0x40, 0x00},
      {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
      {0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00},
      {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
  }};
  static constexpr std::array<std::size_t, 7> kBytes{1, 2, 3, 4, 6, 7, 8};
  for (std::size_t i = 0; i < kNops.size(); ++i) {
    if (bytes.size() == kBytes.at(i) &&
        std::equal(bytes.begin(), bytes.end(), kNops.at(i).begin(),
                   [](std::byte a, unsigned char b) { return a == std::byte{b}; }))
      return true;
  }
  return false;
}

bool is_branch(const Instruction& instruction) {
  const auto category = instruction.info.meta.category;
  return category == ZYDIS_CATEGORY_COND_BR || category == ZYDIS_CATEGORY_UNCOND_BR ||
         category == ZYDIS_CATEGORY_CALL;
}

}  // namespace

bool is_probeable(const Instruction& instruction) {
  for (std::size_t i = 0; i < instruction.info.raw.prefix_count; ++i) {
    switch (instruction.info.raw.prefixes[i].value) {
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
      case 0xf0:
        return false;
      case 0x66:
        if (is_branch(instruction)) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

InstructionReader::InstructionReader(std::span<const std::byte> code) : code_(code) {
  ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

bool InstructionReader::next(Instruction& out) {
  const auto rest = code_.subspan(offset_);
  if (rest.empty() || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, rest.data(), rest.size(),
                                                           &out.info, out.operands.data()))) {
    return false;
  }
  out.bytes = rest.first(out.info.length);
  offset_ += out.info.length;
  return true;
}

SiteClass classify(const Instruction& instruction) {
  if (!is_probeable(instruction)) return SiteClass::kOther;
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_ENDBR64:
      return SiteClass::kEndbr;
    case ZYDIS_MNEMONIC_NOP:
      if (is_nop5(instruction)) return SiteClass::kNop5;
      return is_common_nop(instruction.bytes) ? SiteClass::kNop : SiteClass::kOther;
    case ZYDIS_MNEMONIC_PUSH:
      return is_push_register(instruction) ? SiteClass::kPush : SiteClass::kOther;
    case ZYDIS_MNEMONIC_JMP:
      return instruction.info.opcode == 0xe9 || instruction.info.opcode == 0xeb ? SiteClass::kJump
                                                                                : SiteClass::kOther;
    case ZYDIS_MNEMONIC_CALL:
      return instruction.info.opcode == 0xe8 ? SiteClass::kCall : SiteClass::kOther;
    default:
      return instruction.info.meta.category == ZYDIS_CATEGORY_COND_BR &&
                     ((instruction.info.opcode >= 0x70 && instruction.info.opcode <= 0x7f) ||
                      (instruction.info.opcode >= 0x80 && instruction.info.opcode <= 0x8f))
                 ? SiteClass::kBranch
                 : SiteClass::kOther;
  }
}

std::optional<std::int64_t> branch_target(const Instruction& instruction, std::size_t next) {
  const auto category = instruction.info.meta.category;
  if (category != ZYDIS_CATEGORY_COND_BR && category != ZYDIS_CATEGORY_UNCOND_BR)
    return std::nullopt;
  const auto& operand = instruction.operands[0];
  if (operand.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !operand.imm.is_relative) return std::nullopt;
  return static_cast<std::int64_t>(next) + operand.imm.value.s;
}

}  // namespace kansoku::capture::bpf
