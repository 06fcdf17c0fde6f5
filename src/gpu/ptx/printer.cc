// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace kansoku::gpu::ptx {
namespace {

constexpr std::size_t kValuesPerLine = 16;

std::string_view linkage_text(Linkage linkage) {
  switch (linkage) {
    case Linkage::kInternal:
      return "";
    case Linkage::kExtern:
      return ".extern ";
    case Linkage::kVisible:
      return ".visible ";
    case Linkage::kWeak:
      return ".weak ";
    case Linkage::kCommon:
      return ".common ";
  }
  return "";
}

class Printer {
 public:
  explicit Printer(const Module& module) : module_(module) {}

  void module();
  void instruction(const Function& function, const Instruction& instruction);
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void item(const Item& item);
  void declaration(const Variable& variable);
  void declarator(const Variable& variable, Linkage linkage);
  void initialiser(const Variable& variable);
  void value(const Variable& variable, std::uint64_t offset);
  void parameters(const std::vector<Variable>& parameters);
  void head(const Function& function);
  void body(const Function& function);
  void registers(const Function& function);
  void operand(const Function& function, const Operand& operand);
  void operands(const Function& function, const Operand& group, char open, char close);
  void symbol(std::string_view name, std::int64_t offset);

  const Module& module_;
  std::string text_;
};

void Printer::module() {
  add(".version {}.{}\n", module_.version_major, module_.version_minor);
  if (!module_.targets.empty()) {
    text_ += ".target ";
    for (std::size_t i = 0; i < module_.targets.size(); ++i)
      add("{}{}", i == 0 ? "" : ", ", module_.targets[i]);
    text_ += '\n';
  }
  add(".address_size {}\n\n", module_.address_bits);
  for (const Item& each : module_.items)
    item(each);
}

void Printer::item(const Item& item) {
  switch (item.kind) {
    case Item::Kind::kDirective:
      add("{}\n", module_.directives[item.index].text);
      return;
    case Item::Kind::kDeclaration:
      declarator(module_.variables[item.index], Linkage::kExtern);
      text_ += ";\n";
      return;
    case Item::Kind::kVariable:
      declaration(module_.variables[item.index]);
      text_ += ";\n";
      return;
    case Item::Kind::kPrototype:
      text_ += '\n';
      head(module_.functions[item.index]);
      text_ += ";\n";
      return;
    case Item::Kind::kFunction:
      text_ += '\n';
      head(module_.functions[item.index]);
      body(module_.functions[item.index]);
      return;
  }
}

void Printer::declaration(const Variable& variable) {
  declarator(variable, variable.linkage);
  if (variable.has_initialiser) initialiser(variable);
}

void Printer::declarator(const Variable& variable, Linkage linkage) {
  text_ += linkage_text(linkage);
  text_ += space_name(variable.space);
  if (variable.is_managed) text_ += " .attribute(.managed)";
  if (variable.align != 0) add(" .align {}", variable.align);
  if (variable.vector > 1) add(" .v{}", variable.vector);
  add(" .{}", type_name(variable.type));
  if (variable.is_pointer) {
    text_ += " .ptr";
    if (variable.pointee != Space::kGeneric) add(" {}", space_name(variable.pointee));
    if (variable.pointee_align != 0) add(" .align {}", variable.pointee_align);
  }
  add(" {}", variable.name);
  for (std::size_t i = 0; i < variable.dims.size(); ++i) {
    if (i == 0 && variable.is_unsized) {
      text_ += "[]";
    } else {
      add("[{}]", variable.dims[i]);
    }
  }
}

void Printer::initialiser(const Variable& variable) {
  if (variable.dims.empty() && variable.vector == 1) {
    text_ += " = ";
    value(variable, 0);
    return;
  }
  const std::uint64_t size = bytes_of(variable.type);
  text_ += " = {";
  for (std::uint64_t offset = 0; offset < variable.initial.size(); offset += size) {
    if (offset != 0) text_ += offset / size % kValuesPerLine == 0 ? ",\n\t" : ", ";
    value(variable, offset);
  }
  text_ += '}';
}

void Printer::value(const Variable& variable, std::uint64_t offset) {
  const auto relocation = std::lower_bound(
      variable.relocations.begin(), variable.relocations.end(), offset,
      [](const Relocation& entry, std::uint64_t wanted) { return entry.offset < wanted; });
  if (relocation != variable.relocations.end() && relocation->offset == offset) {
    if (relocation->is_generic) text_ += "generic(";
    text_ += relocation->symbol;
    if (relocation->is_generic) text_ += ')';
    if (relocation->addend != 0) add("{:+}", relocation->addend);
    return;
  }
  std::uint64_t bits = 0;
  const std::size_t size = std::min<std::size_t>(bytes_of(variable.type), sizeof bits);
  std::memcpy(&bits, variable.initial.data() + offset, size);
  if (variable.type == Type::kF32) {
    add("0f{:08X}", bits);
  } else if (variable.type == Type::kF64) {
    add("0d{:016X}", bits);
  } else {
    add("{}", bits);
  }
}

void Printer::parameters(const std::vector<Variable>& parameters) {
  text_ += '(';
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    text_ += i == 0 ? "\n\t" : ",\n\t";
    declaration(parameters[i]);
  }
  text_ += parameters.empty() ? ")" : "\n)";
}

