// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "gpu/exec/internal/decode/cost_classes.h"
#include "gpu/exec/internal/decode/function_decoder.h"
#include "gpu/exec/internal/decode/fusion.h"
#include "gpu/exec/internal/decode/invariants.h"
#include "gpu/exec/internal/decode/suffix_rules.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
Error FunctionDecoder::unsupported(const Instruction& in, std::string_view why) const {
  return Error{kansoku::Code::kUnsupported,
               fmt::format("ptx line {}: {} of {}: {}", line_,
                           ptx::print_instruction(module_, function_, in), function_.name, why)};
}

Result<void> FunctionDecoder::check_directives() const {
  for (const ptx::RawDirective& raw : function_.directives) {
    if (!raw.is_known) {
      return Error{kansoku::Code::kUnsupported,
                   fmt::format("ptx line {}: `{:.60}` of {}: a directive that is not supported",
                               raw.line, raw.text, function_.name)};
    }
  }
  return {};
}

/// For the instruction in hand.
std::uint16_t FunctionDecoder::new_slot(bool wide) {
  auto& free = free_slots_[wide ? 1 : 0];
  const std::uint16_t slot = free.empty() ? lasting_slot(wide) : free.back();
  if (!free.empty()) free.pop_back();
  used_slots_[wide ? 1 : 0].push_back(slot);
  return slot;
}

void FunctionDecoder::free_new_slots() {
  for (std::size_t i = 0; i < used_slots_.size(); ++i) {
    free_slots_[i].insert(free_slots_[i].end(), used_slots_[i].rbegin(), used_slots_[i].rend());
    used_slots_[i].clear();
  }
}

/// Nobody else ever gets it.
std::uint16_t FunctionDecoder::lasting_slot(bool wide) {
  const auto slot = static_cast<std::uint16_t>(out_.slot_count);
  out_.slot_count += wide ? 2 : 1;
  return slot;
}

std::uint16_t FunctionDecoder::constant(std::uint64_t value, bool wide) {
  const auto [found, is_new] = constants_.try_emplace({value, wide}, std::uint16_t{0});
  if (is_new) {
    found->second = lasting_slot(wide);
    out_.constants.push_back({found->second, value, wide});
  }
  return found->second;
}

/// kLimit if a place of the text has too many of them in use. Hoisted values stay in use: a
/// function with very many of them does without.
Result<void> FunctionDecoder::place_registers(const ptx::Cfg& cfg, std::vector<bool>& is_hoisted) {
  RegisterSlots registers = assign_slots(function_, cfg, is_hoisted);
  if (registers.slot_count > kSlotsMax / 2) {
    is_hoisted.assign(is_hoisted.size(), false);
    registers = assign_slots(function_, cfg, is_hoisted);
  }
  if (registers.slot_count > kSlotsMax || registers.predicate_count > kSlotsMax)
    return too_many_registers();
  for (const std::uint32_t slot : registers.slots)
    slots_.push_back(static_cast<std::uint16_t>(slot));
  out_.slot_count = registers.slot_count;
  out_.predicate_count = registers.predicate_count;
  out_.frame_slot = lasting_slot(true);
  return {};
}

Error FunctionDecoder::too_many_registers() const {
  return Error{kansoku::Code::kLimit,
               fmt::format("{} takes more than {} registers at once", function_.name, kSlotsMax)};
}

void FunctionDecoder::place_variables() {
  std::uint32_t local = 0;
  const auto place = [&](const ptx::Variable& variable) {
    const std::uint32_t align = variable.alignment();
    local = (local + align - 1) / align * align;
    const std::uint32_t offset = local;
    local += static_cast<std::uint32_t>(variable.bytes());
    return offset;
  };
  const auto place_of_call = [&](const ptx::Variable& variable,
                                 std::vector<CompiledFunction::Place>& out) {
    const std::uint32_t offset = place(variable);
    out.push_back({offset, static_cast<std::uint32_t>(variable.bytes())});
    return offset;
  };
  // Arguments and results of device functions lie in the thread's local memory, in its frame.
  for (const ptx::Variable& param : function_.params)
    param_offsets_.push_back(function_.is_entry ? 0 : place_of_call(param, out_.params));
  for (const ptx::Variable& result : function_.returns)
    return_offsets_.push_back(place_of_call(result, out_.returns));
  for (const ptx::Variable& variable : function_.variables) {
    const bool is_local = variable.space == Space::kLocal || variable.space == Space::kParam;
    variable_offsets_.push_back(is_local ? place(variable) : 0);
  }
  if (function_.is_entry) param_offsets_ = lay_out_params(function_.params).offsets;
  out_.local_bytes = (local + 15) / 16 * 16;
  std::uint32_t shared = layout_.function_shared[out_.source];
  for (std::size_t i = 0; i < function_.variables.size(); ++i) {
    const ptx::Variable& variable = function_.variables[i];
    if (variable.space != Space::kShared || variable.is_unsized) continue;
    const std::uint32_t align = variable.alignment();
    shared = (shared + align - 1) / align * align;
    variable_offsets_[i] = shared;
    shared += static_cast<std::uint32_t>(variable.bytes());
  }
  out_.shared_bytes = shared;
}

