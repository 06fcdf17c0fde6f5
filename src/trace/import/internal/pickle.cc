// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/pickle.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <unordered_map>

#include "common/parse.h"

namespace kansoku::trace::import {
namespace {

struct Refused {
  unsigned char code;
  std::string_view name;
};
/// Opcodes that name, call or build objects, which makes a pickle a program, and those of sets and
/// byte arrays, which no dump holds.
constexpr std::array<Refused, 19> kRefused{{{'c', "GLOBAL"},
                                            {0x93, "STACK_GLOBAL"},
                                            {'R', "REDUCE"},
                                            {'b', "BUILD"},
                                            {'i', "INST"},
                                            {'o', "OBJ"},
                                            {0x81, "NEWOBJ"},
                                            {0x92, "NEWOBJ_EX"},
                                            {0x82, "EXT1"},
                                            {0x83, "EXT2"},
                                            {0x84, "EXT4"},
                                            {'P', "PERSID"},
                                            {'Q', "BINPERSID"},
                                            {0x97, "NEXT_BUFFER"},
                                            {0x98, "READONLY_BUFFER"},
                                            {0x91, "FROZENSET"},
                                            {0x8f, "EMPTY_SET"},
                                            {0x90, "ADDITEMS"},
                                            {0x96, "BYTEARRAY8"}}};

}  // namespace

using Id = PlainData::Id;
using Kind = PlainData::Kind;
using Value = PlainData::Value;

/// The pickle machine: a stack of values, marks into it, and a memo.
class PickleMachine {
 public:
  PickleMachine(ByteSpan untrusted, const PlainLimits& limits, PlainData& out)
      : reader_(untrusted), limits_(limits), values_(out.values_), root_(out.root_) {}

  /// To the end of the pickle, whose value is the root.
  Result<void> run();

 private:
  [[nodiscard]] Error broken(std::string_view why) const {
    return {Code::kCorrupt, fmt::format("read pickle at offset {}: {}", at_, why)};
  }
  [[nodiscard]] Result<void> step(unsigned char code);
  [[nodiscard]] Result<bool> step_constant(unsigned char code);
  [[nodiscard]] Result<bool> step_printed_number(unsigned char code);
  [[nodiscard]] Result<bool> step_text(unsigned char code);
  [[nodiscard]] Result<bool> step_container(unsigned char code);
  [[nodiscard]] Result<bool> step_memo(unsigned char code);
  [[nodiscard]] Result<void> push(Value value);
  [[nodiscard]] Result<void> push_int(std::int64_t value);
  [[nodiscard]] Result<void> push_bool(bool value);
  [[nodiscard]] Result<void> push_real(double value);
  [[nodiscard]] Result<void> push_text(std::uint64_t bytes);
  [[nodiscard]] Result<void> push_long(std::size_t bytes);
  [[nodiscard]] Result<std::string_view> line();
  [[nodiscard]] Result<std::size_t> pop_mark();
  [[nodiscard]] Result<Id> pop();
  [[nodiscard]] Result<void> collect(Kind kind, std::size_t from);
  [[nodiscard]] Result<void> append(std::size_t from, Kind wanted);
  [[nodiscard]] Result<void> remember(std::uint64_t slot);
  [[nodiscard]] Result<void> recall(std::uint64_t slot);
  template <class T>
  [[nodiscard]] Result<T> read() {
    return reader_.read<T>("a pickle argument");
  }

