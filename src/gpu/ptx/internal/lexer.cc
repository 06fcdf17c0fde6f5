// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/internal/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

namespace kansoku::gpu::ptx {
namespace {

constexpr std::string_view kPunctuation = "{}[](),;:@!|+-=<>*/&^~?";

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool begins_word(char c) {
  return is_letter(c) || c == '_' || c == '$' || c == '%';
}
constexpr bool is_in_word(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}
constexpr bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

}  // namespace

Error Lexer::error_at(std::uint32_t line, std::uint32_t column, std::string_view what) const {
  return Error{Code::kCorrupt, fmt::format("ptx line {} column {}: {}", line, column, what)};
}

Result<void> Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    if (text_[position_] == '\n') {
      ++line_;
      line_begin_ = ++position_;
    } else if (is_blank(text_[position_])) {
      ++position_;
    } else if (text_[position_] == '/' && at(position_ + 1) == '/') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (text_[position_] == '/' && at(position_ + 1) == '*') {
      const std::size_t close = text_.find("*/", position_ + 2);
      if (close == std::string_view::npos) {
        return error_at(line_, static_cast<std::uint32_t>(position_ - line_begin_ + 1),
                        "this comment does not end");
      }
      for (; position_ < close + 2; ++position_) {
        if (text_[position_] != '\n') continue;
        ++line_;
        line_begin_ = position_ + 1;
      }
    } else {
      break;
    }
  }
  return {};
}

std::size_t Lexer::end_of_word(std::size_t at_position) const {
  while (at_position < text_.size() && is_in_word(text_[at_position]))
    ++at_position;
  return at_position;
}

Token Lexer::finish(Token token, TokenKind kind) const {
  token.kind = kind;
  token.end = static_cast<std::uint32_t>(position_);
  token.text = text_.substr(token.begin, token.end - token.begin);
  return token;
}

Token Lexer::word(Token token) {
  position_ = end_of_word(position_ + 1);
  return finish(token, TokenKind::kWord);
}

Result<Token> Lexer::hex_float(Token token, std::size_t digits) {
  position_ += 2;
  const std::size_t begin = position_;
  while (is_hex(at(position_)))
    ++position_;
  if (position_ - begin != digits)
    return error_at(token.line, token.column,
                    fmt::format("expected {} hexadecimal digits", digits));
  std::from_chars(text_.data() + begin, text_.data() + position_, token.value, 16);
  return finish(token, digits == 8 ? TokenKind::kFloat32 : TokenKind::kFloat64);
}

Result<Token> Lexer::number(Token token) {
  const char second = at(position_ + 1);
  const bool is_zero = text_[position_] == '0';
  if (is_zero && (second == 'f' || second == 'F')) return hex_float(token, 8);
  if (is_zero && (second == 'd' || second == 'D')) return hex_float(token, 16);
  int base = 10;
  if (is_zero && (second == 'x' || second == 'X')) {
    base = 16;
    position_ += 2;
  } else if (is_zero && (second == 'b' || second == 'B')) {
    base = 2;
    position_ += 2;
  } else if (is_zero && is_digit(second)) {
    base = 8;
  }
  const char* const begin = text_.data() + position_;
  const char* const end = text_.data() + text_.size();
  auto [stop, problem] = std::from_chars(begin, end, token.value, base);
  TokenKind kind = TokenKind::kInteger;
  if (base == 10 && stop != end && (*stop == '.' || *stop == 'e' || *stop == 'E')) {
    double value = 0;
    const auto decimal = std::from_chars(begin, end, value);
    stop = decimal.ptr;
    problem = decimal.ec;
    std::memcpy(&token.value, &value, sizeof value);
    kind = TokenKind::kFloat64;
  }
  if (stop == begin || problem != std::errc{})
    return error_at(token.line, token.column, "this is not a number that PTX can hold");
  position_ = static_cast<std::size_t>(stop - text_.data());
  if (kind == TokenKind::kInteger && (at(position_) == 'U' || at(position_) == 'u')) ++position_;
  if (is_in_word(at(position_)))
    return error_at(token.line, token.column, "letters directly after a number");
  return finish(token, kind);
}

Result<Token> Lexer::string(Token token) {
  const std::size_t close = text_.find_first_of("\"\n", position_ + 1);
  if (close == std::string_view::npos || text_[close] == '\n')
    return error_at(token.line, token.column, "this text does not end");
  position_ = close + 1;
  token = finish(token, TokenKind::kString);
  token.text = token.text.substr(1, token.text.size() - 2);
  return token;
}

Result<Token> Lexer::next() {
  TRY_VOID(skip_blanks());
  Token token;
  token.line = line_;
  token.column = static_cast<std::uint32_t>(position_ - line_begin_ + 1);
  token.begin = token.end = static_cast<std::uint32_t>(position_);
  if (position_ >= text_.size()) return token;
  const char first = text_[position_];
  if (begins_word(first)) return word(token);
  if (is_digit(first)) return number(token);
  if (first == '"') return string(token);
  if (first == '.' && is_in_word(at(position_ + 1))) {
    position_ = end_of_word(position_ + 1);
    while (at(position_) == ':' && at(position_ + 1) == ':' && is_in_word(at(position_ + 2)))
      position_ = end_of_word(position_ + 2);
    token = finish(token, TokenKind::kDotWord);
    token.text.remove_prefix(1);
    return token;
  }
  if (kPunctuation.find(first) != std::string_view::npos) {
    ++position_;
    return finish(token, TokenKind::kPunctuation);
  }
  const auto byte = static_cast<unsigned char>(first);
  return error_at(token.line, token.column,
                  byte >= 0x20 && byte < 0x7f
                      ? fmt::format("`{}` is not part of PTX", first)
                      : fmt::format("byte 0x{:02x} is not part of PTX", byte));
}

}  // namespace kansoku::gpu::ptx