/// Blocks in which lanes that went different ways meet again.
[[nodiscard]] static std::vector<bool> join_blocks(const ptx::Cfg& cfg) {
  const auto post_dominators = ptx::immediate_post_dominators(cfg);
  std::vector<bool> is_join(cfg.blocks.size(), false);
  for (std::size_t b = 0; b < cfg.blocks.size(); ++b) {
    if (cfg.blocks[b].predecessors.size() > 1) is_join[b] = true;
    // At the end of a loop there may be one way in only, which lanes take in different rounds.
    if (cfg.blocks[b].successors.size() > 1 && post_dominators[b] < cfg.blocks.size())
      is_join[post_dominators[b]] = true;
  }
  return is_join;
}

Result<void> FunctionDecoder::prologue(const std::vector<bool>& is_hoisted) {
  for (std::uint32_t i = 0; i < is_hoisted.size(); ++i) {
    if (!is_hoisted[i]) continue;
    line_ = i < function_.places.size() ? function_.places[i].line : 0;
    TRY_VOID(instruction(i));
    free_new_slots();
  }
  out_.prologue = static_cast<std::uint32_t>(out_.code.size());
  return {};
}

Result<CompiledFunction> FunctionDecoder::decode(bool hoists) {
  TRY_VOID(check_directives());
  std::vector<bool> is_hoisted(function_.instructions.size());
  if (hoists && function_.is_entry) is_hoisted = block_invariants(function_);
  const ptx::Cfg cfg = ptx::build_cfg(function_);
  TRY_VOID(place_registers(cfg, is_hoisted));
  place_variables();
  TRY_VOID(prologue(is_hoisted));
  const std::vector<bool> is_join = join_blocks(cfg);
  const std::size_t count = function_.instructions.size();
  for (std::uint32_t i = 0; i < count; ++i) {
    begin_of_.push_back(static_cast<std::uint32_t>(out_.code.size()));
    line_ = i < function_.places.size() ? function_.places[i].line : 0;
    const std::uint32_t block = cfg.block_of[i];
    info_ = {};
    if (cfg.blocks[block].begin == i && is_join[block]) emit(run_join);
    if (!is_hoisted[i]) TRY_VOID(instruction(i));
    free_new_slots();
    if (out_.slot_count > kSlotsMax || out_.predicate_count > kSlotsMax)
      return too_many_registers();
  }
  begin_of_.push_back(static_cast<std::uint32_t>(out_.code.size()));
  info_ = {};
  emit(function_.is_entry ? run_exit : run_return);  // running off the end
  for (const Fixup& fixup : fixups_) {
    const auto target = static_cast<std::int64_t>(begin_of_[fixup.instruction]);
    out_.code[fixup.code].offset =
        static_cast<std::int32_t>(target - static_cast<std::int64_t>(fixup.code));
  }
  return std::move(out_);
}

