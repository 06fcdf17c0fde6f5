// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Something whose value is not looked into.
struct Symbol {
  enum class Kind : std::uint8_t {
    kParameter,       // value of a kernel parameter
    kSpecial,         // a predefined register
    kLocalVariable,   // address of Function::variables[index]
    kModuleVariable,  // address of Module::variables[index]
    kRegister,        // a register that is no sum of products
  };
  Kind kind{Kind::kRegister};
  std::uint32_t index{0};
  friend auto operator<=>(const Symbol&, const Symbol&) = default;
};

/// coefficient * product of `factors`, which are sorted; no factor: a constant.
struct Term {
  std::vector<Symbol> factors;
  std::int64_t coefficient{0};
  friend bool operator==(const Term&, const Term&) = default;
};

/// A sum of terms with different factors, sorted by them, none with coefficient 0. In integers
/// modulo 2^64 if `is_exact`; else it holds only if no 32-bit step on the way went past 32 bits.
struct LinearForm {
  std::vector<Term> terms;
  bool is_exact{true};
  friend bool operator==(const LinearForm&, const LinearForm&) = default;

  /// Coefficient of the product of these symbols; 0 if absent.
  [[nodiscard]] std::int64_t coefficient(std::vector<Symbol> factors) const;
  [[nodiscard]] std::int64_t constant() const { return coefficient({}); }
};

/// Values of registers as sums of products over parameters, thread and block indices and addresses
/// of variables, as far as adding, multiplying, shifting and widening explain them; a register that
/// is written more than once, or otherwise, is a symbol. Forms with more than 16 terms or products
/// of more than 3 symbols become a symbol too. Borrows the function; not shared between threads.
class LinearForms {
 public:
  explicit LinearForms(const Function& function);
  /// Value of a register.
  [[nodiscard]] const LinearForm& of_register(std::uint32_t index);
  /// Address of an operand of kind kAddress; nothing for another kind.
  [[nodiscard]] std::optional<LinearForm> of_address(const Operand& address);

 private:
  [[nodiscard]] std::optional<LinearForm> of_operand(const Operand& operand);
  [[nodiscard]] std::optional<LinearForm> of_definition(const Instruction& instruction);
  [[nodiscard]] std::optional<LinearForm> of_load(const Instruction& instruction);
  [[nodiscard]] std::optional<LinearForm> of_product(const Instruction& instruction);

  const Function& function_;
  std::vector<std::uint32_t> definition_;  // by register: its only instruction, or kNoIndex
  std::vector<std::optional<LinearForm>> forms_;
  std::vector<bool> is_open_;  // by register: on the way to its form
};

/// "param_0 + 4*tid.x + 4*ctaid.x*ntid.x + 16"; names from the module.
[[nodiscard]] std::string print_form(const Module& module, const Function& function,
                                     const LinearForm& form);

}  // namespace kansoku::gpu::ptx
