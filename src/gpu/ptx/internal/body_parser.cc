// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/internal/body_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/parse.h"
#include "gpu/ptx/internal/declarations.h"

namespace kansoku::gpu::ptx {
namespace {

constexpr std::size_t kScopesMax = 64;
constexpr std::uint32_t kOperandDepthMax = 4;  // ({a, b}|p) and the like
constexpr std::uint64_t kRangeMax = std::uint64_t{1} << 32;
constexpr std::size_t kRangesMax = 1024;   // of one scope: a name is looked for in each
constexpr std::size_t kOperandsMax = 255;  // of one instruction

bool names_label(Op op, std::size_t nth) {
  return (op == Op::kBra && nth == 0) || (op == Op::kBrx && nth == 1);
}

}  // namespace

BodyParser::BodyParser(TokenStream& stream, const ModuleNames& module_names, Function& function)
    : stream_(stream), module_names_(module_names), function_(function) {
  scopes_.emplace_back();
  const auto declare = [&](const std::vector<Variable>& variables, OperandKind kind) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      used_names_.emplace(variables[i].name, 2);
      Operand operand;
      operand.kind = kind;
      operand.index = static_cast<std::uint32_t>(i);
      scopes_[0].names.emplace(variables[i].name, operand);
    }
  };
  declare(function.returns, OperandKind::kReturn);
  declare(function.params, OperandKind::kParameter);
}

Result<void> BodyParser::parse() {
  while (!scopes_.empty())
    TRY_VOID(statement());
  // Without its scope a name may hide one of the module that the body uses elsewhere.
  const auto reveal = [&](std::string& name) {
    if (module_names_used_.contains(name)) name = unique_name(name);
  };
  for (Register& entry : function_.registers)
    reveal(entry.name);
  for (Variable& variable : function_.variables)
    reveal(variable.name);
  return {};
}

Result<void> BodyParser::statement() {
  const Token& token = stream_.peek();
  if (token.kind == TokenKind::kDotWord) return directive();
  if (token.kind == TokenKind::kWord) return stream_.peek(1).is(':') ? label() : instruction();
  if (token.is('@')) return instruction();
  if (token.is('}')) return close_scope();
  if (stream_.accept(';')) return {};
  if (token.is('{')) {
    if (scopes_.size() == kScopesMax) return stream_.error("scopes nested too deeply");
    stream_.take();
    scopes_.emplace_back();
    return {};
  }
  return stream_.error("expected a statement");
}

Result<void> BodyParser::directive() {
  const std::string_view word = stream_.peek().text;
  if (word == "reg") return registers();
  if (const auto space = space_from_name(word)) return variables(*space);
  // Hints on the form or the targets of an indirect call: the call itself says enough.
  const bool is_hint = word == "pragma" || word == "callprototype" || word == "calltargets";
  TRY(auto raw, parse_raw_directive(stream_, is_hint));
  raw.instruction = static_cast<std::uint32_t>(function_.instructions.size());
  function_.directives.push_back(std::move(raw));
  return {};
}

Result<void> BodyParser::registers() {
  stream_.take();
  std::optional<Suffix> type;
  while (stream_.peek().kind == TokenKind::kDotWord) {
    type = suffix_from_name(stream_.peek().text);
    if (!type || !is_type(*type)) {
      return stream_.error(stream_.peek(), "registers of this kind are not supported",
                           Code::kUnsupported);
    }
    stream_.take();
  }
  if (!type) return stream_.error("expected the type of the registers");
  Scope& scope = scopes_.back();
  do {
    TRY(const auto name, stream_.expect_word("the name of a register"));
    if (stream_.accept('<')) {
      TRY(const auto count, stream_.expect_integer("a number of registers", kRangeMax));
      TRY_VOID(stream_.expect('>'));
      if (scope.ranges.size() == kRangesMax) return stream_.error("too many ranges of registers");
      scope.ranges.push_back({name.text, count, as_type(*type)});
    } else if (!scope.registers.emplace(name.text, as_type(*type)).second) {
      return stream_.error(name, "this register is declared twice");
    }
  } while (stream_.accept(','));
  return stream_.expect(';');
}