Result<void> FunctionDecoder::instruction(std::uint32_t index) {
  const Instruction& in = function_.instructions[index];
  info_.op = in.op;
  info_.is_float = in.type() != Type::kCount && ptx::is_float(in.type());
  info_.cost = cost_class_of(in);
  info_.is_first = true;
  if (in.guard == kNoIndex || in.op == Op::kBra) return dispatch(in);
  // One code can be guarded as it is; what takes several, or leaves the frame, is jumped over.
  const std::size_t guard_at = out_.code.size();
  info_.is_first = false;
  Code& guard = emit(run_guard);
  guard.d = slots_[in.guard];
  guard.extra = in.is_guard_negated ? 1 : 0;
  info_.is_first = true;  // the guarded instruction counts, not the guard
  TRY_VOID(dispatch(in));
  const std::size_t count = out_.code.size() - guard_at - 1;
  const bool leaves = in.op == Op::kCall || in.op == Op::kRet;
  if (count == 1 && !leaves) return {};
  Code& over = out_.code[guard_at];
  over.run = run_branch_if;
  over.extra ^= 1;
  over.offset = static_cast<std::int32_t>(count + 1);
  info_ = {};
  emit(run_join);
  return {};
}

std::string FunctionDecoder::canonical(const Instruction& in) const {
  std::string name(ptx::op_name(in.op));
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    name += '.';
    name += ptx::suffix_name(in.suffixes[i]);
  }
  return name;
}

Result<void> FunctionDecoder::dispatch(const Instruction& in) {
  if (in.op == Op::kUnknown) return unsupported(in, "an instruction that is not supported");
  if (!has_known_suffixes(in)) return unsupported(in, "a suffix that is not supported here");
  const bool is_on_predicates = in.type() == Type::kPred;
  switch (in.op) {
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kNot:
      return is_on_predicates ? predicate_logic(in) : table_form(in, canonical(in));
    case Op::kMov:
      return move(in);
    case Op::kSetp:
      return comparison(in);
    case Op::kSet:
      return set(in);
    case Op::kSelp:
    case Op::kSlct:
      return select(in);
    case Op::kTestp:
      return test(in);
    case Op::kCvt:
      return conversion(in);
    case Op::kLop3:
      return truth_table(in);
    case Op::kLd:
    case Op::kLdu:
      return load(in);
    case Op::kSt:
      return store(in);
    case Op::kCvta:
      return address_conversion(in);
    case Op::kIsspacep:
      return space_test(in);
    case Op::kAtom:
    case Op::kRed:
      return atomic(in);
    default:
      return control(in);
  }
}

/// Branches, calls, and what the lanes of a warp do together; the rest stands in the table.
Result<void> FunctionDecoder::control(const Instruction& in) {
  switch (in.op) {
    case Op::kBra:
      return branch(in);
    case Op::kCall:
      return call(in);
    case Op::kRet:
      return ret(in);
    case Op::kExit:
      emit(run_exit);
      return {};
    case Op::kTrap:
    case Op::kBrkpt:
      emit(run_trap);
      return {};
    case Op::kBar:
    case Op::kBarrier:
      return barrier(in);
    case Op::kMembar:
    case Op::kFence:
      emit(run_fence);
      return {};
    case Op::kNanosleep:
    case Op::kPmevent:
    case Op::kPrefetch:
    case Op::kPrefetchu:
    case Op::kGriddepcontrol:  // every launch waits for the one before it
      emit(run_nothing);
      return {};
    case Op::kShfl:
      return shuffle(in);
    case Op::kVote:
      return vote(in);
    case Op::kMatch:
      return match(in);
    case Op::kRedux:
      return redux(in);
    case Op::kMma:
      return matrix_product(in);
    case Op::kLdmatrix:
      return matrix_load(in);
    case Op::kMovmatrix:
      return matrix_transpose(in);
    case Op::kWmma:
      return in.has(Suffix::kMma) ? tile_product(in) : tile_access(in);
    case Op::kCp:
      return async_copy(in);
    case Op::kActivemask: {
      TRY(const auto d, destination(in, at(in, 0), Type::kB32));
      emit(run_activemask).d = d.slot;
      return finish(d);
    }
    default:
      return table_form(in, canonical(in));
  }
}

std::uint64_t FunctionDecoder::immediate(const Operand& operand, Type type) const {
  const auto bits = static_cast<std::uint64_t>(operand.value);
  if (operand.kind == OperandKind::kFloat64 && type == Type::kF32)
    return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  if (operand.kind == OperandKind::kFloat32 && type == Type::kF64) {
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    return std::bit_cast<std::uint64_t>(static_cast<double>(narrow));
  }
  switch (type == Type::kCount ? 64 : ptx::bits_of(type)) {
    case 8:
      return bits & 0xff;
    case 16:
      return bits & 0xffff;
    case 32:
      return bits & 0xffffffff;
    default:
      return bits;
  }
}

