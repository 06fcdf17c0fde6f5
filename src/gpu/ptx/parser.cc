// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "gpu/ptx/internal/body_parser.h"
#include "gpu/ptx/internal/declarations.h"
#include "gpu/ptx/internal/token_stream.h"

namespace kansoku::gpu::ptx {
namespace {

constexpr std::uint64_t kCountMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kTargetsMax = 16;

std::optional<Linkage> linkage_from_name(std::string_view word) {
  if (word == "extern") return Linkage::kExtern;
  if (word == "visible") return Linkage::kVisible;
  if (word == "weak") return Linkage::kWeak;
  if (word == "common") return Linkage::kCommon;
  return std::nullopt;
}

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view untrusted) : stream_(untrusted) {}

  Result<Module> parse() {
    while (stream_.peek().kind != TokenKind::kEnd)
      TRY_VOID(statement());
    if (stream_.failure()) return *stream_.failure();
    return std::move(module_);
  }

 private:
  Result<void> statement();
  Result<void> version();
  Result<void> target();
  Result<void> variables(Space space, Linkage linkage);
  Result<void> function(bool is_entry, Linkage linkage);
  Result<void> head_directive(Function& function);
  Result<void> three_counts(std::array<std::uint32_t, 3>& counts);
  Result<void> declare(const Token& at, std::string_view name, OperandKind kind, std::size_t index);
  Result<std::uint32_t> place_for(const Token& at, Function&& function);
  void define(std::uint32_t variable, Variable&& definition);
  void add_item(Item::Kind kind, std::size_t index) {
    module_.items.push_back({kind, static_cast<std::uint32_t>(index)});
  }

  TokenStream stream_;
  Module module_;
  ModuleNames names_;
  std::vector<std::size_t> variable_items_;  // by variable: its last item
};

Result<void> ModuleParser::statement() {
  const Token token = stream_.peek();
  if (stream_.accept(';')) return {};
  if (token.kind != TokenKind::kDotWord) return stream_.error("expected a directive");
  auto linkage = Linkage::kInternal;
  if (const auto given = linkage_from_name(token.text)) {
    linkage = *given;
    stream_.take();
  }
  const Token word = stream_.peek();
  if (word.kind != TokenKind::kDotWord) return stream_.error("expected a declaration");
  if (word.text == "entry" || word.text == "func") {
    stream_.take();
    return function(word.text == "entry", linkage);
  }
  if (const auto space = space_from_name(word.text)) {
    stream_.take();
    return variables(*space, linkage);
  }
  // A second linkage would become part of a directive's text, and be one when that is read again.
  if (linkage != Linkage::kInternal) return stream_.error("expected a function or a variable");
  if (word.text == "version") return version();
  if (word.text == "target") return target();
  if (word.text == "address_size") {
    stream_.take();
    TRY(const auto bits, stream_.expect_integer("32 or 64", 64));
    if (bits != 64) return stream_.error(word, "32-bit addresses", Code::kUnsupported);
    module_.address_bits = static_cast<std::uint32_t>(bits);
    return {};
  }
  TRY(auto raw, parse_raw_directive(stream_, word.text == "section" || word.text == "pragma"));
  add_item(Item::Kind::kDirective, module_.directives.size());
  module_.directives.push_back(std::move(raw));
  return {};
}

Result<void> ModuleParser::version() {
  stream_.take();
  const Token number = stream_.take();
  const std::size_t dot = number.text.find('.');
  const auto major = parse_int<std::uint32_t>(number.text.substr(0, dot));
  const auto minor = dot == std::string_view::npos
                         ? std::nullopt
                         : parse_int<std::uint32_t>(number.text.substr(dot + 1));
  if (!major || !minor) return stream_.error(number, "expected a version such as 8.0");
  module_.version_major = *major;
  module_.version_minor = *minor;
  return {};
}

Result<void> ModuleParser::target() {
  stream_.take();
  module_.targets.clear();
  do {
    if (module_.targets.size() == kTargetsMax) return stream_.error("too many targets");
    TRY(const auto word, stream_.expect_word("a target such as sm_80"));
    module_.targets.emplace_back(word.text);
  } while (stream_.accept(','));
  return {};
}

Result<void> ModuleParser::declare(const Token& at, std::string_view name, OperandKind kind,
                                   std::size_t index) {
  Operand operand;
  operand.kind = kind;
  operand.index = static_cast<std::uint32_t>(index);
  const auto [found, is_new] = names_.emplace(name, operand);
  if (!is_new) return stream_.error(at, fmt::format("{} is declared twice", name));
  return {};
}

