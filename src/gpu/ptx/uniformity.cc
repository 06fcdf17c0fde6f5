// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/uniformity.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpu/ptx/liveness.h"
#include "gpu/ptx/memory_access.h"

namespace kansoku::gpu::ptx {
namespace {

Uniformity of_special(Special special) {
  switch (special) {
    case Special::kNtidX:
    case Special::kNtidY:
    case Special::kNtidZ:
    case Special::kNctaidX:
    case Special::kNctaidY:
    case Special::kNctaidZ:
    case Special::kNsmid:
    case Special::kGridid:
    case Special::kTotalSmemSize:
    case Special::kDynamicSmemSize:
    case Special::kNwarpid:
    case Special::kWarpSize:
      return Uniformity::kGrid;
    case Special::kCtaidX:
    case Special::kCtaidY:
    case Special::kCtaidZ:
      return Uniformity::kBlock;
    case Special::kWarpid:
    case Special::kSmid:
      return Uniformity::kWarp;
    default:
      return Uniformity::kVarying;  // threads, lanes, and clocks: lanes may read them apart
  }
}

/// A value in parameter space of a kernel is the same for the whole grid; arguments and results of
/// device functions are each thread's own.
bool reads_kernel_parameters(const Function& function, const Instruction& instruction) {
  if (!function.is_entry || instruction.operand_count < 2) return false;
  const Operand& address = function.operand(instruction, 1);
  if (address.base == OperandKind::kParameter) return true;
  return std::none_of(function.variables.begin(), function.variables.end(),
                      [](const Variable& variable) { return variable.space == Space::kParam; });
}

/// Results that differ between lanes though all operands agree, or that memory decides.
Uniformity of_result(const Function& function, const Instruction& instruction) {
  for (const MemoryAccess& access : memory_access(function, instruction)) {
    const bool is_read_only =
        access.space == Space::kConst ||
        (access.space == Space::kParam && reads_kernel_parameters(function, instruction));
    if (access.is_load() && !is_read_only) return Uniformity::kVarying;
  }
  switch (instruction.op) {
    case Op::kVote:
    case Op::kActivemask:
    case Op::kRedux:
    case Op::kBar:
    case Op::kBarrier:  // its count depends on the threads of its block that are left
      return Uniformity::kWarp;
    case Op::kShfl:
    case Op::kMatch:
    case Op::kElect:
    case Op::kCall:
    case Op::kMma:
    case Op::kWmma:
    case Op::kMovmatrix:
    case Op::kUnknown:
      return Uniformity::kVarying;
    default:
      return Uniformity::kGrid;
  }
}

bool takes_operands_of_all_lanes(Op op) {
  return op == Op::kVote || op == Op::kActivemask || op == Op::kRedux || op == Op::kBar ||
         op == Op::kBarrier;
}

class Analysis {
 public:
  Analysis(const Function& function, const Cfg& cfg)
      : function_(function),
        cfg_(cfg),
        post_dominators_(immediate_post_dominators(cfg)),
        live_(compute_liveness(function, cfg)),
        definitions_(function.registers.size(), 0) {
    result_.registers.assign(function.registers.size(), Uniformity::kGrid);
    result_.branches.assign(cfg.blocks.size(), Uniformity::kGrid);
    result_.is_divergent.assign(cfg.blocks.size(), false);
    control_.assign(cfg.blocks.size(), Uniformity::kGrid);
    for (const Instruction& instruction : function.instructions) {
      for (const std::uint32_t written : registers_of(function, instruction).writes)
        ++definitions_[written];
    }
  }

  UniformityResult run() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (const std::uint32_t block : cfg_.reverse_post_order)
        has_changed = visit(block) || has_changed;
    }
    for (std::size_t block = 0; block < control_.size(); ++block)
      result_.is_divergent[block] = control_[block] == Uniformity::kVarying;
    return std::move(result_);
  }