Result<std::uint16_t> FunctionDecoder::symbol_address(const Instruction& in,
                                                      const Operand& operand) {
  const auto offset = static_cast<std::uint64_t>(operand.value);
  switch (operand.kind) {
    case OperandKind::kModuleVariable:
      return constant(layout_.variables[operand.index] + offset, true);
    case OperandKind::kParameter:
      if (function_.is_entry) return constant(param_offsets_[operand.index] + offset, true);
      break;
    case OperandKind::kLocalVariable:
      if (function_.variables[operand.index].space == Space::kShared) {
        const bool is_dynamic = function_.variables[operand.index].is_unsized;
        return constant(
            (is_dynamic ? layout_.dynamic_shared_offset : variable_offsets_[operand.index]) +
                offset,
            true);
      }
      break;
    case OperandKind::kReturn:
      break;
    default:
      return unsupported(in, "an address that is not supported");
  }
  const std::uint32_t base = operand.kind == OperandKind::kParameter ? param_offsets_[operand.index]
                             : operand.kind == OperandKind::kReturn
                                 ? return_offsets_[operand.index]
                                 : variable_offsets_[operand.index];
  const std::uint16_t slot = new_slot(true);
  const Form* const add = find_form(isa_, "add.u64");
  Code& code = emit(add->run);
  code.d = slot;
  code.a = out_.frame_slot;
  code.b = constant(base + offset, true);
  return slot;
}

/// True for the registers that run_special knows: all but those of clusters, and of the environment
/// the two that hold the address of a cooperative launch's workspace.
static bool is_known_special(const Operand& operand) {
  const auto special = static_cast<ptx::Special>(operand.index);
  return special <= ptx::Special::kWarpSize || special == ptx::Special::kEnvreg1 ||
         special == ptx::Special::kEnvreg2;
}

/// Slot of a source as 32 or 64 bits; may emit steps in front of the instruction.
Result<std::uint16_t> FunctionDecoder::source(const Instruction& in, const Operand& operand,
                                              Type type, bool wide) {
  switch (operand.kind) {
    case OperandKind::kInteger:
    case OperandKind::kFloat32:
    case OperandKind::kFloat64:
      return constant(immediate(operand, type), wide);
    case OperandKind::kSpecial: {
      if (!is_known_special(operand))
        return unsupported(in, "a special register that is not supported");
      const std::uint16_t slot = new_slot(wide);
      Code& code = emit(run_special);
      code.d = slot;
      code.extra = operand.index;
      code.c = wide ? 1 : 0;
      return slot;
    }
    case OperandKind::kFunction:
      return constant(function_address(operand.index), wide);
    case OperandKind::kRegister:
      break;
    default: {
      TRY(const auto slot, symbol_address(in, operand));
      if (wide) return slot;
      const std::uint16_t narrow = new_slot(false);
      TRY_VOID(emit_form(".truncate.b64", narrow, slot));
      return narrow;
    }
  }
  const Type held = function_.registers[operand.index].type;
  if (held == Type::kPred) return unsupported(in, "a predicate as a value");
  const std::uint16_t slot = slots_[operand.index];
  if (is_wide(held) == wide) return slot;
  const std::uint16_t other = new_slot(wide);
  TRY_VOID(emit_form(
      wide ? (ptx::is_signed(type) ? ".extend.s32.b64" : ".extend.u32.b64") : ".truncate.b64",
      other, slot));
  return other;
}

Result<void> FunctionDecoder::emit_form(std::string_view name, std::uint16_t d, std::uint16_t a) {
  const Form* const form = find_form(isa_, name);
  if (form == nullptr) {
    return Error{kansoku::Code::kInternal, fmt::format("no form {} in the operation table", name)};
  }
  Code& code = emit(form->run);
  code.d = d;
  code.a = a;
  return {};
}

bool FunctionDecoder::is_predicate(const Operand& operand) const {
  return operand.kind == OperandKind::kRegister &&
         function_.registers[operand.index].type == Type::kPred;
}

Result<std::uint16_t> FunctionDecoder::predicate(const Instruction& in,
                                                 const Operand& operand) const {
  if (!is_predicate(operand)) return unsupported(in, "expected a predicate register");
  return slots_[operand.index];
}

