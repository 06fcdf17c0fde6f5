// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "common/result.h"
#include "gpu/ptx/internal/lexer.h"

namespace kansoku::gpu::ptx {

/// Tokens with two of look-ahead. After a lexical error the stream has ended, and every error made
/// here is that one.
class TokenStream {
 public:
  explicit TokenStream(std::string_view untrusted);

  /// Valid until the next call.
  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const { return ahead_[ahead]; }
  Token take();
  /// Takes the token if it is this one.
  bool accept(char punctuation);
  bool accept_dot_word(std::string_view word);
  [[nodiscard]] Result<void> expect(char punctuation);
  [[nodiscard]] Result<Token> expect_word(std::string_view what);
  /// An integer within 0 .. max.
  [[nodiscard]] Result<std::uint64_t> expect_integer(std::string_view what, std::uint64_t max);

  [[nodiscard]] std::string_view text() const { return text_; }
  /// End of the last token that was taken, in bytes.
  [[nodiscard]] std::uint32_t taken_end() const { return taken_end_; }
  /// The lexical error that ended the stream, if one did.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  /// kCorrupt at the next token.
  [[nodiscard]] Error error(std::string_view what) const { return error(peek(), what); }
  [[nodiscard]] Error error(const Token& at, std::string_view what,
                            Code code = Code::kCorrupt) const;

  /// Takes tokens up to the end of the line.
  void skip_line();
  /// Takes tokens up to `;` or a group in braces, whichever ends the statement.
  [[nodiscard]] Result<void> skip_statement();

 private:
  void fill(std::size_t slot);

  std::string_view text_;
  Lexer lexer_;
  std::array<Token, 2> ahead_;
  std::uint32_t taken_end_{0};
  std::optional<Error> failure_;
};

}  // namespace kansoku::gpu::ptx
