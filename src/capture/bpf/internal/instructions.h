// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Zydis/Zydis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "capture/bpf/sites.h"

namespace kansoku::capture::bpf {

struct Instruction {
  ZydisDecodedInstruction info{};
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands{};
  std::span<const std::byte> bytes;  // of the code it was read from

  [[nodiscard]] std::span<const ZydisDecodedOperand> all_operands() const {
    return std::span(operands).first(info.operand_count);
  }
};

/// Reads the instructions of some code one after the other. `code` is borrowed.
class InstructionReader {
 public:
  explicit InstructionReader(std::span<const std::byte> code);
  /// False at the end of the bytes and at bytes that are no instruction.
  bool next(Instruction& out);
  /// Behind the last instruction that was read.
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  ZydisDecoder decoder_{};
  std::span<const std::byte> code_;
  std::size_t offset_{0};
};

/// Class of a probe there: how the kernel runs the instruction.
[[nodiscard]] SiteClass classify(const Instruction& instruction);

/// False where the kernel refuses a probe: behind prefixes for segments and locks, as padding
/// before loops has them, and at branches with one for the operand's size. One such probe would
/// have all others of the file refused.
[[nodiscard]] bool is_probeable(const Instruction& instruction);

/// Target of a relative branch, from the begin of the code; `next`: the offset behind it.
[[nodiscard]] std::optional<std::int64_t> branch_target(const Instruction& instruction,
                                                        std::size_t next);

[[nodiscard]] inline ZydisRegister whole_register(ZydisRegister part) {
  return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, part);
}

/// True if it writes a register for which `is_wanted` (of the whole register) is true.
template <class Predicate>
bool writes_register(const Instruction& instruction, Predicate is_wanted) {
  for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
        (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
        is_wanted(whole_register(operand.reg.value)))
      return true;
  }
  return false;
}

}  // namespace kansoku::capture::bpf
