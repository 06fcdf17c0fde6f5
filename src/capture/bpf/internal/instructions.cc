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

}  // namespace

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
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_ENDBR64:
      return SiteClass::kEndbr;
    case ZYDIS_MNEMONIC_NOP:
      return is_nop5(instruction) ? SiteClass::kNop5 : SiteClass::kNop;
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