  ByteReader reader_;
  const PlainLimits& limits_;
  std::vector<Value>& values_;
  Id& root_;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Id> memo_;
  std::uint64_t item_count_{0};
  std::size_t at_{0};
};

Result<void> PickleMachine::push(Value value) {
  if (values_.size() >= limits_.values_max || stack_.size() >= limits_.stack_max) {
    return Error{Code::kLimit,
                 fmt::format("read pickle at offset {}: more values than the limit", at_)};
  }
  stack_.push_back(static_cast<Id>(values_.size()));
  values_.push_back(std::move(value));
  return {};
}

Result<void> PickleMachine::push_int(std::int64_t value) {
  Value out;
  out.kind = Kind::kInt;
  out.integer = value;
  return push(std::move(out));
}

Result<void> PickleMachine::push_text(std::uint64_t bytes) {
  if (bytes > reader_.remaining()) return broken("a text longer than the file");
  TRY(const ByteSpan text, reader_.take(static_cast<std::size_t>(bytes), "a text"));
  Value out;
  out.kind = Kind::kText;
  out.text = as_text(text);
  return push(std::move(out));
}

Result<void> PickleMachine::push_bool(bool value) {
  Value out;
  out.kind = Kind::kBool;
  out.integer = value ? 1 : 0;
  return push(std::move(out));
}

Result<void> PickleMachine::push_real(double value) {
  Value out;
  out.kind = Kind::kFloat;
  out.real = value;
  return push(std::move(out));
}

/// A two's complement number of any length; beyond 64 bits it becomes a float.
Result<void> PickleMachine::push_long(std::size_t bytes) {
  TRY(const ByteSpan digits, reader_.take(bytes, "a number"));
  const bool is_negative =
      bytes > 0 && (static_cast<unsigned char>(digits[bytes - 1]) & 0x80U) != 0;
  if (bytes <= 8) {
    std::uint64_t raw = is_negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      raw &= ~(std::uint64_t{0xff} << (8 * i));
      raw |= std::uint64_t{static_cast<unsigned char>(digits[i])} << (8 * i);
    }
    return push_int(std::bit_cast<std::int64_t>(raw));
  }
  Value out;
  out.kind = Kind::kFloat;
  for (std::size_t i = bytes; i-- > 0;) {
    const int digit = static_cast<unsigned char>(digits[i]);
    out.real = out.real * 256 + (is_negative ? digit - 255 : digit);
  }
  return push(std::move(out));
}

Result<std::string_view> PickleMachine::line() {
  std::size_t length = 0;
  ByteReader ahead = reader_;
  for (;; ++length) {
    TRY(const char c, ahead.read<char>("the end of a line"));
    if (c == '\n') break;
  }
  TRY(const ByteSpan text, reader_.take(length + 1, "a line"));
  return as_text(text.first(length));
}

Result<std::size_t> PickleMachine::pop_mark() {
  if (marks_.empty()) return broken("a mark is missing");
  const std::size_t from = marks_.back();
  marks_.pop_back();
  if (from > stack_.size()) return broken("a mark above the stack");
  return from;
}

Result<Id> PickleMachine::pop() {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) return broken("the stack is empty");
  const Id id = stack_.back();
  stack_.pop_back();
  return id;
}

Result<void> PickleMachine::collect(Kind kind, std::size_t from) {
  Value out;
  out.kind = kind;
  out.items.assign(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
  if (kind == Kind::kDict && out.items.size() % 2 != 0) return broken("a key without a value");
  item_count_ += out.items.size();
  stack_.resize(from);
  return push(std::move(out));
}

/// Moves what lies above `from` into the list or dict below it.
Result<void> PickleMachine::append(std::size_t from, Kind wanted) {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (from == 0 || from > stack_.size() || from - 1 < floor) return broken("nothing to add to");
  Value& into = values_[stack_[from - 1]];
  if (into.kind != wanted) return broken("items added to something else");
  const std::size_t count = stack_.size() - from;
  if (wanted == Kind::kDict && count % 2 != 0) return broken("a key without a value");
  item_count_ += count;
  if (item_count_ > limits_.values_max) {
    return Error{Code::kLimit,
                 fmt::format("read pickle at offset {}: more items than the limit", at_)};
  }
  into.items.insert(into.items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from),
                    stack_.end());
  stack_.resize(from);
  return {};
}

Result<void> PickleMachine::remember(std::uint64_t slot) {
  if (stack_.empty()) return broken("nothing to remember");
  if (memo_.size() >= limits_.values_max) return broken("more remembered values than the limit");
  memo_[slot] = stack_.back();
  return {};
}

Result<void> PickleMachine::recall(std::uint64_t slot) {
  const auto known = memo_.find(slot);
  if (known == memo_.end()) return broken("a value that was never remembered");
  if (stack_.size() >= limits_.stack_max) return broken("a stack deeper than the limit");
  stack_.push_back(known->second);
  return {};
}