/// Results narrower than their register are widened by a step of its own.
Result<FunctionDecoder::Destination> FunctionDecoder::destination(const Instruction& in,
                                                                  const Operand& operand,
                                                                  Type type) {
  if (operand.kind == OperandKind::kSink) {
    const std::uint16_t unused = new_slot(is_wide(type));
    return Destination{unused, {}, unused};
  }
  if (operand.kind != OperandKind::kRegister || is_predicate(operand))
    return unsupported(in, "expected a register to write to");
  const std::uint32_t have = ptx::bits_of(function_.registers[operand.index].type);
  const std::uint32_t want = ptx::bits_of(type);
  const std::uint16_t slot = slots_[operand.index];
  std::string_view extend;
  if (type == Type::kS8) {
    extend = have == 16 ? ".extend.s8.b16" : have == 32 ? ".extend.s8.b32" : ".extend.s8.b64";
  } else if (type == Type::kS16 && have > 16) {
    extend = have == 32 ? ".extend.s16.b32" : ".extend.s16.b64";
  } else if (want <= 32 && have == 64) {
    extend = type == Type::kS32 ? ".extend.s32.b64" : ".extend.u32.b64";
  } else if (want == 64 && have != 64) {
    return unsupported(in, "the register is narrower than the result");
  }
  if (extend.empty()) return Destination{slot, {}, slot};
  return Destination{new_slot(false), extend, slot};
}

Result<void> FunctionDecoder::finish(const Destination& destination) {
  if (destination.extend.empty()) return {};
  return emit_form(destination.extend, destination.final_slot, destination.slot);
}

/// Decodes a form of the operation table: destination and sources as its shape says.
Result<void> FunctionDecoder::table_form(const Instruction& in, const std::string& name) {
  const Form* const form = find_form(isa_, name);
  if (form == nullptr || form->shape.size() != in.operand_count)
    return unsupported(in, "a form that is not supported");
  const Type type = in.type();
  std::array<std::uint16_t, 5> slots{};
  for (std::size_t i = 1; i < form->shape.size(); ++i) {
    // Operands of 32 bits beside wider ones are counts and positions.
    const bool wide = form->shape[i] == 'l';
    const Type as =
        wide == is_wide(type) || (in.op == Op::kMul || in.op == Op::kMad) ? type : Type::kU32;
    TRY(slots[i], source(in, at(in, i), as, wide));
  }
  Type result = type;
  if (form->shape[0] == 'l' && !is_wide(type)) result = Type::kB64;
  if (form->shape[0] == 'i' && is_wide(type)) result = Type::kB32;
  if (in.has(Suffix::kWide) && ptx::bits_of(type) == 16) result = Type::kB32;
  TRY(const auto d, destination(in, at(in, 0), result));
  Code& code = emit(form->run);
  code.d = d.slot;
  code.a = slots[1];
  code.b = slots[2];
  code.c = slots[3];
  code.extra = slots[4];
  return finish(d);
}

/// Bits for Combine of lane_ops.h.
static std::uint32_t combine_bits(const Instruction& in) {
  if (in.has(Suffix::kAnd)) return 1;
  if (in.has(Suffix::kOr)) return 2;
  if (in.has(Suffix::kXor)) return 3;
  return 0;
}

/// The name without the combining operation.
static std::string comparison_name(const Instruction& in) {
  std::string name(ptx::op_name(in.op));
  for (std::size_t i = 0; i < in.suffix_count; ++i) {
    const Suffix suffix = in.suffixes[i];
    if (suffix == Suffix::kAnd || suffix == Suffix::kOr || suffix == Suffix::kXor) continue;
    name += '.';
    name += ptx::suffix_name(suffix);
  }
  return name;
}

