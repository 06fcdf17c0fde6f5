// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/event_scanner.h"

#include <fmt/format.h>

#include <array>

namespace kansoku::trace::import {
namespace {

constexpr std::size_t kKeyBytesMax = 4096;

enum : std::uint8_t { kPlain, kQuote, kBackslash, kOpen, kClose, kComma };

constexpr std::array<std::uint8_t, 256> kClassOf = [] {
  std::array<std::uint8_t, 256> table{};
  table['"'] = kQuote;
  table['\\'] = kBackslash;
  table['{'] = table['['] = kOpen;
  table['}'] = table[']'] = kClose;
  table[','] = kComma;
  return table;
}();

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

Error EventScanner::broken(std::string_view why) const {
  return {Code::kCorrupt, fmt::format("read JSON trace at offset {}: {}", offset_, why)};
}

void EventScanner::begin_value(State next) {
  in_value_ = true;
  value_done_ = value_is_scalar_ = in_string_ = is_escaped_ = skips_ = false;
  depth_ = 0;
  after_value_ = next;
  value_offset_ = offset_;
  value_.clear();
}

/// Moves over the value that has begun, up to its end or the end of the piece. The byte after a
/// scalar is not consumed.
std::size_t EventScanner::scan_value(std::string_view piece, std::size_t at) {
  const std::size_t begin = at;
  for (; at < piece.size() && !value_done_; ++at) {
    const std::uint8_t kind = kClassOf[static_cast<unsigned char>(piece[at])];
    if (in_string_) {
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (kind == kBackslash) {
        is_escaped_ = true;
      } else if (kind == kQuote) {
        in_string_ = false;
        value_done_ = depth_ == 0;
      }
      continue;
    }
    if (kind == kPlain) {
      if (depth_ == 0 && is_space(piece[at])) {
        value_done_ = value_is_scalar_ = true;
        break;
      }
      continue;
    }
    if (kind == kQuote) {
      in_string_ = true;
    } else if (kind == kOpen) {
      if (++depth_ > limits_.depth_max) {
        ++at;
        break;
      }
    } else if (kind == kClose) {
      if (depth_ == 0) {
        value_done_ = value_is_scalar_ = true;
        break;
      }
      value_done_ = --depth_ == 0;
    } else if (kind == kComma && depth_ == 0) {
      value_done_ = value_is_scalar_ = true;
      break;
    }
  }
  if (!skips_) value_.append(piece.substr(begin, at - begin));
  offset_ += at - begin;
  return at;
}

std::size_t EventScanner::scan_key(std::string_view piece, std::size_t at) {
  const std::size_t begin = at;
  for (; at < piece.size(); ++at) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (piece[at] == '\\') {
      is_escaped_ = true;
    } else if (piece[at] == '"') {
      break;
    }
  }
  key_.append(piece.substr(begin, at - begin));
  offset_ += at - begin;
  return at;
}

Result<void> EventScanner::too_long_or_deep() {
  if (depth_ > limits_.depth_max) {
    return Error{Code::kLimit, fmt::format("read JSON trace at offset {}: nested deeper than {}",
                                           offset_, limits_.depth_max)};
  }
  if (after_value_ == State::kElement && value_.size() > limits_.event_bytes_max) {
    return Error{Code::kLimit,
                 fmt::format("read JSON trace at offset {}: an event of more than {} bytes",
                             value_offset_, limits_.event_bytes_max)};
  }
  if (after_value_ == State::kKey && value_.size() > limits_.member_bytes_max) {
    skips_ = true;
    value_.clear();
  }
  return {};
}

Result<void> EventScanner::end_of_value() {
  in_value_ = false;
  if (value_.empty() && !skips_) return broken("a value is missing");
  const std::size_t size = value_.size();
  value_.append(kPadding, ' ');
  const std::string_view text(value_.data(), size);
  state_ = after_value_;
  if (after_value_ == State::kElement) return sink_.on_event(text, value_offset_);
  if (skips_) return {};
  return sink_.on_member(key_, text, value_offset_);
}

/// One byte outside of keys and values.
Result<void> EventScanner::step(char c) {
  if (is_space(c)) return {};
  switch (state_) {
    case State::kStart:
      if (c != '[' && c != '{') return broken("not a JSON trace: it begins with neither [ nor {");
      is_list_ = has_list_ = c == '[';
      state_ = is_list_ ? State::kElement : State::kKey;
      return {};
    case State::kKey:
      if (c == ',' || c == '}') {
        if (c == '}') state_ = State::kDone;
        return {};
      }
      if (c != '"') return broken("a member name is missing");
      key_.clear();
      is_escaped_ = false;
      state_ = State::kInKey;
      return {};
    case State::kColon:
      if (c != ':') return broken("a colon is missing");
      state_ = State::kValue;
      return {};
    case State::kElement:
      if (c == ']') {
        state_ = is_list_ ? State::kDone : State::kKey;
        return {};
      }
      return c == ',' ? Result<void>{} : Result<void>{broken("an event is missing")};
    case State::kDone:
      return broken("more text after the end");
    case State::kInKey:
    case State::kValue:
      break;
  }
  return broken("unexpected text");
}

Result<void> EventScanner::feed(std::string_view piece) {
  std::size_t at = 0;
  while (at < piece.size()) {
    if (in_value_) {
      at = scan_value(piece, at);
      TRY_VOID(too_long_or_deep());
      if (value_done_) TRY_VOID(end_of_value());
      continue;
    }
    const char c = piece[at];
    if (state_ == State::kInKey) {
      at = scan_key(piece, at);
      if (key_.size() > kKeyBytesMax) return broken("a member name of more than 4096 bytes");
      if (at < piece.size()) {
        state_ = State::kColon;
        ++at;
        ++offset_;
      }
      continue;
    }
    if (state_ == State::kValue && !is_space(c)) {
      if (key_ == "traceEvents" && c == '[') {
        state_ = State::kElement;
        has_list_ = true;
        ++at;
        ++offset_;
        continue;
      }
      begin_value(State::kKey);
      continue;
    }
    if (state_ == State::kElement && !is_space(c) && c != ',' && c != ']') {
      begin_value(State::kElement);
      continue;
    }
    if (state_ != State::kValue) TRY_VOID(step(c));
    ++at;
    ++offset_;
  }
  return {};
}

Result<void> EventScanner::finish() {
  if (state_ == State::kStart) return broken("the file is empty");
  if (in_value_) return broken("the file ends inside a value");
  if (state_ == State::kElement) {
    is_unclosed_ = true;
    return {};
  }
  if (state_ != State::kDone) return broken("the file ends inside the trace");
  return {};
}

}  // namespace kansoku::trace::import