Result<bool> PickleMachine::step_constant(unsigned char code) {
  switch (code) {
    case 'N':
      TRY_VOID(push({}));
      return true;
    case 0x88:
    case 0x89:
      TRY_VOID(push_bool(code == 0x88));
      return true;
    case 'J': {
      TRY(const auto value, read<std::int32_t>());
      TRY_VOID(push_int(value));
      return true;
    }
    case 'K': {
      TRY(const auto value, read<std::uint8_t>());
      TRY_VOID(push_int(value));
      return true;
    }
    case 'M': {
      TRY(const auto value, read<std::uint16_t>());
      TRY_VOID(push_int(value));
      return true;
    }
    case 0x8a: {
      TRY(const auto bytes, read<std::uint8_t>());
      TRY_VOID(push_long(bytes));
      return true;
    }
    case 0x8b: {
      TRY(const auto bytes, read<std::int32_t>());
      if (bytes < 0) return broken("a number of negative length");
      TRY_VOID(push_long(static_cast<std::size_t>(bytes)));
      return true;
    }
    case 'G': {
      TRY(const auto raw, read<std::uint64_t>());
      TRY_VOID(push_real(std::bit_cast<double>(__builtin_bswap64(raw))));
      return true;
    }
    default:
      return false;
  }
}

/// Numbers as protocol 0 writes them: decimal, up to the end of the line.
Result<bool> PickleMachine::step_printed_number(unsigned char code) {
  switch (code) {
    case 'I':
    case 'L': {
      TRY(std::string_view text, line());
      if (code == 'L' && text.ends_with('L')) text.remove_suffix(1);
      const auto value = parse_int<std::int64_t>(text);
      if (!value && code == 'I') return broken("not a number");
      if (code == 'I' && (text == "00" || text == "01")) {
        TRY_VOID(push_bool(text == "01"));
        return true;
      }
      if (!value) return broken("not a number of 64 bits");
      TRY_VOID(push_int(*value));
      return true;
    }
    case 'F': {
      TRY(const std::string_view text, line());
      double real = 0;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), real);
      if (error != std::errc{} || stop != text.data() + text.size()) return broken("not a number");
      TRY_VOID(push_real(real));
      return true;
    }
    default:
      return false;
  }
}

Result<bool> PickleMachine::step_text(unsigned char code) {
  switch (code) {
    case 0x8c:  // SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES
    case 'U':
    case 'C': {
      TRY(const auto bytes, read<std::uint8_t>());
      TRY_VOID(push_text(bytes));
      return true;
    }
    case 'X':  // BINUNICODE, BINBYTES
    case 'B': {
      TRY(const auto bytes, read<std::uint32_t>());
      TRY_VOID(push_text(bytes));
      return true;
    }
    case 'T': {
      TRY(const auto bytes, read<std::int32_t>());
      if (bytes < 0) return broken("a text of negative length");
      TRY_VOID(push_text(static_cast<std::uint64_t>(bytes)));
      return true;
    }
    case 0x8d:  // BINUNICODE8, BINBYTES8
    case 0x8e: {
      TRY(const auto bytes, read<std::uint64_t>());
      TRY_VOID(push_text(bytes));
      return true;
    }
    case 'V':
    case 'S': {  // as written: escapes stay
      TRY(const std::string_view text, line());
      Value out;
      out.kind = Kind::kText;
      out.text = text;
      TRY_VOID(push(std::move(out)));
      return true;
    }
    default:
      return false;
  }
}

