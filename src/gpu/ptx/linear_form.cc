// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/linear_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/ptx/liveness.h"
#include "gpu/ptx/memory_access.h"

namespace kansoku::gpu::ptx {
namespace {

constexpr std::size_t kTermsMax = 16;
constexpr std::size_t kFactorsMax = 3;

std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t wrapping_multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

void add_term(LinearForm& form, const Term& term) {
  const auto at = std::lower_bound(
      form.terms.begin(), form.terms.end(), term.factors,
      [](const Term& entry, const std::vector<Symbol>& wanted) { return entry.factors < wanted; });
  if (at == form.terms.end() || at->factors != term.factors) {
    if (term.coefficient != 0) form.terms.insert(at, term);
    return;
  }
  at->coefficient = wrapping_add(at->coefficient, term.coefficient);
  if (at->coefficient == 0) form.terms.erase(at);
}

LinearForm of_constant(std::int64_t value) {
  LinearForm form;
  add_term(form, {{}, value});
  return form;
}

LinearForm of_symbol(Symbol::Kind kind, std::uint32_t index) {
  LinearForm form;
  add_term(form, {{Symbol{kind, index}}, 1});
  return form;
}

std::optional<LinearForm> sum(const std::optional<LinearForm>& a,
                              const std::optional<LinearForm>& b, std::int64_t sign = 1) {
  if (!a || !b) return std::nullopt;
  LinearForm form = *a;
  form.is_exact = a->is_exact && b->is_exact;
  for (const Term& term : b->terms)
    add_term(form, {term.factors, wrapping_multiply(term.coefficient, sign)});
  if (form.terms.size() > kTermsMax) return std::nullopt;
  return form;
}

std::optional<LinearForm> product(const std::optional<LinearForm>& a,
                                  const std::optional<LinearForm>& b) {
  if (!a || !b) return std::nullopt;
  LinearForm form;
  form.is_exact = a->is_exact && b->is_exact;
  for (const Term& left : a->terms) {
    for (const Term& right : b->terms) {
      Term term{left.factors, wrapping_multiply(left.coefficient, right.coefficient)};
      term.factors.insert(term.factors.end(), right.factors.begin(), right.factors.end());
      if (term.factors.size() > kFactorsMax) return std::nullopt;
      std::sort(term.factors.begin(), term.factors.end());
      add_term(form, term);
      if (form.terms.size() > kTermsMax) return std::nullopt;
    }
  }
  return form;
}

/// Arithmetic in 32 bits agrees with the integers only while it does not wrap.
std::optional<LinearForm> in_width(std::optional<LinearForm> form, Type type) {
  if (!form || bits_of(type) == 64 || form->terms.empty()) return form;
  const Term& first = form->terms[0];
  const bool is_plain =
      form->terms.size() == 1 &&
      (first.factors.empty() || (first.factors.size() == 1 && first.coefficient == 1));
  if (!is_plain) form->is_exact = false;
  return form;
}

/// Widening of 32 bits, with their sign or without, does not matter to indices, which are below
/// 2^31; the effect on anything else is not known.
std::optional<LinearForm> widened(std::optional<LinearForm> form) {
  if (!form) return form;
  for (const Term& term : form->terms) {
    for (const Symbol& symbol : term.factors)
      form->is_exact = form->is_exact && symbol.kind == Symbol::Kind::kSpecial;
  }
  return form;
}

}  // namespace

std::int64_t LinearForm::coefficient(std::vector<Symbol> factors) const {
  std::sort(factors.begin(), factors.end());
  for (const Term& term : terms) {
    if (term.factors == factors) return term.coefficient;
  }
  return 0;
}

LinearForms::LinearForms(const Function& function)
    : function_(function),
      definition_(function.registers.size(), kNoIndex),
      forms_(function.registers.size()),
      is_open_(function.registers.size(), false) {
  std::vector<bool> is_repeated(function.registers.size(), false);
  for (std::uint32_t i = 0; i < function.instructions.size(); ++i) {
    const Instruction& instruction = function.instructions[i];
    for (const std::uint32_t written : registers_of(function, instruction).writes) {
      is_repeated[written] = definition_[written] != kNoIndex || instruction.guard != kNoIndex;
      definition_[written] = i;
      if (is_repeated[written]) forms_[written] = of_symbol(Symbol::Kind::kRegister, written);
    }
  }
}

/// Definitions first, without recursion: a hostile chain may be as long as the text.
const LinearForm& LinearForms::of_register(std::uint32_t index) {
  std::vector<std::uint32_t> open{index};
  is_open_[index] = true;
  while (!open.empty()) {
    const std::uint32_t current = open.back();
    if (forms_[current]) {
      open.pop_back();
      is_open_[current] = false;
      continue;
    }
    const std::uint32_t at = definition_[current];
    if (at == kNoIndex) {  // never written
      forms_[current] = of_symbol(Symbol::Kind::kRegister, current);
      continue;
    }
    const Instruction& instruction = function_.instructions[at];
    bool is_waiting = false;
    for (const std::uint32_t read : registers_of(function_, instruction).reads) {
      if (forms_[read]) continue;
      // One that is being looked into already depends on itself: it goes around a loop.
      if (is_open_[read]) {
        forms_[read] = of_symbol(Symbol::Kind::kRegister, read);
        continue;
      }
      open.push_back(read);
      is_open_[read] = true;
      is_waiting = true;
      break;
    }
    if (is_waiting) continue;
    auto form = of_definition(instruction);
    if (!forms_[current])
      forms_[current] = form ? std::move(*form) : of_symbol(Symbol::Kind::kRegister, current);
  }
  return *forms_[index];
}

std::optional<LinearForm> LinearForms::of_operand(const Operand& operand) {
  const auto plus_value = [&](Symbol::Kind kind) {
    return sum(of_symbol(kind, operand.index), of_constant(operand.value));
  };
  switch (operand.kind) {
    case OperandKind::kRegister:
      return forms_[operand.index];
    case OperandKind::kInteger:
      return of_constant(operand.value);
    case OperandKind::kSpecial:
      return of_symbol(Symbol::Kind::kSpecial, operand.index);
    case OperandKind::kLocalVariable:
      return plus_value(Symbol::Kind::kLocalVariable);
    case OperandKind::kModuleVariable:
      return plus_value(Symbol::Kind::kModuleVariable);
    default:
      return std::nullopt;
  }
}

std::optional<LinearForm> LinearForms::of_load(const Instruction& instruction) {
  const MemoryAccesses accesses = memory_access(function_, instruction);
  if (!function_.is_entry || accesses.size() != 1 || accesses.begin()->space != Space::kParam)
    return std::nullopt;
  const Operand& address = function_.operand(instruction, accesses.begin()->operand);
  if (address.base != OperandKind::kParameter || address.value != 0) return std::nullopt;
  const Variable& parameter = function_.params[address.index];
  if (!parameter.dims.empty() || bits_of(parameter.type) != bits_of(instruction.type()))
    return std::nullopt;
  return of_symbol(Symbol::Kind::kParameter, address.index);
}

std::optional<LinearForm> LinearForms::of_product(const Instruction& instruction) {
  if (instruction.has(Suffix::kHi) || is_float(instruction.type())) return std::nullopt;
  const auto operand = [&](std::size_t nth) {
    return of_operand(function_.operand(instruction, nth));
  };
  auto form = product(operand(1), operand(2));
  form = instruction.has(Suffix::kWide) ? widened(std::move(form))
                                        : in_width(std::move(form), instruction.type());
  if (instruction.op == Op::kMad) {
    form = sum(form, operand(3));
    if (!instruction.has(Suffix::kWide)) form = in_width(std::move(form), instruction.type());
  }
  return form;
}

std::optional<LinearForm> LinearForms::of_definition(const Instruction& instruction) {
  const Type type = instruction.type();
  if (instruction.operand_count < 2 || type == Type::kCount || is_float(type)) return std::nullopt;
  if (function_.operand(instruction, 0).kind != OperandKind::kRegister) return std::nullopt;
  const auto operand = [&](std::size_t nth) {
    return of_operand(function_.operand(instruction, nth));
  };
  switch (instruction.op) {
    case Op::kMov:
    case Op::kCvta:
      return operand(1);
    case Op::kCvt:
      // Widening keeps the value; narrowing does not.
      if (is_float(instruction.type(1)) || instruction.has(Suffix::kSat)) return std::nullopt;
      if (bits_of(type) < bits_of(instruction.type(1))) return std::nullopt;
      return bits_of(type) == bits_of(instruction.type(1)) ? operand(1) : widened(operand(1));
    case Op::kAdd:
    case Op::kSub:
      if (instruction.operand_count != 3 || instruction.has(Suffix::kSat) ||
          instruction.has(Suffix::kCc))
        return std::nullopt;
      return in_width(sum(operand(1), operand(2), instruction.op == Op::kAdd ? 1 : -1), type);
    case Op::kMul:
      return instruction.operand_count == 3 ? of_product(instruction) : std::nullopt;
    case Op::kMad:
      if (instruction.operand_count != 4 || instruction.has(Suffix::kCc)) return std::nullopt;
      return of_product(instruction);
    case Op::kShl: {
      if (instruction.operand_count != 3) return std::nullopt;
      const Operand& count = function_.operand(instruction, 2);
      if (count.kind != OperandKind::kInteger || count.value < 0 || count.value >= bits_of(type))
        return std::nullopt;
      const auto factor = static_cast<std::int64_t>(std::uint64_t{1} << count.value);
      auto form = product(operand(1), of_constant(factor));
      if (form && bits_of(type) < 64) form->is_exact = false;
      return form;
    }
    case Op::kLd:
      return of_load(instruction);
    default:
      return std::nullopt;
  }
}

std::optional<LinearForm> LinearForms::of_address(const Operand& address) {
  if (address.kind != OperandKind::kAddress) return std::nullopt;
  if (address.base == OperandKind::kRegister)
    return sum(of_register(address.index), of_constant(address.value));
  if (address.base == OperandKind::kNone) return of_constant(address.value);
  Operand symbol = address;
  symbol.kind = address.base;
  return of_operand(symbol);
}

std::string print_form(const Module& module, const Function& function, const LinearForm& form) {
  const auto name = [&](const Symbol& symbol) -> std::string {
    switch (symbol.kind) {
      case Symbol::Kind::kParameter:
        return function.params[symbol.index].name;
      case Symbol::Kind::kSpecial:
        return std::string(special_name(static_cast<Special>(symbol.index)).substr(1));
      case Symbol::Kind::kLocalVariable:
        return function.variables[symbol.index].name;
      case Symbol::Kind::kModuleVariable:
        return module.variables[symbol.index].name;
      case Symbol::Kind::kRegister:
        return function.registers[symbol.index].name;
    }
    return "";
  };
  std::string text;
  for (const Term& term : form.terms) {
    if (!text.empty()) text += " + ";
    if (term.coefficient != 1 || term.factors.empty()) {
      text += fmt::format("{}", term.coefficient);
      if (!term.factors.empty()) text += '*';
    }
    for (std::size_t i = 0; i < term.factors.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : "*", name(term.factors[i]));
  }
  return text.empty() ? "0" : text;
}

}  // namespace kansoku::gpu::ptx
