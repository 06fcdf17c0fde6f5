// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/switch_tables.h"

#include <utility>
#include <vector>

#include "capture/bpf/internal/instructions.h"

namespace kansoku::capture::bpf {
namespace {

/// Follows the instructions of some code in order of address.
class TableSearch {
 public:
  TableSearch(const sys::ElfFile& file, const CodeRange& range)
      : file_(file), range_(range), text_(file.section(".text")) {}

  [[nodiscard]] std::optional<SwitchTables> run() {
    const std::vector<std::byte> code = file_.bytes_at(range_.begin, range_.bytes);
    InstructionReader reader(code);
    Instruction instruction;
    while (reader.next(instruction))
      visit(instruction, range_.begin + reader.offset());
    if (!is_known_ || (names_a_label_ && jumps_by_register_)) return std::nullopt;
    return std::move(out_);
  }

 private:
  void visit(const Instruction& instruction, std::uint64_t next) {
    const auto& to = instruction.operands[0];
    if (instruction.info.meta.category == ZYDIS_CATEGORY_UNCOND_BR) {
      if (to.type == ZYDIS_OPERAND_TYPE_MEMORY && !add_far(to)) is_known_ = false;
      if (to.type == ZYDIS_OPERAND_TYPE_REGISTER) {
        jumps_by_register_ = true;
        if (to.reg.value == pointer_) is_known_ = false;
      }
      return;
    }
    const auto& from = instruction.operands[1];
    if (instruction.info.mnemonic == ZYDIS_MNEMONIC_LEA && from.mem.base == ZYDIS_REGISTER_RIP)
      add_named(next + static_cast<std::uint64_t>(from.mem.disp.value));
    const bool is_load =
        instruction.info.mnemonic == ZYDIS_MNEMONIC_MOV && instruction.info.operand_width == 64 &&
        to.type == ZYDIS_OPERAND_TYPE_REGISTER && from.type == ZYDIS_OPERAND_TYPE_MEMORY &&
        from.mem.index != ZYDIS_REGISTER_NONE;
    if (is_load && !add_far(from)) {
      pointer_ = to.reg.value;
    } else if (writes_register(instruction, [&](ZydisRegister r) { return r == pointer_; })) {
      pointer_ = ZYDIS_REGISTER_NONE;
    }
  }
  /// False if the operand is no entry of a table at a fixed address.
  bool add_far(const ZydisDecodedOperand& operand) {
    constexpr std::uint8_t kPointerBytes = 8;
    if (operand.mem.base != ZYDIS_REGISTER_NONE || operand.mem.index == ZYDIS_REGISTER_NONE ||
        operand.mem.scale != kPointerBytes)
      return operand.mem.index == ZYDIS_REGISTER_NONE;  // one pointer: another function's
    out_.far.insert(static_cast<std::uint64_t>(operand.mem.disp.value));
    return true;
  }
  void add_named(std::uint64_t address) {
    if (address - range_.begin < range_.bytes) {
      names_a_label_ = names_a_label_ || address != range_.begin;
      return;
    }
    const bool is_code = text_ && address - text_->address < text_->bytes;
    if (!is_code) out_.near.insert(address);
  }

  const sys::ElfFile& file_;
  const CodeRange& range_;
  std::optional<sys::ElfFile::Section> text_;
  SwitchTables out_;
  ZydisRegister pointer_{ZYDIS_REGISTER_NONE};  // holds an entry of a table of pointers
  bool is_known_{true}, names_a_label_{false}, jumps_by_register_{false};
};

}  // namespace

std::optional<SwitchTables> find_switch_tables(const sys::ElfFile& file, const CodeRange& range) {
  return TableSearch(file, range).run();
}

}  // namespace kansoku::capture::bpf