Result<void> ModuleParser::variables(Space space, Linkage linkage) {
  const Token at = stream_.peek();
  TRY(auto variables, parse_variables(stream_, space, linkage));
  for (Variable& variable : variables) {
    const std::size_t found = stream_.text().find(variable.name, at.begin);
    const auto key = stream_.text().substr(found, variable.name.size());
    // An extern declaration and its definition are one variable.
    if (const auto known = names_.find(key); known != names_.end()) {
      const bool is_variable = known->second.kind == OperandKind::kModuleVariable;
      if (is_variable && module_.variables[known->second.index].linkage == Linkage::kExtern) {
        define(known->second.index, std::move(variable));
        continue;
      }
    }
    TRY_VOID(declare(at, key, OperandKind::kModuleVariable, module_.variables.size()));
    variable_items_.push_back(module_.items.size());
    add_item(Item::Kind::kVariable, module_.variables.size());
    module_.variables.push_back(std::move(variable));
  }
  return {};
}

/// A variable that was declared before; where it was, only the declaration stays.
void ModuleParser::define(std::uint32_t variable, Variable&& definition) {
  module_.items[variable_items_[variable]].kind = Item::Kind::kDeclaration;
  variable_items_[variable] = module_.items.size();
  add_item(Item::Kind::kVariable, variable);
  module_.variables[variable] = std::move(definition);
}

/// The entry of `function` in the module: a new one, or that of its earlier declaration.
Result<std::uint32_t> ModuleParser::place_for(const Token& at, Function&& function) {
  const auto known = names_.find(at.text);
  if (known == names_.end()) {
    TRY_VOID(declare(at, at.text, OperandKind::kFunction, module_.functions.size()));
    module_.functions.push_back(std::move(function));
    return static_cast<std::uint32_t>(module_.functions.size() - 1);
  }
  if (known->second.kind != OperandKind::kFunction)
    return stream_.error(at, "this name already belongs to a variable,");
  Function& earlier = module_.functions[known->second.index];
  if (earlier.has_body && stream_.peek().is('{'))
    return stream_.error(at, "this function already has a body,");
  if (!earlier.has_body) earlier = std::move(function);
  return known->second.index;
}

Result<void> ModuleParser::three_counts(std::array<std::uint32_t, 3>& counts) {
  counts = {1, 1, 1};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    TRY(const auto count, stream_.expect_integer("a number of threads", kCountMax));
    counts[i] = static_cast<std::uint32_t>(count);
    if (!stream_.accept(',')) break;
  }
  return {};
}

Result<void> ModuleParser::head_directive(Function& function) {
  const Token word = stream_.peek();
  if (word.text == "maxntid" || word.text == "reqntid") {
    stream_.take();
    return three_counts(word.text[0] == 'm' ? function.bounds.max_threads
                                            : function.bounds.required_threads);
  }
  if (word.text == "minnctapersm" || word.text == "maxnreg") {
    stream_.take();
    TRY(const auto count, stream_.expect_integer("a number", kCountMax));
    auto& bound =
        word.text[1] == 'i' ? function.bounds.min_blocks_per_sm : function.bounds.max_registers;
    bound = static_cast<std::uint32_t>(count);
    return {};
  }
  if (stream_.accept_dot_word("noreturn")) {
    function.does_not_return = true;
    return {};
  }
  RawDirective raw;
  raw.is_head = true;
  raw.is_known = word.text == "pragma";
  raw.line = word.line;
  stream_.take();
  while (stream_.peek().kind == TokenKind::kInteger || stream_.peek().kind == TokenKind::kString ||
         stream_.peek().kind == TokenKind::kWord || stream_.peek().is(','))
    stream_.take();
  if (raw.is_known) stream_.accept(';');
  raw.text = stream_.text().substr(word.begin, stream_.taken_end() - word.begin);
  function.directives.push_back(std::move(raw));
  return {};
}

Result<void> ModuleParser::function(bool is_entry, Linkage linkage) {
  Function head;
  head.is_entry = is_entry;
  head.linkage = linkage;
  if (!is_entry) {
    TRY(head.returns, parse_parameters(stream_));
  }
  TRY(const auto name, stream_.expect_word("the name of a function"));
  head.name = name.text;
  head.place = {name.line, name.column, name.begin, name.end};
  TRY(head.params, parse_parameters(stream_));
  while (stream_.peek().kind == TokenKind::kDotWord)
    TRY_VOID(head_directive(head));
  TRY(const auto index, place_for(name, std::move(head)));
  const bool has_body = stream_.accept('{');
  add_item(has_body ? Item::Kind::kFunction : Item::Kind::kPrototype, index);
  if (!has_body) return stream_.expect(';');
  Function& function = module_.functions[index];
  function.has_body = true;
  TRY_VOID(BodyParser(stream_, names_, function).parse());
  function.place.end = stream_.taken_end();
  return {};
}

}  // namespace

Result<Module> parse_module(std::string_view untrusted) {
  if (untrusted.size() > kTextBytesMax) {
    return Error{Code::kLimit, fmt::format("parse ptx: {} bytes of text, at most {} are read",
                                           untrusted.size(), kTextBytesMax)};
  }
  return ModuleParser(untrusted).parse();
}

}  // namespace kansoku::gpu::ptx
