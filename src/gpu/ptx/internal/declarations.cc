// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/internal/declarations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "gpu/ptx/parser.h"

namespace kansoku::gpu::ptx {
namespace {

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40;  // of one variable
constexpr std::uint32_t kAlignMax = 4096;
constexpr std::size_t kDimsMax = 8;

/// Reads `.align 8 .v2 .f32` and the like into `variable`.
Result<void> parse_type(TokenStream& stream, Variable& variable) {
  bool has_type = false;
  while (stream.peek().kind == TokenKind::kDotWord) {
    const Token word = stream.peek();
    const auto suffix = suffix_from_name(word.text);
    if (word.text == "align") {
      stream.take();
      TRY(const auto align, stream.expect_integer("an alignment", kAlignMax));
      if (!std::has_single_bit(align)) return stream.error(word, "an alignment is a power of two");
      variable.align = static_cast<std::uint32_t>(align);
    } else if (word.text == "attribute") {
      stream.take();
      TRY_VOID(stream.expect('('));
      if (!stream.accept_dot_word("managed"))
        return stream.error(stream.peek(), "unknown attribute", Code::kUnsupported);
      TRY_VOID(stream.expect(')'));
      variable.is_managed = true;
    } else if (suffix == Suffix::kV2 || suffix == Suffix::kV4 || suffix == Suffix::kV8) {
      stream.take();
      variable.vector = static_cast<std::uint8_t>(word.text[1] - '0');
    } else if (suffix && is_type(*suffix) && !has_type) {
      if (*suffix == Suffix::kPred) return stream.error(word, "predicates have no memory");
      stream.take();
      variable.type = as_type(*suffix);
      has_type = true;
    } else {
      break;
    }
  }
  if (!has_type) return stream.error(stream.peek(), "expected a type", Code::kUnsupported);
  return {};
}

Result<void> parse_dims(TokenStream& stream, Variable& variable) {
  std::uint64_t bytes = std::uint64_t{bytes_of(variable.type)} * variable.vector;
  while (stream.accept('[')) {
    if (variable.dims.size() == kDimsMax) return stream.error("too many dimensions");
    if (stream.accept(']')) {
      if (!variable.dims.empty()) return stream.error("only the first dimension may be left out");
      variable.is_unsized = true;
      variable.dims.push_back(0);
      continue;
    }
    TRY(const auto dim, stream.expect_integer("a number of elements", kBytesMax));
    if (dim != 0 && bytes > kBytesMax / dim) return stream.error("this variable is too large");
    bytes *= dim;
    variable.dims.push_back(dim);
    TRY_VOID(stream.expect(']'));
  }
  return {};
}

/// Writes the values of `= {...}` into a variable.
class Initialiser {
 public:
  Initialiser(TokenStream& stream, Variable& variable) : stream_(stream), variable_(variable) {
    dims_ = variable.dims;
    if (variable.vector > 1) dims_.push_back(variable.vector);
    if (dims_.empty()) dims_.push_back(1);
  }

