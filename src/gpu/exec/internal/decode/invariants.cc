// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/invariants.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "gpu/ptx/liveness.h"
#include "gpu/ptx/op.h"

namespace kansoku::gpu::exec {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::Special;

/// How many instructions may write each register. Registers that a call names may be results.
std::vector<std::uint32_t> write_counts(const Function& function) {
  std::vector<std::uint32_t> counts(function.registers.size());
  for (const Instruction& in : function.instructions) {
    const ptx::Access access = ptx::registers_of(function, in);
    for (const std::uint32_t written : access.writes)
      ++counts[written];
    if (in.op != Op::kCall) continue;
    for (const std::uint32_t named : access.reads)
      ++counts[named];
  }
  return counts;
}

bool is_pure(Op op) {
  constexpr std::array kPure{Op::kMov, Op::kCvta, Op::kAdd, Op::kSub, Op::kMul, Op::kMad, Op::kShl,
                             Op::kShr, Op::kAnd,  Op::kOr,  Op::kXor, Op::kNot, Op::kCvt};
  return std::find(kPure.begin(), kPure.end(), op) != kPure.end();
}

/// The same in every block: a warp's registers stay with its place in the block.
bool is_of_place(Special special) {
  switch (special) {
    case Special::kTidX:
    case Special::kTidY:
    case Special::kTidZ:
    case Special::kNtidX:
    case Special::kNtidY:
    case Special::kNtidZ:
    case Special::kNctaidX:
    case Special::kNctaidY:
    case Special::kNctaidZ:
    case Special::kLaneid:
    case Special::kWarpid:
    case Special::kNwarpid:
    case Special::kWarpSize:
      return true;
    default:
      return false;
  }
}

bool loads_param(const Function& function, const Instruction& in) {
  if (in.op != Op::kLd || in.operand_count != 2) return false;
  const Operand& from = function.operand(in, 1);
  return from.kind == OperandKind::kAddress && from.base == OperandKind::kParameter;
}

}  // namespace

std::vector<bool> block_invariants(const Function& kernel) {
  const std::vector<std::uint32_t> writes = write_counts(kernel);
  std::vector<bool> is_invariant(kernel.instructions.size());
  std::vector<bool> is_known(kernel.registers.size());  // holds the same in every block
  const auto is_source = [&](const Operand& operand) {
    switch (operand.kind) {
      case OperandKind::kRegister:
        return is_known[operand.index] && !operand.is_negated;
      case OperandKind::kSpecial:
        return is_of_place(static_cast<Special>(operand.index));
      case OperandKind::kInteger:
      case OperandKind::kFloat32:
      case OperandKind::kFloat64:
        return true;
      default:
        return false;
    }
  };
  for (std::size_t i = 0; i < kernel.instructions.size(); ++i) {
    const Instruction& in = kernel.instructions[i];
    if (in.guard != ptx::kNoIndex || in.operand_count < 2 || in.has(ptx::Suffix::kCc)) continue;
    const Operand& to = kernel.operand(in, 0);
    if (to.kind != OperandKind::kRegister || writes[to.index] != 1) continue;
    bool is_good = loads_param(kernel, in);
    if (!is_good && is_pure(in.op)) {
      is_good = true;
      for (std::size_t nth = 1; nth < in.operand_count; ++nth)
        is_good = is_good && is_source(kernel.operand(in, nth));
    }
    is_invariant[i] = is_known[to.index] = is_good;
  }
  return is_invariant;
}

}  // namespace kansoku::gpu::exec