Result<void> FunctionDecoder::comparison(const Instruction& in) {
  const Form* const form = find_form(isa_, comparison_name(in));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  const bool wide = form->shape[1] == 'l';
  TRY(const auto a, source(in, at(in, 1), in.type(), wide));
  TRY(const auto b, source(in, at(in, 2), in.type(), wide));
  const Operand& to = at(in, 0);
  const bool is_pair = to.kind == OperandKind::kPair;
  const Operand& first = is_pair ? function_.operands[to.index] : to;
  std::uint32_t extra = combine_bits(in);
  std::uint16_t with = 0;
  if (in.operand_count > 3) {
    TRY(with, predicate(in, at(in, 3)));
    if (at(in, 3).is_negated) extra |= 4;
  }
  std::uint16_t second = kNoSlot;
  if (is_pair && function_.operands[to.index + 1].kind != OperandKind::kSink) {
    TRY(second, predicate(in, function_.operands[to.index + 1]));
    extra |= (std::uint32_t{second} + 1) << 16;
  }
  std::uint16_t d = static_cast<std::uint16_t>(out_.predicate_count);
  if (first.kind == OperandKind::kSink) {
    ++out_.predicate_count;
  } else {
    TRY(d, predicate(in, first));
  }
  Code& code = emit(extra == 0 ? form->run : form->combined);
  code.d = d;
  code.a = a;
  code.b = b;
  code.c = with;
  code.extra = extra;
  return {};
}

Result<void> FunctionDecoder::set(const Instruction& in) {
  const Form* const form = find_form(isa_, comparison_name(in));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  const bool wide = form->shape[1] == 'l';
  TRY(const auto a, source(in, at(in, 1), in.type(1), wide));
  TRY(const auto b, source(in, at(in, 2), in.type(1), wide));
  std::uint32_t extra = combine_bits(in);
  std::uint16_t with = 0;
  if (in.operand_count > 3) {
    TRY(with, predicate(in, at(in, 3)));
    if (at(in, 3).is_negated) extra |= 4;
  }
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  Code& code = emit(form->run);
  code.d = d.slot;
  code.a = a;
  code.b = b;
  code.c = with;
  code.extra = extra;
  return finish(d);
}

Result<void> FunctionDecoder::select(const Instruction& in) {
  const Form* const form = find_form(isa_, canonical(in));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  const bool wide = form->shape[1] == 'l';
  TRY(const auto a, source(in, at(in, 1), in.type(), wide));
  TRY(const auto b, source(in, at(in, 2), in.type(), wide));
  std::uint16_t c = 0;
  if (in.op == Op::kSelp) {
    TRY(c, predicate(in, at(in, 3)));
  } else {
    TRY(c, source(in, at(in, 3), in.type(1), false));
  }
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  Code& code = emit(form->run);
  code.d = d.slot;
  code.a = a;
  code.b = b;
  code.c = c;
  code.extra = in.op == Op::kSelp && at(in, 3).is_negated ? 1 : 0;
  return finish(d);
}

Result<void> FunctionDecoder::test(const Instruction& in) {
  const Form* const form = find_form(isa_, canonical(in));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), in.type(), form->shape[1] == 'l'));
  TRY(const auto d, predicate(in, at(in, 0)));
  Code& code = emit(form->run);
  code.d = d;
  code.a = code.b = a;
  return {};
}

Result<void> FunctionDecoder::predicate_logic(const Instruction& in) {
  TRY(const auto d, predicate(in, at(in, 0)));
  TRY(const auto a, predicate(in, at(in, 1)));
  std::uint16_t b = a;
  std::uint32_t extra = 3;
  if (in.op == Op::kAnd) extra = 0;
  if (in.op == Op::kOr) extra = 1;
  if (in.op == Op::kXor) extra = 2;
  if (at(in, 1).is_negated) extra |= 4;
  if (in.op == Op::kNot) extra |= 16;
  if (in.operand_count > 2) {
    TRY(b, predicate(in, at(in, 2)));
    if (at(in, 2).is_negated) extra |= 8;
  }
  Code& code = emit(run_predicate_logic);
  code.d = d;
  code.a = a;
  code.b = b;
  code.extra = extra;
  return {};
}

Result<void> FunctionDecoder::move(const Instruction& in) {
  const bool is_constant = at(in, 1).kind == OperandKind::kInteger;
  if (in.type() == Type::kPred) return is_constant ? predicate_constant(in) : predicate_logic(in);
  if (at(in, 1).kind == OperandKind::kVector) return pack(in, true);
  if (at(in, 0).kind == OperandKind::kVector) return pack(in, false);
  if (at(in, 1).kind == OperandKind::kSpecial) return special(in);
  return table_form(in, canonical(in));
}

