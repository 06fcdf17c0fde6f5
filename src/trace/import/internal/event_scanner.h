// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::trace::import {

/// Cuts a Chrome trace, `[event, ...]` or `{"traceEvents": [event, ...], key: value, ...}`, into
/// its events and its other members, fed piece by piece. It matches brackets outside of strings and
/// leaves everything inside a value to the JSON parser. Behind a damaged event it goes on at the
/// next text that begins as an event does. Single-threaded.
class EventScanner {
 public:
  struct Limits {
    std::size_t event_bytes_max{std::size_t{16} << 20};
    std::size_t member_bytes_max{std::size_t{16} << 20};  // a longer member is skipped
    std::uint32_t depth_max{64};
  };
  class Sink {
   public:
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    virtual ~Sink() = default;
    /// One event; the kPadding bytes after `text` are readable. `offset` is where it begins in the
    /// uncompressed file. False: the text is no JSON.
    [[nodiscard]] virtual Result<bool> on_event(std::string_view text, std::uint64_t offset) = 0;
    /// Text that begins at `offset` stands where an event should, and was left out.
    virtual void on_bad_event(std::uint64_t offset) = 0;
    /// A member of the outer object other than traceEvents, with its value as it stands.
    [[nodiscard]] virtual Result<void> on_member(std::string_view key, std::string_view text,
                                                 std::uint64_t offset) = 0;
  };
  static constexpr std::size_t kPadding = 64;

  EventScanner(Sink& sink, const Limits& limits) : sink_(sink), limits_(limits) {}

  [[nodiscard]] Result<void> feed(std::string_view piece);
  /// At the end of the file. kCorrupt if it ended before its events began.
  [[nodiscard]] Result<void> finish();
  /// True if the file ended before its trace did: the writer was cut off.
  [[nodiscard]] bool is_unclosed() const { return is_unclosed_; }
  /// True if there was more text behind the trace; it was left out.
  [[nodiscard]] bool has_more_text() const { return has_more_text_; }
  /// True if there was a list of events, however short.
  [[nodiscard]] bool has_list() const { return has_list_; }

 private:
  enum class State : std::uint8_t {
    kStart,
    kKey,
    kInKey,
    kColon,
    kValue,
    kElement,
    kSeek,  // behind a damaged event: value_ holds the text from it on, or the end of that
    kDone
  };

  [[nodiscard]] Result<std::size_t> scan(std::string_view piece, std::size_t at);
  std::size_t scan_value(std::string_view piece, std::size_t at);
  std::size_t scan_key(std::string_view piece, std::size_t at);
  [[nodiscard]] Result<void> step(char c);
  [[nodiscard]] Result<void> end_of_value();
  [[nodiscard]] Result<void> too_long_or_deep();
  [[nodiscard]] bool may_open() const;
  void begin_seek();
  void seek();
  [[nodiscard]] Error broken(std::string_view why) const;
  void begin_value(State next);

  Sink& sink_;
  Limits limits_;
  State state_{State::kStart};
  State after_value_{
      State::kElement};  // state before the finished value: an element or a member's value
  bool is_list_{false};  // the file is a bare list
  bool in_value_{false}, in_string_{false}, is_escaped_{false};
  bool value_done_{false}, value_is_scalar_{false}, skips_{false};
  bool is_damaged_{false};  // the event that has begun
  bool is_unclosed_{false}, has_list_{false}, has_more_text_{false};
  std::uint32_t depth_{0};
  std::uint64_t objects_{0};  // of an event's open brackets, the innermost first: is it a brace?
  std::uint8_t last_{0};      // class of the last byte outside of strings, numbers and words
  std::uint64_t offset_{0};   // of the next byte
  std::uint64_t value_offset_{0};
  std::string key_;
  std::string value_;
  std::size_t sought_{0};  // bytes of value_ in which no event begins
  std::string again_;      // text to scan once more, before what follows
  std::uint64_t again_bytes_{0};
};

}  // namespace kansoku::trace::import