void Printer::head(const Function& function) {
  text_ += linkage_text(function.linkage);
  text_ += function.is_entry ? ".entry " : ".func ";
  if (!function.returns.empty()) {
    parameters(function.returns);
    text_ += ' ';
  }
  text_ += function.name;
  parameters(function.params);
  const auto counts = [&](std::string_view name, const std::array<std::uint32_t, 3>& threads) {
    if (threads != std::array<std::uint32_t, 3>{})
      add("\n.{} {}, {}, {}", name, threads[0], threads[1], threads[2]);
  };
  counts("maxntid", function.bounds.max_threads);
  counts("reqntid", function.bounds.required_threads);
  if (function.bounds.min_blocks_per_sm != 0)
    add("\n.minnctapersm {}", function.bounds.min_blocks_per_sm);
  if (function.bounds.max_registers != 0) add("\n.maxnreg {}", function.bounds.max_registers);
  if (function.does_not_return) text_ += "\n.noreturn";
  for (const RawDirective& raw : function.directives) {
    if (raw.is_head) add("\n{}", raw.text);
  }
}

void Printer::registers(const Function& function) {
  // In the order of first use, types as they come: parsing numbers them by use, not by declaration.
  for (std::size_t i = 0; i < function.registers.size();) {
    const Type type = function.registers[i].type;
    add("\t.reg .{} ", type_name(type));
    for (std::size_t column = 0;
         i < function.registers.size() && function.registers[i].type == type; ++i, ++column) {
      if (column != 0) text_ += column % kValuesPerLine == 0 ? ",\n\t\t" : ", ";
      text_ += function.registers[i].name;
    }
    text_ += ";\n";
  }
}

void Printer::body(const Function& function) {
  text_ += "\n{\n";
  registers(function);
  for (const Variable& variable : function.variables) {
    text_ += '\t';
    declaration(variable);
    text_ += ";\n";
  }
  std::size_t raw = 0;
  std::vector<const Label*> labels;
  for (const Label& label : function.labels)
    labels.push_back(&label);
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label* a, const Label* b) { return a->instruction < b->instruction; });
  std::size_t label = 0;
  for (std::size_t i = 0; i <= function.instructions.size(); ++i) {
    for (; label < labels.size() && labels[label]->instruction == i; ++label)
      add("{}:\n", labels[label]->name);
    for (; raw < function.directives.size() && function.directives[raw].instruction == i; ++raw) {
      if (!function.directives[raw].is_head) add("\t{}\n", function.directives[raw].text);
    }
    if (i == function.instructions.size()) break;
    text_ += '\t';
    instruction(function, function.instructions[i]);
    text_ += '\n';
  }
  text_ += "}\n";
}

void Printer::instruction(const Function& function, const Instruction& instruction) {
  if (instruction.guard != kNoIndex) {
    add("@{}{} ", instruction.is_guard_negated ? "!" : "",
        function.registers[instruction.guard].name);
  }
  text_ += opcode_text(function, instruction);
  for (std::size_t i = 0; i < instruction.operand_count; ++i) {
    text_ += i == 0 ? " " : ", ";
    operand(function, function.operand(instruction, i));
  }
  text_ += ';';
}

void Printer::symbol(std::string_view name, std::int64_t offset) {
  text_ += name;
  if (offset != 0) add("+{}", offset);
}

void Printer::operands(const Function& function, const Operand& group, char open, char close) {
  text_ += open;
  for (std::uint32_t i = 0; i < group.count; ++i) {
    if (i != 0) text_ += ", ";
    operand(function, function.operands[group.index + i]);
  }
  text_ += close;
}

void Printer::operand(const Function& function, const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::kNone:
      break;
    case OperandKind::kRegister:
      if (operand.is_negated) text_ += '!';
      symbol(function.registers[operand.index].name, operand.value);
      break;
    case OperandKind::kSpecial:
      text_ += special_name(static_cast<Special>(operand.index));
      break;
    case OperandKind::kInteger:
      add("{}", operand.value);
      break;
    case OperandKind::kFloat32:
      add("0f{:08X}", static_cast<std::uint64_t>(operand.value));
      break;
    case OperandKind::kFloat64:
      add("0d{:016X}", static_cast<std::uint64_t>(operand.value));
      break;
    case OperandKind::kParameter:
      symbol(function.params[operand.index].name, operand.value);
      break;
    case OperandKind::kReturn:
      symbol(function.returns[operand.index].name, operand.value);
      break;
    case OperandKind::kLocalVariable:
      symbol(function.variables[operand.index].name, operand.value);
      break;
    case OperandKind::kModuleVariable:
      symbol(module_.variables[operand.index].name, operand.value);
      break;
    case OperandKind::kFunction:
      text_ += module_.functions[operand.index].name;
      break;
    case OperandKind::kLabel:
      text_ += function.labels[operand.index].name;
      break;
    case OperandKind::kSink:
      text_ += '_';
      break;
    case OperandKind::kAddress: {
      Operand base = operand;
      base.kind = operand.base == OperandKind::kNone ? OperandKind::kInteger : operand.base;
      text_ += '[';
      this->operand(function, base);
      text_ += ']';
      break;
    }
    case OperandKind::kVector:
      operands(function, operand, '{', '}');
      break;
    case OperandKind::kPair:
      this->operand(function, function.operands[operand.index]);
      text_ += '|';
      this->operand(function, function.operands[operand.index + 1]);
      break;
    case OperandKind::kList:
      operands(function, operand, '(', ')');
      break;
    case OperandKind::kBrackets:
      operands(function, operand, '[', ']');
      break;
  }
}

}  // namespace

std::string print_module(const Module& module) {
  Printer printer(module);
  printer.module();
  return printer.take();
}

std::string print_instruction(const Module& module, const Function& function,
                              const Instruction& instruction) {
  Printer printer(module);
  printer.instruction(function, instruction);
  return printer.take();
}

}  // namespace kansoku::gpu::ptx