  Result<void> parse() {
    variable_.has_initialiser = true;
    if (!stream_.peek().is('{') && variable_.dims.empty()) return value(0);
    TRY_VOID(list(0, 0));
    if (variable_.is_unsized) {
      variable_.is_unsized = false;
      variable_.dims[0] = first_dim_count_;
    }
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t stride_below(std::size_t depth) const {
    std::uint64_t stride = 1;
    for (std::size_t i = depth + 1; i < dims_.size(); ++i)
      stride *= dims_[i];
    return stride;
  }

  /// `{...}` of dimension `depth`, whose first element is number `base` of the variable.
  Result<void> list(std::size_t depth, std::uint64_t base) {
    TRY_VOID(stream_.expect('{'));
    const bool is_open_ended = depth == 0 && variable_.is_unsized;
    const std::uint64_t step = stride_below(depth);
    std::uint64_t count = 0, within = 0;  // whole sub-arrays; single elements after them
    while (!stream_.peek().is('}')) {
      if (step != 0 && count > kBytesMax / step) return stream_.error("this variable is too large");
      const std::uint64_t at = base + count * step + within;
      if (!is_open_ended && count * step + within >= dims_[depth] * step)
        return stream_.error("more values than elements");
      if (stream_.peek().is('{')) {
        if (depth + 1 >= dims_.size()) return stream_.error("more braces than dimensions");
        if (within != 0) return stream_.error("braces after values of the same array");
        TRY_VOID(list(depth + 1, at));
        ++count;
      } else {
        TRY_VOID(value(at));
        if (step == 1) {
          ++count;
        } else if (++within == step) {
          within = 0;
          ++count;
        }
      }
      if (!stream_.accept(',')) break;
    }
    if (depth == 0) first_dim_count_ = count + (within != 0 ? 1 : 0);
    return stream_.expect('}');
  }

  Result<void> value(std::uint64_t element) {
    const std::uint64_t size = bytes_of(variable_.type);
    const std::uint64_t offset = element * size;
    if (offset + size > kInitialBytesMax)
      return stream_.error(stream_.peek(), "an initialiser this large", Code::kLimit);
    if (variable_.initial.size() < offset + size) variable_.initial.resize(offset + size);
    if (stream_.peek().kind == TokenKind::kWord) return symbol(offset, size);
    const bool is_negative = stream_.accept('-');
    const Token token = stream_.peek();
    std::uint64_t bits = token.value;
    if (token.kind == TokenKind::kInteger) {
      if (is_negative) bits = 0 - bits;
      if (is_float(variable_.type) && bits != 0) return stream_.error("expected a float value");
    } else if (token.kind == TokenKind::kFloat32 && variable_.type == Type::kF32) {
      if (is_negative) bits ^= std::uint64_t{1} << 31;
    } else if (token.kind == TokenKind::kFloat64 &&
               (variable_.type == Type::kF64 || variable_.type == Type::kF32)) {
      if (is_negative) bits ^= std::uint64_t{1} << 63;
      if (variable_.type == Type::kF32)
        bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    } else {
      return stream_.error("expected a value of the variable's type");
    }
    stream_.take();
    std::memcpy(variable_.initial.data() + offset, &bits, std::min<std::size_t>(size, sizeof bits));
    return {};
  }

  Result<void> symbol(std::uint64_t offset, std::uint64_t size) {
    Relocation relocation;
    relocation.offset = offset;
    Token word = stream_.take();
    if (size != sizeof(std::uint64_t)) {
      return stream_.error(word, "addresses take elements of 64 bits", Code::kUnsupported);
    }
    relocation.is_generic = word.text == "generic" && stream_.peek().is('(');
    if (relocation.is_generic) {
      stream_.take();
      TRY(word, stream_.expect_word("a symbol"));
      TRY_VOID(stream_.expect(')'));
    }
    relocation.symbol = word.text;
    const bool is_less = stream_.peek().is('-');
    if (stream_.accept('+') || stream_.accept('-')) {
      TRY(const auto addend, stream_.expect_integer("an offset", kBytesMax));
      relocation.addend = static_cast<std::int64_t>(addend) * (is_less ? -1 : 1);
    }
    variable_.relocations.push_back(std::move(relocation));
    return {};
  }

  TokenStream& stream_;
  Variable& variable_;
  std::vector<std::uint64_t> dims_;
  std::uint64_t first_dim_count_{0};
};

Result<Variable> parse_parameter(TokenStream& stream) {
  if (!stream.accept_dot_word("param")) {
    return stream.error(stream.peek(), "expected a parameter in .param space", Code::kUnsupported);
  }
  Variable parameter;
  parameter.space = Space::kParam;
  TRY_VOID(parse_type(stream, parameter));
  if (stream.accept_dot_word("ptr")) {
    parameter.is_pointer = true;
    if (const auto space = space_from_name(stream.peek().text);
        space && stream.peek().kind == TokenKind::kDotWord) {
      parameter.pointee = *space;
      stream.take();
    }
    if (stream.accept_dot_word("align")) {
      TRY(const auto align, stream.expect_integer("an alignment", kAlignMax));
      parameter.pointee_align = static_cast<std::uint32_t>(align);
    }
  }
  TRY(const auto name, stream.expect_word("the name of a parameter"));
  parameter.name = name.text;
  TRY_VOID(parse_dims(stream, parameter));
  return parameter;
}

}  // namespace

std::optional<Space> space_from_name(std::string_view word) {
  for (const Space space :
       {Space::kGlobal, Space::kShared, Space::kLocal, Space::kParam, Space::kConst}) {
    if (word == space_name(space).substr(1)) return space;
  }
  return std::nullopt;
}

Result<std::vector<Variable>> parse_variables(TokenStream& stream, Space space, Linkage linkage) {
  std::vector<Variable> variables;
  Variable common;
  common.space = space;
  common.linkage = linkage;
  TRY_VOID(parse_type(stream, common));
  do {
    Variable variable = common;
    TRY(const auto name, stream.expect_word("the name of a variable"));
    variable.name = name.text;
    TRY_VOID(parse_dims(stream, variable));
    if (stream.accept('=')) TRY_VOID(Initialiser(stream, variable).parse());
    variables.push_back(std::move(variable));
  } while (stream.accept(','));
  TRY_VOID(stream.expect(';'));
  return variables;
}

Result<std::vector<Variable>> parse_parameters(TokenStream& stream) {
  std::vector<Variable> parameters;
  if (!stream.accept('(')) return parameters;
  if (stream.accept(')')) return parameters;
  do {
    TRY(auto parameter, parse_parameter(stream));
    parameters.push_back(std::move(parameter));
  } while (stream.accept(','));
  TRY_VOID(stream.expect(')'));
  return parameters;
}

Result<RawDirective> parse_raw_directive(TokenStream& stream, bool is_known) {
  const std::string_view word = stream.peek().text;
  const bool is_line = word == "loc" || word == "file";
  RawDirective raw;
  raw.is_known = is_known || is_line;
  raw.line = stream.peek().line;
  const std::uint32_t begin = stream.peek().begin;
  if (is_line) {
    stream.skip_line();
  } else {
    TRY_VOID(stream.skip_statement());
  }
  raw.text = stream.text().substr(begin, stream.taken_end() - begin);
  return raw;
}

}  // namespace kansoku::gpu::ptx
