// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "gpu/ptx/printer.h"

namespace kansoku::gpu::ptx {
namespace {

constexpr std::uint32_t kPredicate = 1;

/// Opcodes whose registers all have the width of the type.
constexpr std::array kOfOneWidth{
    Op::kAddc,  Op::kSubc, Op::kMadc, Op::kDiv,   Op::kRem,      Op::kNeg,       Op::kAbs,
    Op::kMin,   Op::kMax,  Op::kSad,  Op::kMul24, Op::kMad24,    Op::kAnd,       Op::kOr,
    Op::kXor,   Op::kNot,  Op::kCnot, Op::kBrev,  Op::kCopysign, Op::kRcp,       Op::kSqrt,
    Op::kRsqrt, Op::kSin,  Op::kCos,  Op::kLg2,   Op::kEx2,      Op::kTanh,      Op::kShf,
    Op::kPrmt,  Op::kMov,  Op::kCvta, Op::kShfl,  Op::kRedux,    Op::kActivemask};

/// Bits that a register in this place must have; nothing: any.
std::optional<std::uint32_t> width_of(const Instruction& instruction, std::size_t nth) {
  const Type type = instruction.type(), second = instruction.type(1);
  if (type == Type::kCount) return std::nullopt;
  const std::uint32_t bits = bits_of(type);
  const bool is_wide = instruction.has(Suffix::kWide);
  if (std::find(kOfOneWidth.begin(), kOfOneWidth.end(), instruction.op) != kOfOneWidth.end())
    return bits;
  switch (instruction.op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kFma:
      if (second != Type::kCount) return std::nullopt;  // mixed precision
      return bits;
    case Op::kMatch:
      return nth == 1 ? bits : 32;
    case Op::kVote:
      return nth == 0 ? bits : nth == 1 ? kPredicate : 32;
    case Op::kBar:
    case Op::kBarrier:  // with a type only where they reduce
      return nth == 0 ? bits : nth + 1 == instruction.operand_count ? kPredicate : 32;
    case Op::kMul:
    case Op::kMad:
      return is_wide && (nth == 0 || nth == 3) ? 2 * bits : bits;
    case Op::kShl:
    case Op::kShr:
      return nth == 2 ? 32 : bits;
    case Op::kBfe:
      return nth >= 2 ? 32 : bits;
    case Op::kBfi:
      return nth >= 3 ? 32 : bits;
    case Op::kPopc:
    case Op::kClz:
    case Op::kBfind:
      return nth == 0 ? 32 : bits;
    case Op::kSetp:
      return nth == 0 || nth == 3 ? kPredicate : bits;
    case Op::kSet:
      if (nth == 3) return kPredicate;
      return nth == 0 || second == Type::kCount ? bits : bits_of(second);
    case Op::kSelp:
      return nth == 3 ? kPredicate : bits;
    case Op::kTestp:
      return nth == 0 ? kPredicate : bits;
    case Op::kSlct:
      return nth == 3 && second != Type::kCount ? bits_of(second) : bits;
    default:
      return std::nullopt;
  }
}

/// Bits that a register must have at least: memory and conversions take wider ones.
std::optional<std::uint32_t> width_min_of(const Instruction& instruction, std::size_t nth) {
  const Type type = instruction.type(), second = instruction.type(1);
  if (type == Type::kCount) return std::nullopt;
  if (instruction.op == Op::kLd && nth == 0) return bits_of(type);
  if (instruction.op == Op::kSt && nth == 1) return bits_of(type);
  if (instruction.op == Op::kCvt && nth < 2 && instruction.operand_count == 2 &&
      second != Type::kCount)
    return bits_of(nth == 0 ? type : second);
  return std::nullopt;
}

class Verifier {
 public:
  explicit Verifier(const Module& module) : module_(module) {}

  std::vector<Diagnostic> run() {
    for (const Variable& variable : module_.variables)
      check_initialiser(variable);
    for (const Function& function : module_.functions) {
      function_ = &function;
      for (std::size_t i = 0; i < function.instructions.size(); ++i) {
        place_ = i < function.places.size() ? function.places[i] : function.place;
        instruction_ = &function.instructions[i];
        check_instruction();
      }
      for (const Label& label : function.labels) {
        if (label.instruction > function.instructions.size())
          report(fmt::format("label {} is after the end", label.name));
      }
    }
    return std::move(found_);
  }

 private:
  void report(std::string message) {
    if (found_.size() < kDiagnosticsMax) found_.push_back({place_, std::move(message)});
  }
  void report_here(std::string_view what) {
    report(fmt::format("{} in `{}` of {}", what,
                       print_instruction(module_, *function_, *instruction_), function_->name));
  }

  void check_initialiser(const Variable& variable) {
    instruction_ = nullptr;
    place_ = {};
    if (!variable.is_unsized && variable.initial.size() > variable.bytes())
      report(fmt::format("the initialiser of {} is larger than the variable", variable.name));
    for (const Relocation& relocation : variable.relocations) {
      if (module_.find_variable(relocation.symbol) == nullptr &&
          module_.find_function(relocation.symbol) == nullptr) {
        report(fmt::format("the initialiser of {} names {}, which is not declared", variable.name,
                           relocation.symbol));
      }
    }
  }