Result<void> BodyParser::variables(Space space) {
  const Token at = stream_.take();
  TRY(auto variables, parse_variables(stream_, space, Linkage::kInternal));
  for (Variable& variable : variables) {
    Operand operand;
    operand.kind = OperandKind::kLocalVariable;
    operand.index = static_cast<std::uint32_t>(function_.variables.size());
    // The key must live as long as the scope: the text of the source does.
    const std::size_t found = stream_.text().find(variable.name, at.begin);
    const auto key = stream_.text().substr(found, variable.name.size());
    if (!scopes_.back().names.emplace(key, operand).second)
      return stream_.error(at, fmt::format("variable {} is declared twice", variable.name));
    variable.name = unique_name(variable.name);
    function_.variables.push_back(std::move(variable));
  }
  return {};
}

Result<void> BodyParser::label() {
  const Token name = stream_.take();
  stream_.take();  // the colon
  const auto index = static_cast<std::uint32_t>(function_.labels.size());
  if (!scopes_.back().labels.emplace(name.text, index).second)
    return stream_.error(name, "duplicate label");
  function_.labels.push_back(
      {unique_name(name.text), static_cast<std::uint32_t>(function_.instructions.size())});
  return {};
}

Result<void> BodyParser::close_scope() {
  stream_.take();
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const PendingLabel& pending : scope.pending) {
    const auto found = scope.labels.find(pending.at.text);
    if (found != scope.labels.end()) {
      function_.operands[pending.operand].index = found->second;
    } else if (scopes_.empty()) {
      return stream_.error(pending.at, "undefined label");
    } else {
      scopes_.back().pending.push_back(pending);
    }
  }
  return {};
}

/// Reads the opcode; one that is not known whole is kept as text.
void BodyParser::opcode(Instruction& instruction) {
  const Token base = stream_.take();
  instruction.op = op_from_name(base.text);
  bool is_known = instruction.op != Op::kUnknown;
  while (stream_.peek().kind == TokenKind::kDotWord) {
    const auto suffix = suffix_from_name(stream_.take().text);
    is_known = is_known && suffix && instruction.suffix_count < kSuffixesMax;
    if (is_known) instruction.suffixes[instruction.suffix_count++] = *suffix;
  }
  if (is_known) return;
  instruction.op = Op::kUnknown;
  instruction.suffix_count = 0;
  instruction.suffixes = {};
  instruction.text = static_cast<std::uint32_t>(function_.texts.size());
  function_.texts.emplace_back(stream_.text().substr(base.begin, stream_.taken_end() - base.begin));
}

Result<void> BodyParser::instruction() {
  Instruction instruction;
  Place place{stream_.peek().line, stream_.peek().column, stream_.peek().begin, 0};
  if (stream_.accept('@')) {
    instruction.is_guard_negated = stream_.accept('!');
    TRY(const auto guard, stream_.expect_word("a predicate"));
    const auto found = look_up(guard.text);
    if (!found || found->kind != OperandKind::kRegister ||
        function_.registers[found->index].type != Type::kPred)
      return stream_.error(guard, "expected a predicate register");
    instruction.guard = found->index;
  }
  if (stream_.peek().kind != TokenKind::kWord) return stream_.error("expected an opcode");
  opcode(instruction);
  std::vector<Operand> operands;
  while (!stream_.peek().is(';')) {
    if (operands.size() == kOperandsMax) return stream_.error("too many operands");
    TRY(auto operand, operand(instruction, operands.size()));
    operands.push_back(operand);
    if (!stream_.accept(',')) break;
  }
  TRY_VOID(stream_.expect(';'));
  const Operand list = store(OperandKind::kList, operands);
  instruction.first_operand = list.index;
  instruction.operand_count = static_cast<std::uint8_t>(operands.size());
  // Labels were noted by their place in the list.
  for (PendingLabel& pending : scopes_.back().pending) {
    if (pending.operand >= kNoIndex - kOperandsMax)
      pending.operand = list.index + (kNoIndex - pending.operand);
  }
  place.end = stream_.taken_end();
  function_.places.push_back(place);
  function_.instructions.push_back(instruction);
  return {};
}

