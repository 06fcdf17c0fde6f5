// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/internal/token_stream.h"

#include <fmt/format.h>

#include <string>

namespace kansoku::gpu::ptx {

TokenStream::TokenStream(std::string_view untrusted) : text_(untrusted), lexer_(untrusted) {
  fill(0);
  fill(1);
}

void TokenStream::fill(std::size_t slot) {
  if (!failure_) {
    auto token = lexer_.next();
    if (token) {
      ahead_[slot] = *token;
      return;
    }
    failure_ = token.error();
  }
  ahead_[slot] = Token{};
}

Token TokenStream::take() {
  const Token taken = ahead_[0];
  taken_end_ = taken.end;
  ahead_[0] = ahead_[1];
  fill(1);
  return taken;
}

bool TokenStream::accept(char punctuation) {
  if (!peek().is(punctuation)) return false;
  take();
  return true;
}

bool TokenStream::accept_dot_word(std::string_view word) {
  if (peek().kind != TokenKind::kDotWord || peek().text != word) return false;
  take();
  return true;
}

Error TokenStream::error(const Token& at, std::string_view what, Code code) const {
  if (failure_ && at.kind == TokenKind::kEnd) return *failure_;
  const std::string found =
      at.kind == TokenKind::kEnd ? "the end of the text" : fmt::format("`{:.60}`", at.text);
  return Error{code,
               fmt::format("ptx line {} column {}: {} at {}", at.line, at.column, what, found)};
}

Result<void> TokenStream::expect(char punctuation) {
  if (accept(punctuation)) return {};
  return error(fmt::format("expected `{}`", punctuation));
}

Result<Token> TokenStream::expect_word(std::string_view what) {
  if (peek().kind != TokenKind::kWord) return error(fmt::format("expected {}", what));
  return take();
}

Result<std::uint64_t> TokenStream::expect_integer(std::string_view what, std::uint64_t max) {
  if (peek().kind != TokenKind::kInteger) return error(fmt::format("expected {}", what));
  if (peek().value > max) return error(fmt::format("expected {} of at most {}", what, max));
  return take().value;
}

void TokenStream::skip_line() {
  const std::uint32_t line = peek().line;
  while (peek().kind != TokenKind::kEnd && peek().line == line)
    take();
}

Result<void> TokenStream::skip_statement() {
  std::size_t depth = 0;
  while (peek().kind != TokenKind::kEnd) {
    if (depth == 0 && peek().is('}')) return error("expected a statement");
    const Token token = take();
    if (token.is('{')) ++depth;
    if (token.is('}') && --depth == 0) return {};
    if (token.is(';') && depth == 0) return {};
  }
  return error("this statement does not end");
}

}  // namespace kansoku::gpu::ptx