  void check_instruction() {
    const Instruction& instruction = *instruction_;
    if (instruction.op == Op::kUnknown) return;
    std::string_view roles = instruction.roles();
    const std::size_t optional_from = std::min(roles.find('?'), roles.size());
    const std::size_t most = roles.size() - (optional_from < roles.size() ? 1 : 0);
    if (instruction.operand_count < optional_from || instruction.operand_count > most) {
      report_here(
          fmt::format("expected {} operands, got {}", optional_from, instruction.operand_count));
      return;
    }
    for (std::size_t i = 0; i < instruction.operand_count; ++i)
      check_operand(roles[i < optional_from ? i : i + 1], i);
    if (instruction.op == Op::kCall) check_call();
  }

  void check_operand(char role, std::size_t nth) {
    const Operand& operand = function_->operand(*instruction_, nth);
    switch (role) {
      case 'd':
      case 'D':
        check_destination(operand, role == 'D');
        break;
      case 'm':
        if (operand.kind != OperandKind::kAddress) report_here("expected an address");
        break;
      case 'l':
        if (operand.kind != OperandKind::kLabel || operand.index >= function_->labels.size())
          report_here("expected a label");
        break;
      case 'q':
        if (!is_predicate(operand)) report_here("expected a predicate");
        break;
      default:
        break;
    }
    if (role != 'm' && role != 'l') check_width(operand, nth);
  }

  [[nodiscard]] bool is_predicate(const Operand& operand) const {
    return operand.kind == OperandKind::kRegister &&
           function_->registers[operand.index].type == Type::kPred;
  }

  void check_destination(const Operand& operand, bool may_be_pair) {
    switch (operand.kind) {
      case OperandKind::kRegister:
      case OperandKind::kSink:
      case OperandKind::kVector:
        break;
      case OperandKind::kPair:
        if (!may_be_pair) report_here("expected one destination");
        break;
      default:
        report_here("expected a register to write to");
    }
  }

  void check_width(const Operand& operand, std::size_t nth) {
    if (operand.kind == OperandKind::kPair) {
      check_width(function_->operands[operand.index], nth);
      return;
    }
    if (operand.kind == OperandKind::kVector && instruction_->op == Op::kMov) {
      check_parts(operand, width_of(*instruction_, nth).value_or(0));
      return;
    }
    if (operand.kind == OperandKind::kVector) {
      if (const auto least = width_min_of(*instruction_, nth)) {
        for (std::uint32_t i = 0; i < operand.count; ++i)
          check_least(function_->operands[operand.index + i], *least);
      }
      return;
    }
    if (operand.kind != OperandKind::kRegister) return;
    if (const auto exact = width_of(*instruction_, nth)) check_exact(operand, *exact);
    if (const auto least = width_min_of(*instruction_, nth)) check_least(operand, *least);
  }

  /// Parts of a value of `bits` bits; bytes live in wider registers.
  void check_parts(const Operand& vector, std::uint32_t bits) {
    for (std::uint32_t i = 0; i < vector.count; ++i) {
      const std::uint32_t part = bits / vector.count;
      const Operand& operand = function_->operands[vector.index + i];
      part < 16 ? check_least(operand, part) : check_exact(operand, part);
    }
  }

  void check_exact(const Operand& operand, std::uint32_t exact) {
    if (operand.kind != OperandKind::kRegister) return;
    const std::uint32_t bits = bits_of(function_->registers[operand.index].type);
    if (bits == exact) return;
    report_here(fmt::format("register {} has {} bits, the opcode takes {}",
                            function_->registers[operand.index].name, bits, exact));
  }

  void check_least(const Operand& operand, std::uint32_t least) {
    if (operand.kind != OperandKind::kRegister) return;
    const std::uint32_t bits = bits_of(function_->registers[operand.index].type);
    if (bits >= least && bits != kPredicate) return;
    report_here(fmt::format("register {} has {} bits, the opcode takes at least {}",
                            function_->registers[operand.index].name, bits, least));
  }

  void check_call() {
    const Instruction& call = *instruction_;
    const bool has_returns = function_->operand(call, 0).kind == OperandKind::kList;
    const std::size_t callee_at = has_returns ? 1 : 0;
    if (callee_at >= call.operand_count) {
      report_here("expected a function to call");
      return;
    }
    const Operand& callee = function_->operand(call, callee_at);
    if (callee.kind != OperandKind::kFunction) {
      if (callee.kind != OperandKind::kRegister) report_here("expected a function to call");
      return;  // an indirect call: its prototype is kept as text
    }
    const Function& function = module_.functions[callee.index];
    const auto count_at = [&](std::size_t nth) -> std::size_t {
      if (nth >= call.operand_count) return 0;
      const Operand& list = function_->operand(call, nth);
      return list.kind == OperandKind::kList ? list.count : 0;
    };
    if ((has_returns ? count_at(0) : 0) != function.returns.size() ||
        count_at(callee_at + 1) != function.params.size())
      report_here(fmt::format("{} returns {} and takes {} values", function.name,
                              function.returns.size(), function.params.size()));
  }

  const Module& module_;
  const Function* function_{nullptr};
  const Instruction* instruction_{nullptr};
  Place place_;
  std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> verify(const Module& module) {
  return Verifier(module).run();
}

}  // namespace kansoku::gpu::ptx
