// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/liveness.h"

#include <bit>
#include <string_view>

namespace kansoku::gpu::ptx {
namespace {

void add_registers(const Function& function, const Operand& operand,
                   std::vector<std::uint32_t>& out) {
  switch (operand.kind) {
    case OperandKind::kRegister:
      out.push_back(operand.index);
      break;
    case OperandKind::kAddress:
      if (operand.base == OperandKind::kRegister) out.push_back(operand.index);
      break;
    case OperandKind::kVector:
    case OperandKind::kPair:
    case OperandKind::kList:
    case OperandKind::kBrackets:
      for (std::uint32_t i = 0; i < operand.count; ++i)
        add_registers(function, function.operands[operand.index + i], out);
      break;
    default:
      break;
  }
}

}  // namespace

Access registers_of(const Function& function, const Instruction& instruction) {
  Access access;
  if (instruction.guard != kNoIndex) access.reads.push_back(instruction.guard);
  std::string_view roles = instruction.roles();
  access.is_exact = instruction.op != Op::kUnknown;
  for (std::size_t i = 0; i < instruction.operand_count; ++i) {
    if (roles.starts_with('?')) roles.remove_prefix(1);
    const char role = roles.empty() ? (access.is_exact ? 's' : '*') : roles[0];
    if (!roles.empty()) roles.remove_prefix(1);
    const Operand& operand = function.operand(instruction, i);
    const bool is_destination = role == 'd' || role == 'D' || role == '*';
    if (is_destination) add_registers(function, operand, access.writes);
    if (!is_destination || role == '*') add_registers(function, operand, access.reads);
  }
  return access;
}

bool RegisterSet::merge(const RegisterSet& other) {
  bool has_grown = false;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const std::uint64_t merged = words_[i] | other.words_[i];
    has_grown = has_grown || merged != words_[i];
    words_[i] = merged;
  }
  return has_grown;
}

std::vector<std::uint32_t> RegisterSet::members() const {
  std::vector<std::uint32_t> members;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (std::uint64_t rest = words_[i]; rest != 0; rest &= rest - 1)
      members.push_back(static_cast<std::uint32_t>(i * 64) +
                        static_cast<std::uint32_t>(std::countr_zero(rest)));
  }
  return members;
}

Liveness compute_liveness(const Function& function, const Cfg& cfg) {
  const std::size_t blocks = cfg.blocks.size(), registers = function.registers.size();
  Liveness live{std::vector<RegisterSet>(blocks, RegisterSet(registers)),
                std::vector<RegisterSet>(blocks, RegisterSet(registers))};
  // Registers that a block reads before it writes them, and those that it surely writes.
  std::vector<RegisterSet> kills(blocks, RegisterSet(registers));
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::uint32_t i = cfg.blocks[b].end; i-- > cfg.blocks[b].begin;) {
      const Instruction& instruction = function.instructions[i];
      const Access access = registers_of(function, instruction);
      if (access.is_exact && instruction.guard == kNoIndex) {
        for (const std::uint32_t written : access.writes) {
          live.in[b].erase(written);
          kills[b].insert(written);
        }
      }
      for (const std::uint32_t read : access.reads)
        live.in[b].insert(read);
    }
  }
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t b = blocks; b-- > 0;) {
      for (const std::uint32_t to : cfg.blocks[b].successors)
        has_changed = live.out[b].merge(live.in[to]) || has_changed;
      for (const std::uint32_t member : live.out[b].members()) {
        if (kills[b].contains(member) || live.in[b].contains(member)) continue;
        live.in[b].insert(member);
        has_changed = true;
      }
    }
  }
  return live;
}

}  // namespace kansoku::gpu::ptx