Operand BodyParser::store(OperandKind kind, const std::vector<Operand>& parts) {
  Operand whole;
  whole.kind = kind;
  whole.index = static_cast<std::uint32_t>(function_.operands.size());
  whole.count = static_cast<std::uint32_t>(parts.size());
  function_.operands.insert(function_.operands.end(), parts.begin(), parts.end());
  return whole;
}

Result<Operand> BodyParser::operand(const Instruction& instruction, std::size_t nth) {
  if (depth_ == kOperandDepthMax) return stream_.error("operands nested too deeply");
  ++depth_;
  auto first = simple_operand(instruction, nth);
  if (first && stream_.accept('|')) {
    auto second = simple_operand(instruction, nth);
    if (!second) return std::move(second).error();
    first = store(OperandKind::kPair, {*first, *second});
  }
  --depth_;
  return first;
}

Result<Operand> BodyParser::group(const Instruction& instruction, OperandKind kind, char close) {
  stream_.take();
  std::vector<Operand> parts;
  while (!stream_.peek().is(close)) {
    if (parts.size() == kOperandsMax) return stream_.error("too many operands");
    TRY(auto part, operand(instruction, kOperandsMax));
    parts.push_back(part);
    if (!stream_.accept(',')) break;
  }
  TRY_VOID(stream_.expect(close));
  return store(kind, parts);
}

Result<Operand> BodyParser::simple_operand(const Instruction& instruction, std::size_t nth) {
  const Token& token = stream_.peek();
  if (token.is('{')) return group(instruction, OperandKind::kVector, '}');
  if (token.is('(')) return group(instruction, OperandKind::kList, ')');
  if (token.is('[')) return address(instruction);
  if (token.kind == TokenKind::kWord) return name(instruction, nth);
  if (stream_.accept('!')) {
    if (stream_.peek().kind != TokenKind::kWord) return stream_.error("expected a predicate");
    TRY(auto negated, name(instruction, nth));
    if (negated.kind != OperandKind::kRegister) return stream_.error("`!` takes a predicate");
    negated.is_negated = true;
    return negated;
  }
  if (stream_.accept('-')) return number(true);
  return number(false);
}

Result<Operand> BodyParser::number(bool is_negative) {
  const Token& token = stream_.peek();
  Operand operand;
  std::uint64_t bits = token.value;
  switch (token.kind) {
    case TokenKind::kInteger:
      operand.kind = OperandKind::kInteger;
      if (is_negative) bits = 0 - bits;
      break;
    case TokenKind::kFloat32:
      operand.kind = OperandKind::kFloat32;
      if (is_negative) bits ^= std::uint64_t{1} << 31;
      break;
    case TokenKind::kFloat64:
      operand.kind = OperandKind::kFloat64;
      if (is_negative) bits ^= std::uint64_t{1} << 63;
      break;
    default:
      return stream_.error("expected an operand");
  }
  operand.value = static_cast<std::int64_t>(bits);
  stream_.take();
  return operand;
}

