// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/references.h"

#include "capture/bpf/internal/instructions.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kBytes = 96, kInstructions = 16;

// Address that an instruction names; the instruction ends at `next`.
std::optional<std::uint64_t> address_in(const Instruction& instruction, std::uint64_t next) {
  for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || operand.mem.disp.has_displacement == 0)
      continue;
    const auto displacement = static_cast<std::uint64_t>(operand.mem.disp.value);
    if (operand.mem.base == ZYDIS_REGISTER_RIP) return next + displacement;
    // table(,%rdi,8): of programs at fixed addresses; 0(,%rdi,8) is a product.
    if (operand.mem.base == ZYDIS_REGISTER_NONE && operand.mem.index != ZYDIS_REGISTER_NONE &&
        displacement != 0)
      return displacement;
  }
  return std::nullopt;
}

bool goes_elsewhere(const Instruction& instruction) {
  switch (instruction.info.meta.category) {
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_CALL:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<std::uint64_t> first_address_taken(sys::ElfFile& file, const sys::Symbol& function) {
  const auto code = file.bytes_at(function.address, kBytes);
  InstructionReader reader(code);
  Instruction instruction;
  for (std::size_t i = 0; i < kInstructions && reader.next(instruction); ++i) {
    if (goes_elsewhere(instruction)) return std::nullopt;  // its operand is its target
    if (const auto found = address_in(instruction, function.address + reader.offset()))
      return found;
  }
  return std::nullopt;
}

}  // namespace kansoku::capture::bpf