Result<void> FunctionDecoder::special(const Instruction& in) {
  if (!is_known_special(at(in, 1)))
    return unsupported(in, "a special register that is not supported");
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  Code& code = emit(run_special);
  code.d = d.slot;
  code.extra = at(in, 1).index;
  code.c = is_wide(in.type()) ? 1 : 0;
  return finish(d);
}

Result<void> FunctionDecoder::pack(const Instruction& in, bool is_pack) {
  const Operand& parts = at(in, is_pack ? 1 : 0);
  const Operand& whole = at(in, is_pack ? 0 : 1);
  const std::uint32_t bits = ptx::bits_of(in.type());
  if (parts.count != 2 && parts.count != 4) return unsupported(in, "expected 2 or 4 parts");
  const std::uint32_t part_bits = bits / parts.count;
  if (part_bits < 8 || part_bits > 32) return unsupported(in, "expected parts of 8, 16 or 32 bits");
  std::array<std::uint16_t, 4> slots{kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  for (std::uint32_t i = 0; i < parts.count; ++i) {
    const Operand& part = function_.operands[parts.index + i];
    if (!is_pack && part.kind == OperandKind::kSink) {
      slots[i] = new_slot(false);  // written, never read
      continue;
    }
    if (!is_pack && part.kind != OperandKind::kRegister)
      return unsupported(in, "expected registers to write to");
    TRY(slots[i], source(in, part, Type::kB32, false));
  }
  std::uint16_t other = 0;
  if (is_pack) {
    TRY(const auto d, destination(in, whole, in.type()));
    other = d.slot;
  } else {
    TRY(other, source(in, whole, in.type(), bits == 64));
  }
  const Form* const form =
      find_form(isa_, fmt::format(".{}.b{}.{}", is_pack ? "pack" : "unpack", bits, parts.count));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  Code& code = emit(form->run);
  code.d = is_pack ? other : slots[0];
  code.a = is_pack ? slots[0] : other;
  code.b = slots[1];
  code.c = slots[2];
  code.offset = slots[3];
  return {};
}

Result<void> FunctionDecoder::conversion(const Instruction& in) {
  const Form* const form = find_form(isa_, canonical(in));
  if (form == nullptr || form->shape.size() != in.operand_count)
    return unsupported(in, "a form that is not supported");
  const Type from = in.type(1);
  TRY(const auto a, source(in, at(in, 1), from, form->shape[1] == 'l'));
  std::uint16_t b = 0;
  if (form->shape.size() > 2) {
    TRY(b, source(in, at(in, 2), from, form->shape[2] == 'l'));
  }
  TRY(const auto d, destination(in, at(in, 0), in.type()));
  Code& code = emit(form->run);
  code.d = d.slot;
  code.a = a;
  code.b = b;
  return finish(d);
}

Result<void> FunctionDecoder::truth_table(const Instruction& in) {
  if (in.operand_count != 5 || at(in, 4).kind != OperandKind::kInteger)
    return unsupported(in, "a form that is not supported");
  const Form* const form = find_form(isa_, canonical(in));
  if (form == nullptr) return unsupported(in, "a form that is not supported");
  TRY(const auto a, source(in, at(in, 1), Type::kB32, false));
  TRY(const auto b, source(in, at(in, 2), Type::kB32, false));
  TRY(const auto c, source(in, at(in, 3), Type::kB32, false));
  TRY(const auto d, destination(in, at(in, 0), Type::kB32));
  Code& code = emit(form->run);
  code.d = d.slot;
  code.a = a;
  code.b = b;
  code.c = c;
  code.extra = static_cast<std::uint32_t>(at(in, 4).value & 0xff);
  return finish(d);
}

ParamLayout lay_out_params(const std::vector<ptx::Variable>& params) {
  ParamLayout layout;
  for (const ptx::Variable& param : params) {
    const std::uint32_t align = param.alignment();
    layout.bytes = (layout.bytes + align - 1) / align * align;
    layout.offsets.push_back(layout.bytes);
    layout.bytes += static_cast<std::uint32_t>(param.bytes());
  }
  return layout;
}

Result<CompiledFunction> decode_function(const ptx::Module& module, std::uint32_t index,
                                         const ModuleLayout& layout, Isa isa, bool hoists) {
  auto function = FunctionDecoder(module, index, layout, isa).decode(hoists);
  if (hoists && function) fuse_sequences(*function, isa);
  return function;
}

}  // namespace kansoku::gpu::exec
