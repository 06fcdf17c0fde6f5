// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/ir.h"

#include <algorithm>
#include <tuple>

namespace kansoku::gpu::ptx {

std::string_view space_name(Space space) {
  switch (space) {
    case Space::kGeneric:
      return "";
    case Space::kGlobal:
      return ".global";
    case Space::kShared:
      return ".shared";
    case Space::kLocal:
      return ".local";
    case Space::kParam:
      return ".param";
    case Space::kConst:
      return ".const";
  }
  return "";
}

std::uint64_t Variable::bytes() const {
  if (is_unsized) return 0;
  std::uint64_t bytes = std::uint64_t{bytes_of(type)} * vector;
  for (const std::uint64_t dim : dims)
    bytes *= dim;  // the parser has checked that this does not overflow
  return bytes;
}

std::uint32_t Variable::alignment() const {
  return align != 0 ? align : std::max(bytes_of(type) * vector, 1U);
}

bool Instruction::has(Suffix suffix) const {
  const auto* end = suffixes.begin() + suffix_count;
  return std::find(suffixes.begin(), end, suffix) != end;
}

std::string_view Instruction::roles() const {
  if (op == Op::kWmma) return has(Suffix::kMma) ? "dsss" : has(Suffix::kStore) ? "ms?s" : "dm?s";
  const bool is_barrier = op == Op::kBar || op == Op::kBarrier;
  if (!is_barrier || !has(Suffix::kRed)) return operand_roles(op);
  return operand_count == 4 ? "dssq" : "dsq";
}

Type Instruction::type(std::size_t nth) const {
  for (std::size_t i = 0; i < suffix_count; ++i) {
    if (is_type(suffixes[i]) && nth-- == 0) return as_type(suffixes[i]);
  }
  return Type::kCount;
}

bool operator==(const Function& a, const Function& b) {
  const auto key = [](const Function& f) {
    return std::tie(f.name, f.is_entry, f.has_body, f.does_not_return, f.linkage, f.bounds,
                    f.returns, f.params, f.variables, f.registers, f.labels, f.instructions,
                    f.operands, f.texts, f.directives);
  };
  return key(a) == key(b);
}

bool operator==(const Module& a, const Module& b) {
  const auto key = [](const Module& m) {
    return std::tie(m.version_major, m.version_minor, m.targets, m.address_bits, m.variables,
                    m.functions, m.directives, m.items);
  };
  return key(a) == key(b);
}

const Function* Module::find_function(std::string_view name) const {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const Function& function) { return function.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

const Variable* Module::find_variable(std::string_view name) const {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const Variable& variable) { return variable.name == name; });
  return found == variables.end() ? nullptr : &*found;
}

std::string opcode_text(const Function& function, const Instruction& instruction) {
  if (instruction.op == Op::kUnknown)
    return instruction.text < function.texts.size() ? function.texts[instruction.text] : "";
  std::string text(op_name(instruction.op));
  for (std::size_t i = 0; i < instruction.suffix_count; ++i) {
    text += '.';
    text += suffix_name(instruction.suffixes[i]);
  }
  return text;
}

}  // namespace kansoku::gpu::ptx
