// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/event_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace kansoku::trace::import {
namespace {

constexpr std::size_t kKeyBytesMax = 4096;
constexpr std::size_t kHeadBytesMax = 4096;  // of an event, in which its phase stands
constexpr int kHeadDepthMax = 8;
constexpr std::uint64_t kAgainBytesMax = std::uint64_t{1} << 28;

enum : std::uint8_t { kForeign, kPlain, kQuote, kBackslash, kOpen, kClose, kComma, kColon };

constexpr std::array<std::uint8_t, 256> kClassOf = [] {
  std::array<std::uint8_t, 256> table{};
  // Outside of strings: numbers, also those that are none, and words.
  for (const char c : std::string_view("0123456789+-.eE \n\r\ttrufalsnNIity"))
    table[static_cast<unsigned char>(c)] = kPlain;
  table['"'] = kQuote;
  table['\\'] = kBackslash;
  table['{'] = table['['] = kOpen;
  table['}'] = table[']'] = kClose;
  table[','] = kComma;
  table[':'] = kColon;
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
  value_done_ = value_is_scalar_ = in_string_ = is_escaped_ = skips_ = is_damaged_ = false;
  depth_ = 0;
  objects_ = 0;
  last_ = kPlain;
  after_value_ = next;
  value_offset_ = offset_;
  value_.clear();
}

/// The place where an event begins in `text`, from `from` on: a bracket behind a comma, with a
/// phase in what follows. npos without one; `from` is then where to go on once there is more text.
std::size_t begin_of_event(std::string_view text, std::size_t& from) {
  for (;;) {
    const std::size_t at = text.find('{', from);
    if (at == std::string_view::npos) {
      from = text.size();
      return at;
    }
    const std::string_view front =
        text.substr(at - std::min(at, kHeadBytesMax), std::min(at, kHeadBytesMax));
    const std::size_t before = front.find_last_not_of(" \t\r\n");
    bool is_open = before != std::string_view::npos && front[before] == ',';
    const std::string_view head = text.substr(at + 1, kHeadBytesMax);
    int depth = 0;
    for (std::size_t i = 0; is_open && i < head.size(); ++i) {
      if (head[i] == '{') ++depth;
      if (head[i] == '}') --depth;
      if (depth == 0 && head.substr(i).starts_with("\"ph\"")) return at;
      is_open = depth >= 0 && depth <= kHeadDepthMax;
    }
    if (is_open && head.size() < kHeadBytesMax) {
      from = at;
      return std::string_view::npos;
    }
    from = at + 1;
  }
}

/// The bracket that closes the list of events, known by the members that profilers write behind it;
/// npos without one.
std::size_t end_of_list(std::string_view text) {
  for (const std::string_view key :
       {"\"traceName\"", "\"displayTimeUnit\"", "\"baseTimeNanoseconds\"", "\"distributedInfo\""}) {
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) continue;
    std::string_view front = text.substr(0, at);
    for (const char wanted : {',', ']'}) {
      const std::size_t last = front.find_last_not_of(" \t\r\n");
      if (last == std::string_view::npos || front[last] != wanted) {
        front = {};
        break;
      }
      front = front.substr(0, wanted == ']' ? last + 1 : last);
    }
    if (!front.empty()) return front.size() - 1;
  }
  return std::string_view::npos;
}

/// True if a bracket may open here: a value stands behind a colon in an object, at the begin or
/// behind a comma in a list. Elsewhere one that closes is missing.
bool EventScanner::may_open() const {
  const bool is_in_object = (objects_ & 1U) != 0;
  return is_in_object ? last_ == kColon : last_ == kOpen || last_ == kComma;
}

/// Moves over the value that has begun, up to its end or the end of the piece. The byte after a
/// scalar is not consumed.
std::size_t EventScanner::scan_value(std::string_view piece, std::size_t at) {
  const std::size_t begin = at;
  const bool is_event = after_value_ == State::kElement;
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
      } else if (is_event && piece[at] == '\n') {  // no string has one: a quote is missing
        is_damaged_ = true;
        break;
      }
      continue;
    }
    if (kind == kForeign && is_event) {
      is_damaged_ = true;
      break;
    }
    if (kind == kOpen && is_event && depth_ > 0 && !may_open()) {
      is_damaged_ = true;
      break;
    }
    if (kind != kPlain) last_ = kind;
    if (kind == kPlain || kind == kForeign || kind == kBackslash || kind == kColon) {
      if (depth_ == 0 && is_space(piece[at])) {
        value_done_ = value_is_scalar_ = true;
        break;
      }
      continue;
    }
    if (kind == kQuote) {
      in_string_ = true;
    } else if (kind == kOpen) {
      objects_ = objects_ << 1 | (piece[at] == '{' ? 1U : 0U);
      if (++depth_ > limits_.depth_max) {
        ++at;
        break;
      }
    } else if (kind == kClose) {
      if (depth_ == 0) {
        value_done_ = value_is_scalar_ = true;
        break;
      }
      objects_ >>= 1;
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
  if (after_value_ == State::kElement) {
    is_damaged_ = is_damaged_ || depth_ > limits_.depth_max;
    if (value_.size() <= limits_.event_bytes_max) return {};
    return Error{Code::kLimit,
                 fmt::format("read JSON trace at offset {}: an event of more than {} bytes",
                             value_offset_, limits_.event_bytes_max)};
  }
  if (depth_ > limits_.depth_max) {
    return Error{Code::kLimit, fmt::format("read JSON trace at offset {}: nested deeper than {}",
                                           offset_, limits_.depth_max)};
  }
  if (value_.size() > limits_.member_bytes_max) {
    skips_ = true;
    value_.clear();
  }
  return {};
}

