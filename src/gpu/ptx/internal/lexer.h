// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"

namespace kansoku::gpu::ptx {

enum class TokenKind : std::uint8_t {
  kEnd,
  kWord,         // identifier; may begin with % $ _
  kDotWord,      // .word or .word::word, text without the first dot
  kInteger,      // value
  kFloat32,      // 0f........: bits in value
  kFloat64,      // 0d................ or decimal: bits in value
  kString,       // text between the quotes
  kPunctuation,  // text: one character
};

struct Token {
  TokenKind kind{TokenKind::kEnd};
  std::string_view text;  // of the input
  std::uint64_t value{0};
  std::uint32_t line{1}, column{1};
  std::uint32_t begin{0}, end{0};  // bytes of the input

  [[nodiscard]] bool is(char punctuation) const {
    return kind == TokenKind::kPunctuation && text[0] == punctuation;
  }
};

/// Cuts PTX text into tokens; comments and blanks fall out. Borrows the text.
class Lexer {
 public:
  explicit Lexer(std::string_view untrusted) : text_(untrusted) {}

  /// The next token; kEnd at the end, again and again. kCorrupt with line and column for a
  /// character or number that PTX does not have, or for a comment or string that does not end.
  [[nodiscard]] Result<Token> next();

 private:
  [[nodiscard]] Result<void> skip_blanks();
  [[nodiscard]] Result<Token> number(Token token);
  [[nodiscard]] Result<Token> hex_float(Token token, std::size_t digits);
  [[nodiscard]] Result<Token> string(Token token);
  [[nodiscard]] Token word(Token token);
  [[nodiscard]] Token finish(Token token, TokenKind kind) const;
  [[nodiscard]] Error error_at(std::uint32_t line, std::uint32_t column,
                               std::string_view what) const;
  [[nodiscard]] std::size_t end_of_word(std::size_t at) const;
  [[nodiscard]] char at(std::size_t position) const {
    return position < text_.size() ? text_[position] : '\0';
  }

  std::string_view text_;
  std::size_t position_{0};
  std::size_t line_begin_{0};
  std::uint32_t line_{1};
};

}  // namespace kansoku::gpu::ptx