/// `+ 4`, `- 4`, `+ -4` or nothing.
Result<std::int64_t> BodyParser::offset() {
  bool is_less = stream_.peek().is('-');
  if (!stream_.accept('+') && !stream_.accept('-')) return std::int64_t{0};
  if (stream_.accept('-')) is_less = !is_less;
  TRY(const auto value,
      stream_.expect_integer("an offset", std::numeric_limits<std::int64_t>::max()));
  return is_less ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

Result<Operand> BodyParser::address(const Instruction& instruction) {
  const Token open = stream_.take();
  std::vector<Operand> parts;
  do {
    if (parts.size() == kOperandsMax) return stream_.error("too many operands");
    TRY(auto part, operand(instruction, kOperandsMax));
    if (part.kind == OperandKind::kRegister) {
      TRY(part.value, offset());
    }
    parts.push_back(part);
  } while (stream_.accept(','));
  TRY_VOID(stream_.expect(']'));
  Operand result;
  result.kind = OperandKind::kAddress;
  result.base = parts[0].kind;
  result.index = parts[0].index;
  result.value = parts[0].value;
  switch (parts[0].kind) {
    case OperandKind::kInteger:
      result.base = OperandKind::kNone;
      break;
    case OperandKind::kRegister:
    case OperandKind::kParameter:
    case OperandKind::kReturn:
    case OperandKind::kLocalVariable:
    case OperandKind::kModuleVariable:
      break;
    default:
      if (instruction.op != Op::kUnknown) return stream_.error(open, "expected an address");
      return store(OperandKind::kBrackets, parts);
  }
  if (parts.size() == 1) return result;
  if (instruction.op != Op::kUnknown) return stream_.error(open, "expected an address");
  return store(OperandKind::kBrackets, parts);
}

Result<Operand> BodyParser::name(const Instruction& instruction, std::size_t nth) {
  const Token word = stream_.take();
  Operand operand;
  if (names_label(instruction.op, nth)) {
    operand.kind = OperandKind::kLabel;
    scopes_.back().pending.push_back({kNoIndex - static_cast<std::uint32_t>(nth), word});
    return operand;
  }
  if (word.text == "_") {
    operand.kind = OperandKind::kSink;
    return operand;
  }
  std::string_view text = word.text;
  if (text[0] == '%' && stream_.peek().kind == TokenKind::kDotWord)
    text = stream_.text().substr(word.begin, stream_.take().end - word.begin);
  if (const auto special = special_from_name(text)) {
    operand.kind = OperandKind::kSpecial;
    operand.index = static_cast<std::uint32_t>(*special);
    return operand;
  }
  if (text.size() != word.text.size())
    return stream_.error(word, "components of registers are not supported", Code::kUnsupported);
  const auto found = look_up(text);
  if (found) {
    operand = *found;
    if (operand.kind != OperandKind::kRegister && operand.kind != OperandKind::kFunction) {
      TRY(operand.value, offset());
    }
    return operand;
  }
  // The prototype of an indirect call is a label.
  const bool may_be_label = instruction.op == Op::kCall && nth != kOperandsMax;
  if (!may_be_label) return stream_.error(word, "undeclared name");
  operand.kind = OperandKind::kLabel;
  scopes_.back().pending.push_back({kNoIndex - static_cast<std::uint32_t>(nth), word});
  return operand;
}

std::string BodyParser::unique_name(std::string_view name) {
  std::string unique(name);
  std::uint32_t& next = used_names_.try_emplace(unique, 1).first->second;
  if (next++ == 1) return unique;
  std::uint32_t number = next - 1;
  do {
    unique = fmt::format("{}${}", name, number++);
  } while (module_names_used_.contains(unique) || !used_names_.try_emplace(unique, 2).second);
  used_names_[std::string(name)] = number;
  return unique;
}

Operand BodyParser::make_register(Scope& scope, std::string_view name, Type type) {
  Operand operand;
  operand.kind = OperandKind::kRegister;
  operand.index = static_cast<std::uint32_t>(function_.registers.size());
  function_.registers.push_back({unique_name(name), type});
  scope.names.emplace(name, operand);
  return operand;
}

/// `name` must be a piece of the source text: it becomes a key.
std::optional<Operand> BodyParser::look_up_register(Scope& scope, std::string_view name) {
  if (const auto found = scope.registers.find(name); found != scope.registers.end())
    return make_register(scope, name, found->second);
  for (const RegisterRange& range : scope.ranges) {
    if (!name.starts_with(range.prefix) || name.size() == range.prefix.size()) continue;
    const std::string_view digits = name.substr(range.prefix.size());
    if (digits.size() > 1 && digits[0] == '0') continue;
    const auto number = parse_int<std::uint64_t>(digits);
    if (number && *number < range.count) return make_register(scope, name, range.type);
  }
  return std::nullopt;
}

std::optional<Operand> BodyParser::look_up(std::string_view name) {
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    Scope& scope = scopes_[i];
    if (const auto found = scope.names.find(name); found != scope.names.end()) return found->second;
    if (const auto made = look_up_register(scope, name)) return made;
  }
  const auto found = module_names_.find(name);
  if (found == module_names_.end()) return std::nullopt;
  module_names_used_.insert(found->first);
  return found->second;
}

}  // namespace kansoku::gpu::ptx