 private:
  [[nodiscard]] Uniformity of_operand(const Operand& operand) const {
    switch (operand.kind) {
      case OperandKind::kRegister:
        return result_.registers[operand.index];
      case OperandKind::kSpecial:
        return of_special(static_cast<Special>(operand.index));
      case OperandKind::kLocalVariable:
        // In local space every thread has its own, at the same address.
        return Uniformity::kGrid;
      case OperandKind::kAddress:
        return operand.base == OperandKind::kRegister ? result_.registers[operand.index]
                                                      : Uniformity::kGrid;
      case OperandKind::kVector:
      case OperandKind::kPair:
      case OperandKind::kList:
      case OperandKind::kBrackets: {
        auto widest = Uniformity::kGrid;
        for (std::uint32_t i = 0; i < operand.count; ++i)
          widest = std::max(widest, of_operand(function_.operands[operand.index + i]));
        return widest;
      }
      default:
        return Uniformity::kGrid;
    }
  }

  [[nodiscard]] Uniformity of_reads(const Instruction& instruction) const {
    auto value =
        instruction.guard == kNoIndex ? Uniformity::kGrid : result_.registers[instruction.guard];
    if (takes_operands_of_all_lanes(instruction.op)) return value;
    for (std::size_t i = 0; i < instruction.operand_count; ++i) {
      const std::string_view roles = instruction.roles();
      if (i == 0 && (roles.starts_with('d') || roles.starts_with('D'))) continue;
      value = std::max(value, of_operand(function_.operand(instruction, i)));
    }
    return value;
  }

  bool raise(Uniformity& value, Uniformity to) {
    if (to <= value) return false;
    value = to;
    return true;
  }

  bool visit(std::uint32_t index) {
    const Block& block = cfg_.blocks[index];
    bool has_changed = false;
    for (std::uint32_t i = block.begin; i < block.end; ++i) {
      const Instruction& instruction = function_.instructions[i];
      const Uniformity value = std::max(of_result(function_, instruction), of_reads(instruction));
      for (const std::uint32_t written : registers_of(function_, instruction).writes) {
        // Threads that come together again bring values that they wrote on different ways, or that
        // a loop left after different numbers of rounds.
        const bool meets_others = definitions_[written] > 1 || live_.out[index].contains(written);
        const auto raised = meets_others ? std::max(value, control_[index]) : value;
        has_changed = raise(result_.registers[written], raised) || has_changed;
      }
    }
    const Instruction& last = function_.instructions[block.end - 1];
    if (block.successors.size() < 2 && last.guard == kNoIndex) return has_changed;
    const auto branch = last.op == Op::kBrx      ? Uniformity::kVarying
                        : last.guard == kNoIndex ? Uniformity::kGrid
                                                 : result_.registers[last.guard];
    if (raise(result_.branches[index], std::max(branch, control_[index]))) has_changed = true;
    return mark_dependents(index, result_.branches[index]) || has_changed;
  }

  /// Blocks that run only because the branch at the end of `index` went their way.
  bool mark_dependents(std::uint32_t index, Uniformity branch) {
    if (branch == Uniformity::kGrid) return false;
    bool has_changed = false;
    const std::uint32_t join = post_dominators_[index];
    for (std::uint32_t block : cfg_.blocks[index].successors) {
      std::size_t steps = 0;
      for (; block != join && block < cfg_.blocks.size() && steps <= cfg_.blocks.size(); ++steps) {
        has_changed = raise(control_[block], branch) || has_changed;
        block = post_dominators_[block];
      }
    }
    return has_changed;
  }

  const Function& function_;
  const Cfg& cfg_;
  const std::vector<std::uint32_t> post_dominators_;
  const Liveness live_;
  std::vector<std::uint32_t> definitions_;
  std::vector<Uniformity> control_;  // by block: of the branches that decide whether it runs
  UniformityResult result_;
};

}  // namespace

UniformityResult analyse_uniformity(const Function& function, const Cfg& cfg) {
  if (cfg.blocks.empty())
    return {std::vector<Uniformity>(function.registers.size(), Uniformity::kGrid), {}, {}};
  return Analysis(function, cfg).run();
}

}  // namespace kansoku::gpu::ptx
