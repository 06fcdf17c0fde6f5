// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/control_flow.h"

#include <algorithm>
#include <array>

#include "capture/bpf/internal/instructions.h"

namespace kansoku::capture::bpf {
namespace {

// By its number in instructions; nothing: none of the general ones.
std::optional<std::uint8_t> general_register(ZydisRegister part) {
  const ZydisRegister whole = whole_register(part);
  if (whole < ZYDIS_REGISTER_RAX || whole > ZYDIS_REGISTER_R15) return std::nullopt;
  return static_cast<std::uint8_t>(whole - ZYDIS_REGISTER_RAX);
}

/// Origins of the values of registers, as far as it tells a pointer to a function from an entry of
/// a switch's table. Followed from one instruction to the next in order of address, which is how
/// compilers lay out the way to a jump.
class Origins {
 public:
  enum class Origin : std::uint8_t { kArgument, kPointer, kOther };

  void follow(const Instruction& instruction) {
    const auto& to = instruction.operands[0];
    const auto& from = instruction.operands[1];
    Origin origin = Origin::kOther;
    if (instruction.info.mnemonic == ZYDIS_MNEMONIC_MOV && to.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      if (from.type == ZYDIS_OPERAND_TYPE_REGISTER) origin = of(from.reg.value);
      if (from.type == ZYDIS_OPERAND_TYPE_MEMORY && from.mem.index == ZYDIS_REGISTER_NONE &&
          instruction.info.operand_width == 64)
        origin = Origin::kPointer;
    }
    for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
      if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
          (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0)
        set(operand.reg.value, origin);
    }
    if (instruction.info.meta.category == ZYDIS_CATEGORY_CALL) {
      for (const ZydisRegister lost : {ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_RCX, ZYDIS_REGISTER_RDX,
                                       ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_R8,
                                       ZYDIS_REGISTER_R9, ZYDIS_REGISTER_R10, ZYDIS_REGISTER_R11})
        set(lost, Origin::kOther);
    }
  }
  [[nodiscard]] Origin of(ZydisRegister reg) const {
    const auto index = index_of(reg);
    return index ? origins_.at(*index) : Origin::kOther;
  }

 private:
  static std::optional<std::size_t> index_of(ZydisRegister reg) {
    const auto number = general_register(reg);
    return number ? std::optional<std::size_t>(*number) : std::nullopt;
  }
  void set(ZydisRegister reg, Origin origin) {
    if (const auto index = index_of(reg)) origins_.at(*index) = origin;
  }
  std::array<Origin, 16> origins_{};  // at first all may be arguments
};

// Compilers mark the jump of a switch where the processor checks indirect branches. Else a jump
// through a pointer, as it was passed or lies somewhere, calls a function; a computed pointer is an
// entry of a table.
bool is_table_jump(const Instruction& jump, const Origins& origins) {
  if ((jump.info.attributes & ZYDIS_ATTRIB_HAS_NOTRACK) != 0) return true;
  const auto& to = jump.operands[0];
  if (to.type == ZYDIS_OPERAND_TYPE_MEMORY) return to.mem.index != ZYDIS_REGISTER_NONE;
  return to.type == ZYDIS_OPERAND_TYPE_REGISTER &&
         origins.of(to.reg.value) == Origins::Origin::kOther;
}

Flow flow_of(const Instruction& instruction, const Origins& origins, bool has_target) {
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_RET:
      return Flow::kReturn;
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_HLT:
      return Flow::kStop;
    default:
      break;
  }
  switch (instruction.info.meta.category) {
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_INTERRUPT:
      return Flow::kCall;
    case ZYDIS_CATEGORY_COND_BR:
      return Flow::kBranch;
    case ZYDIS_CATEGORY_UNCOND_BR:
      if (has_target) return Flow::kJump;
      return is_table_jump(instruction, origins) ? Flow::kTableJump : Flow::kIndirectJump;
    default:
      return Flow::kNext;
  }
}

bool is_register(const ZydisDecodedOperand& operand, ZydisRegister wanted) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value == wanted;
}

StackEffect stack_effect(const Instruction& instruction) {
  using Kind = StackEffect::Kind;
  if (!writes_register(instruction, [](ZydisRegister r) { return r == ZYDIS_REGISTER_RSP; }))
    return {};
  const auto& to = instruction.operands[0];
  const auto& from = instruction.operands[1];
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_CALL:  // as it is behind it
      return {};
    case ZYDIS_MNEMONIC_PUSH:
      if (instruction.info.operand_width == 64) return {Kind::kAdd, -8};
      break;
    case ZYDIS_MNEMONIC_POP:
      if (instruction.info.operand_width == 64 && to.type == ZYDIS_OPERAND_TYPE_REGISTER &&
          to.reg.value != ZYDIS_REGISTER_RSP)
        return {Kind::kAdd, 8};
      break;
    case ZYDIS_MNEMONIC_ADD:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return {Kind::kAdd, from.imm.value.s};
      break;
    case ZYDIS_MNEMONIC_SUB:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return {Kind::kAdd, -from.imm.value.s};
      break;
    case ZYDIS_MNEMONIC_LEA:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.mem.index == ZYDIS_REGISTER_NONE) {
        if (from.mem.base == ZYDIS_REGISTER_RBP) return {Kind::kFromFrame, from.mem.disp.value};
        if (from.mem.base == ZYDIS_REGISTER_RSP) return {Kind::kAdd, from.mem.disp.value};
      }
      break;
    case ZYDIS_MNEMONIC_MOV:
      if (is_register(to, ZYDIS_REGISTER_RSP) && is_register(from, ZYDIS_REGISTER_RBP))
        return {Kind::kFromFrame, 0};
      break;
    case ZYDIS_MNEMONIC_LEAVE:  // rsp = rbp, then rbp is taken off the stack
      return {Kind::kFromFrame, 8};
    default:
      break;
  }
  return {Kind::kUnknown, 0};
}