Result<bool> PickleMachine::step_container(unsigned char code) {
  switch (code) {
    case '(':
      if (marks_.size() >= limits_.stack_max) return broken("more marks than the limit");
      marks_.push_back(stack_.size());
      return true;
    case '}':
      TRY_VOID(collect(Kind::kDict, stack_.size()));
      return true;
    case ']':
    case ')':
      TRY_VOID(collect(Kind::kList, stack_.size()));
      return true;
    case 't':
    case 'l':
    case 'd': {
      TRY(const std::size_t from, pop_mark());
      TRY_VOID(collect(code == 'd' ? Kind::kDict : Kind::kList, from));
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87: {
      const std::size_t count = code - 0x84U;
      const std::size_t floor = marks_.empty() ? 0 : marks_.back();
      if (stack_.size() < floor + count) return broken("the stack is empty");
      TRY_VOID(collect(Kind::kList, stack_.size() - count));
      return true;
    }
    case 'a':
      if (stack_.empty()) return broken("the stack is empty");
      TRY_VOID(append(stack_.size() - 1, Kind::kList));
      return true;
    case 's':
      if (stack_.size() < 2) return broken("the stack is empty");
      TRY_VOID(append(stack_.size() - 2, Kind::kDict));
      return true;
    case 'e':
    case 'u': {
      TRY(const std::size_t from, pop_mark());
      TRY_VOID(append(from, code == 'e' ? Kind::kList : Kind::kDict));
      return true;
    }
    default:
      return false;
  }
}

Result<bool> PickleMachine::step_memo(unsigned char code) {
  switch (code) {
    case 'q': {
      TRY(const auto slot, read<std::uint8_t>());
      TRY_VOID(remember(slot));
      return true;
    }
    case 'r': {
      TRY(const auto slot, read<std::uint32_t>());
      TRY_VOID(remember(slot));
      return true;
    }
    case 0x94:
      TRY_VOID(remember(memo_.size()));
      return true;
    case 'h': {
      TRY(const auto slot, read<std::uint8_t>());
      TRY_VOID(recall(slot));
      return true;
    }
    case 'j': {
      TRY(const auto slot, read<std::uint32_t>());
      TRY_VOID(recall(slot));
      return true;
    }
    case 'p':
    case 'g': {
      TRY(const std::string_view text, line());
      const auto slot = parse_int<std::uint64_t>(text);
      if (!slot) return broken("not a memo slot");
      TRY_VOID(code == 'p' ? remember(*slot) : recall(*slot));
      return true;
    }
    default:
      return false;
  }
}

Result<void> PickleMachine::step(unsigned char code) {
  TRY(const bool is_constant, step_constant(code));
  if (is_constant) return {};
  TRY(const bool is_printed, step_printed_number(code));
  if (is_printed) return {};
  TRY(const bool is_text, step_text(code));
  if (is_text) return {};
  TRY(const bool is_container, step_container(code));
  if (is_container) return {};
  TRY(const bool is_memo, step_memo(code));
  if (is_memo) return {};
  switch (code) {
    case 0x80: {  // PROTO
      TRY(const auto version, read<std::uint8_t>());
      return version <= 5 ? Result<void>{} : Result<void>{broken("a protocol above 5")};
    }
    case 0x95: {  // FRAME: its length only helps readers to buffer
      TRY(const auto bytes, read<std::uint64_t>());
      return bytes <= reader_.remaining() ? Result<void>{}
                                          : Result<void>{broken("a frame longer than the file")};
    }
    case '0': {  // drops a mark too: protocol 0 ends a tuple that contains itself that way
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
        return {};
      }
      TRY(const Id dropped, pop());
      static_cast<void>(dropped);
      return {};
    }
    case '1': {
      TRY(const std::size_t from, pop_mark());
      stack_.resize(from);
      return {};
    }
    case '2': {
      TRY(const Id top, pop());
      stack_.push_back(top);
      if (stack_.size() >= limits_.stack_max) return broken("a stack deeper than the limit");
      stack_.push_back(top);
      return {};
    }
    default:
      break;
  }
  for (const Refused& refused : kRefused) {
    if (refused.code != code) continue;
    return Error{
        Code::kUnsupported,
        fmt::format("read pickle at offset {}: {} refused: only plain data is read", at_,
                    refused.name),
        "a pickle that names or calls objects runs code when it is loaded; do not load it"};
  }
  return broken(fmt::format("opcode 0x{:02x} builds no plain data", code));
}

Result<void> PickleMachine::run() {
  for (;;) {
    at_ = reader_.offset();
    TRY(const auto code, reader_.read<unsigned char>("a pickle opcode"));
    if (code == '.') break;
    TRY_VOID(step(code));
  }
  TRY(root_, pop());
  return {};
}

Result<PlainData> read_pickle(ByteSpan untrusted, const PlainLimits& limits) {
  PlainData out;
  TRY_VOID(PickleMachine(untrusted, limits, out).run());
  return out;
}

}  // namespace kansoku::trace::import
