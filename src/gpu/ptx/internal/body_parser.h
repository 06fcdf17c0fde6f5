// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/result.h"
#include "gpu/ptx/internal/token_stream.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Meanings of the module's names: operands of kind kModuleVariable or kFunction.
using ModuleNames = std::unordered_map<std::string_view, Operand>;

/// Parses the body of one function, from after its `{` to its `}`. Scopes are flattened: names that
/// an inner scope declares anew get a suffix.
class BodyParser {
 public:
  BodyParser(TokenStream& stream, const ModuleNames& module_names, Function& function);

  [[nodiscard]] Result<void> parse();

 private:
  struct RegisterRange {
    std::string_view prefix;
    std::uint64_t count;
    Type type;
  };
  struct PendingLabel {
    std::uint32_t operand;  // index into Function::operands
    Token at;
  };
  struct Scope {
    std::unordered_map<std::string_view, Operand> names;
    std::unordered_map<std::string_view, Type> registers;  // declared, not used yet
    std::vector<RegisterRange> ranges;
    std::unordered_map<std::string_view, std::uint32_t> labels;
    std::vector<PendingLabel> pending;
  };

  [[nodiscard]] Result<void> statement();
  [[nodiscard]] Result<void> directive();
  [[nodiscard]] Result<void> registers();
  [[nodiscard]] Result<void> variables(Space space);
  [[nodiscard]] Result<void> label();
  [[nodiscard]] Result<void> close_scope();
  [[nodiscard]] Result<void> instruction();
  void opcode(Instruction& instruction);
  [[nodiscard]] Result<Operand> operand(const Instruction& instruction, std::size_t nth);
  [[nodiscard]] Result<Operand> simple_operand(const Instruction& instruction, std::size_t nth);
  [[nodiscard]] Result<Operand> group(const Instruction& instruction, OperandKind kind, char close);
  [[nodiscard]] Result<Operand> address(const Instruction& instruction);
  [[nodiscard]] Result<Operand> number(bool is_negative);
  [[nodiscard]] Result<Operand> name(const Instruction& instruction, std::size_t nth);
  [[nodiscard]] Result<std::int64_t> offset();
  [[nodiscard]] Operand store(OperandKind kind, const std::vector<Operand>& parts);
  [[nodiscard]] std::optional<Operand> look_up(std::string_view name);
  [[nodiscard]] std::optional<Operand> look_up_register(Scope& scope, std::string_view name);
  [[nodiscard]] Operand make_register(Scope& scope, std::string_view name, Type type);
  [[nodiscard]] std::string unique_name(std::string_view name);

  TokenStream& stream_;
  const ModuleNames& module_names_;
  Function& function_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string, std::uint32_t> used_names_;  // and the next number to try
  std::unordered_set<std::string_view> module_names_used_;
  std::uint32_t depth_{0};  // of operands within operands
};

}  // namespace kansoku::gpu::ptx