std::uint16_t registers_written(const Instruction& instruction) {
  std::uint16_t out = 0;
  for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
    if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER ||
        (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0)
      continue;
    if (const auto number = general_register(operand.reg.value))
      out = static_cast<std::uint16_t>(out | 1U << *number);
  }
  return out;
}

Copy copy_of(const Instruction& instruction) {
  const auto& to = instruction.operands[0];
  const auto& from = instruction.operands[1];
  const auto bits = instruction.info.operand_width;
  if (instruction.info.mnemonic != ZYDIS_MNEMONIC_MOV || (bits != 32 && bits != 64) ||
      to.type != ZYDIS_OPERAND_TYPE_REGISTER || from.type != ZYDIS_OPERAND_TYPE_REGISTER)
    return {};
  const auto number = general_register(from.reg.value);
  if (!number || !general_register(to.reg.value)) return {};
  return {*number, static_cast<std::uint8_t>(bits / 8)};
}

/// How many bytes of the stack a call has taken, and how many when it set rbp; nothing: unknown.
struct Depth {
  std::optional<std::int64_t> stack{0}, frame{};

  [[nodiscard]] Depth behind(const Step& step) const {
    Depth out = *this;
    switch (step.stack.kind) {
      case StackEffect::Kind::kAdd:
        if (out.stack) *out.stack -= step.stack.bytes;
        break;
      case StackEffect::Kind::kFromFrame:
        out.stack = frame;
        if (out.stack) *out.stack -= step.stack.bytes;
        break;
      case StackEffect::Kind::kUnknown:
        out.stack.reset();
        break;
    }
    if (step.writes_frame()) out.frame = step.sets_frame() ? stack : std::nullopt;
    return out;
  }
};

// All instructions in order; nothing if the bytes are something else.
std::optional<std::vector<Step>> steps_of(std::span<const std::byte> code) {
  std::vector<Step> steps;
  InstructionReader reader(code);
  Origins origins;
  Instruction instruction;
  for (std::size_t offset = 0; reader.next(instruction); offset = reader.offset()) {
    const auto target = branch_target(instruction, reader.offset());
    steps.push_back({.offset = offset,
                     .target = target.value_or(-1),
                     .flow = flow_of(instruction, origins, target.has_value()),
                     .site_class = classify(instruction),
                     .condition = static_cast<std::uint8_t>(instruction.info.opcode & 0xf),
                     .stack = stack_effect(instruction),
                     .writes = registers_written(instruction),
                     .copy = copy_of(instruction),
                     .is_probeable = is_probeable(instruction)});
    origins.follow(instruction);
  }
  if (reader.offset() != code.size()) return std::nullopt;
  return steps;
}

}  // namespace

std::optional<ControlFlow> ControlFlow::make(std::span<const std::byte> code, bool is_begin) {
  auto steps = steps_of(code);
  if (!steps || steps->empty()) return std::nullopt;
  ControlFlow out(std::move(*steps), code.size());
  if (!out.link()) return std::nullopt;
  out.follow_stack(is_begin);
  out.reach();
  return out;
}

std::size_t ControlFlow::index_at(std::int64_t offset) const {
  if (!is_inside(offset)) return steps_.size();
  const auto wanted = static_cast<std::size_t>(offset);
  const auto found =
      std::lower_bound(steps_.begin(), steps_.end(), wanted,
                       [](const Step& one, std::size_t at) { return one.offset < at; });
  return found != steps_.end() && found->offset == wanted
             ? static_cast<std::size_t>(found - steps_.begin())
             : steps_.size();
}

bool ControlFlow::link() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    has_table_ = has_table_ || steps_[i].flow == Flow::kTableJump;
    if (!steps_[i].has_target() || leaves(i)) continue;
    const std::size_t target = index_at(steps_[i].target);
    if (target == steps_.size()) return false;
    branches_to_[target].push_back(i);
  }
  return true;
}

// The first way to an instruction counts: compilers let all ways come with one stack.
void ControlFlow::follow_stack(bool is_begin) {
  std::vector<bool> is_seen(steps_.size());
  std::vector<std::pair<std::size_t, Depth>> todo{{0, {}}};
  if (!is_begin) todo.front().second.stack.reset();
  while (!todo.empty()) {
    const auto [i, depth] = todo.back();
    todo.pop_back();
    if (i >= steps_.size() || is_seen[i]) continue;
    is_seen[i] = true;
    Step& step = steps_[i];
    if (depth.stack) step.is_bare = *depth.stack == 0;
    if (step.flow == Flow::kIndirectJump && !step.is_bare.value_or(true)) {
      step.flow = Flow::kTableJump;
      has_table_ = jumps_by_pointer_ = true;
    }
    const Depth behind = depth.behind(step);
    if (step.falls_through()) todo.emplace_back(i + 1, behind);
    if (step.has_target()) todo.emplace_back(index_at(step.target), behind);
  }
}

void ControlFlow::reach() {
  is_reached_.assign(steps_.size(), has_table_);
  std::vector<std::size_t> todo{0};
  while (!has_table_ && !todo.empty()) {
    const std::size_t i = todo.back();
    todo.pop_back();
    if (i >= steps_.size() || is_reached_[i]) continue;
    is_reached_[i] = true;
    if (steps_[i].falls_through()) todo.push_back(i + 1);
    if (steps_[i].has_target()) todo.push_back(index_at(steps_[i].target));
  }
}

}  // namespace kansoku::capture::bpf
