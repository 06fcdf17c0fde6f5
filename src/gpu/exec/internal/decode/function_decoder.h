// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/exec/internal/decode/decoder.h"
#include "gpu/exec/internal/decode/register_slots.h"
#include "gpu/ptx/cfg.h"
#include "gpu/ptx/printer.h"

namespace kansoku::gpu::exec {

using ptx::Instruction;
using ptx::kNoIndex;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;
using ptx::Suffix;
using ptx::Type;

inline constexpr std::uint32_t kSlotsMax = 0x3fff;  // shuffles keep a slot in 14 bits
inline constexpr std::uint16_t kNoSlot = 0xffff;

[[nodiscard]] inline bool is_wide(Type type) {
  return ptx::bits_of(type) == 64;
}

/// Decodes one function: values and the operation table in decoder.cc, memory and atomics in
/// decoder_memory.cc, control flow and operations of lanes together in decoder_flow.cc, matrices in
/// decoder_matrix.cc.
class FunctionDecoder {
 public:
  FunctionDecoder(const ptx::Module& module, std::uint32_t index, const ModuleLayout& layout,
                  Isa isa)
      : module_(module), function_(module.functions[index]), layout_(layout), isa_(isa) {
    out_.name = function_.name;
    out_.is_entry = function_.is_entry;
    out_.source = index;
  }

  Result<CompiledFunction> decode(bool hoists);

 private:
  struct Fixup {
    std::size_t code;
    std::uint32_t instruction;
  };

  Result<void> check_directives() const;
  Result<void> place_registers(const ptx::Cfg& cfg, std::vector<bool>& is_hoisted);
  [[nodiscard]] Error too_many_registers() const;
  void place_variables();
  Result<void> instruction(std::uint32_t index);
  Result<void> prologue(const std::vector<bool>& is_hoisted);
  Result<void> dispatch(const Instruction& instruction);
  Result<void> control(const Instruction& in);

  // One family of opcodes each.
  Result<void> table_form(const Instruction& in, const std::string& name);
  Result<void> comparison(const Instruction& in);
  Result<void> set(const Instruction& in);
  Result<void> select(const Instruction& in);
  Result<void> test(const Instruction& in);
  Result<void> move(const Instruction& in);
  Result<void> special(const Instruction& in);
  Result<void> pack(const Instruction& in, bool is_pack);
  Result<void> predicate_logic(const Instruction& in);
  Result<void> predicate_constant(const Instruction& in);
  Result<void> conversion(const Instruction& in);
  Result<void> truth_table(const Instruction& in);
  Result<void> load(const Instruction& in);
  Result<void> store(const Instruction& in);
  Result<void> address_conversion(const Instruction& in);
  Result<void> space_test(const Instruction& in);
  Result<void> atomic(const Instruction& in);
  Result<void> branch(const Instruction& in);
  Result<void> call(const Instruction& in);
  Result<void> call_places(const Instruction& in, const Operand& list,
                           std::vector<CompiledFunction::Place>& out);
  Result<void> ret(const Instruction& in);
  Result<void> barrier(const Instruction& in);
  Result<void> reducing_barrier(const Instruction& in);
  Result<void> shuffle(const Instruction& in);
  Result<void> vote(const Instruction& in);
  Result<void> match(const Instruction& in);
  Result<void> redux(const Instruction& in);
  Result<void> matrix_product(const Instruction& in);
  Result<void> matrix_load(const Instruction& in);
  Result<void> async_copy(const Instruction& in);
  Result<void> fragment(const Instruction& in, std::size_t nth, std::size_t count,
                        std::uint16_t* slots);
  Result<void> matrix_transpose(const Instruction& in);
  Result<void> tile_product(const Instruction& in);
  Result<void> tile_access(const Instruction& in);
  struct Tile;
  Result<Tile> tile_of(const Instruction& in);
  Result<void> place_tile(const Instruction& in, Tile& tile);
  Result<std::uint16_t> place_in_tile(const Tile& tile, std::uint32_t nth, std::int32_t& offset);
  /// Emits a form with two or three sources into a new slot.
  std::uint16_t emit_new(std::string_view name, bool wide, std::uint16_t a, std::uint16_t b,
                         std::uint16_t c = 0);

  Code& emit(Handler run) {
    Code code;
    code.run = run;
    code.line = line_;
    out_.code.push_back(code);
    out_.info.push_back(info_);
    info_.is_first = false;
    return out_.code.back();
  }
  /// Notes the memory that the code just emitted touches.
  void note_access(const Instruction& in, Space space);
  Result<void> emit_form(std::string_view name, std::uint16_t d, std::uint16_t a);
  [[nodiscard]] Error unsupported(const Instruction& in, std::string_view why) const;
  [[nodiscard]] const Operand& at(const Instruction& in, std::size_t nth) const {
    return function_.operand(in, nth);
  }

  [[nodiscard]] std::uint16_t new_slot(bool wide);
  void free_new_slots();
  [[nodiscard]] std::uint16_t lasting_slot(bool wide);
  [[nodiscard]] std::uint16_t constant(std::uint64_t value, bool wide);
  [[nodiscard]] std::uint64_t immediate(const Operand& operand, Type type) const;
  Result<std::uint16_t> source(const Instruction& in, const Operand& operand, Type type, bool wide);
  Result<std::uint16_t> symbol_address(const Instruction& in, const Operand& operand);
  Result<std::uint16_t> predicate(const Instruction& in, const Operand& operand) const;
  [[nodiscard]] bool is_predicate(const Operand& operand) const;
  /// Slot to write a result to, and the code that has to follow it.
  struct Destination {
    std::uint16_t slot{0};
    std::string_view extend;  // a .extend form from `slot` to `final_slot`
    std::uint16_t final_slot{0};
  };
  Result<Destination> destination(const Instruction& in, const Operand& operand, Type type);
  Result<void> finish(const Destination& destination);
  /// Slot of `d` or `d|p`, and the predicate for Code::extra: its number + 1 from bit 16 on.
  struct PairDestination {
    Destination value;
    std::uint32_t predicate_bits{0};
  };
  Result<PairDestination> destination_pair(const Instruction& in, const Operand& operand);
  struct Address {
    std::uint16_t slot{0};
    std::int32_t offset{0};
    Space space{Space::kGeneric};
  };
  Result<Address> address(const Instruction& in, const Operand& operand, Space space);
  [[nodiscard]] std::string canonical(const Instruction& in) const;

  const ptx::Module& module_;
  const ptx::Function& function_;
  const ModuleLayout& layout_;
  const Isa isa_;
  CompiledFunction out_;
  std::vector<std::uint16_t> slots_;  // by register; predicates: their number
  std::array<std::vector<std::uint16_t>, 2> free_slots_, used_slots_;  // of 32 bits, of 64
  std::vector<std::uint32_t> variable_offsets_;                        // by local variable
  std::vector<std::uint32_t> param_offsets_, return_offsets_;
  std::map<std::pair<std::uint64_t, bool>, std::uint16_t> constants_;
  std::vector<std::uint32_t> begin_of_;  // by instruction: first code
  std::vector<Fixup> fixups_;
  std::uint32_t line_{0};
  CodeInfo info_;  // of the instruction in hand
};

}  // namespace kansoku::gpu::exec