void EventScanner::begin_seek() {
  sink_.on_bad_event(value_offset_);
  in_value_ = false;
  state_ = State::kSeek;
  sought_ = 1;
  seek();
}

/// Goes on at the event that begins in value_, if one does.
void EventScanner::seek() {
  const std::size_t end = end_of_list(value_);
  const std::size_t at = begin_of_event(value_, sought_);
  if (end < at && !is_list_) {
    again_ = value_.substr(end);
    again_bytes_ += again_.size();
    offset_ = value_offset_ + end;
    state_ = State::kElement;  // the bracket that closes it is next
    return;
  }
  if (at != std::string_view::npos) {
    again_ = value_.substr(at);
    again_bytes_ += again_.size();
    offset_ = value_offset_ + at;
    state_ = State::kElement;
    return;
  }
  // Text before the next bracket must stay: the comma.
  const std::size_t drop = sought_ > kHeadBytesMax ? sought_ - kHeadBytesMax : 0;
  value_.erase(0, drop);
  value_offset_ += drop;
  sought_ -= drop;
}

Result<void> EventScanner::end_of_value() {
  in_value_ = false;
  if (is_damaged_) {
    begin_seek();
    return {};
  }
  if (value_.empty() && !skips_) return broken("a value is missing");
  const std::size_t size = value_.size();
  value_.append(kPadding, ' ');
  const std::string_view text(value_.data(), size);
  state_ = after_value_;
  if (after_value_ == State::kElement) {
    TRY(const bool is_read, sink_.on_event(text, value_offset_));
    if (is_read) return {};
    value_.resize(size);
    std::size_t from = 1;
    if (begin_of_event(value_, from) != std::string_view::npos) {
      begin_seek();  // its end was taken for that of a later event
    } else {
      sink_.on_bad_event(value_offset_);
    }
    return {};
  }
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
      has_more_text_ = true;
      return {};
    case State::kInKey:
    case State::kValue:
    case State::kSeek:
      break;
  }
  return broken("unexpected text");
}

Result<void> EventScanner::feed(std::string_view piece) {
  std::size_t at = 0;
  for (;;) {
    while (!again_.empty()) {
      if (again_bytes_ > kAgainBytesMax) return broken("too much of the file is damaged");
      const std::string text = std::exchange(again_, {});
      TRY(const std::size_t done, scan(text, 0));
      again_.append(text, done);
      again_bytes_ += text.size() - done;  // it is copied once more
    }
    if (at == piece.size()) return {};
    TRY(at, scan(piece, at));
  }
}

/// Moves over `piece`, up to its end or until something is to be scanned again.
Result<std::size_t> EventScanner::scan(std::string_view piece, std::size_t at) {
  while (at < piece.size() && again_.empty()) {
    if (state_ == State::kSeek) {
      const std::string_view more = piece.substr(at, kHeadBytesMax);
      value_.append(more);
      offset_ += more.size();
      at += more.size();
      seek();
      continue;
    }
    if (in_value_) {
      at = scan_value(piece, at);
      TRY_VOID(too_long_or_deep());
      if (value_done_ || is_damaged_) TRY_VOID(end_of_value());
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
      if (kClassOf[static_cast<unsigned char>(c)] == kClose) {  // of nothing
        value_.push_back(c);
        ++at;
        ++offset_;
        is_damaged_ = true;
        TRY_VOID(end_of_value());
      }
      continue;
    }
    if (state_ != State::kValue) TRY_VOID(step(c));
    ++at;
    ++offset_;
  }
  return at;
}

Result<void> EventScanner::finish() {
  if (state_ == State::kStart) return broken("the file is empty");
  if (!has_list_ && state_ != State::kDone) {
    return broken(in_value_ ? "the file ends inside a value" : "the file ends inside the trace");
  }
  is_unclosed_ = state_ != State::kDone;
  return {};
}

}  // namespace kansoku::trace::import
