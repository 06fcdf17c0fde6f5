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
/// leaves everything inside a value to the JSON parser. Single-threaded.
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
    /// uncompressed file.
    [[nodiscard]] virtual Result<void> on_event(std::string_view text, std::uint64_t offset) = 0;
    /// A member of the outer object other than traceEvents, with its value as it stands.
    [[nodiscard]] virtual Result<void> on_member(std::string_view key, std::string_view text,
                                                 std::uint64_t offset) = 0;
  };
  static constexpr std::size_t kPadding = 64;

  EventScanner(Sink& sink, const Limits& limits) : sink_(sink), limits_(limits) {}

  [[nodiscard]] Result<void> feed(std::string_view piece);
  /// At the end of the file. A list of events that was never closed is fine if `[` opened it: the
  /// Chrome format allows it. Anything else unfinished is kCorrupt.
  [[nodiscard]] Result<void> finish();
  /// True if the events were not closed: the writer was cut off after a whole event.
  [[nodiscard]] bool is_unclosed() const { return is_unclosed_; }
  /// True if there was a list of events, however short.
  [[nodiscard]] bool has_list() const { return has_list_; }

 private:
  enum class State : std::uint8_t { kStart, kKey, kInKey, kColon, kValue, kElement, kDone };

  std::size_t scan_value(std::string_view piece, std::size_t at);
  std::size_t scan_key(std::string_view piece, std::size_t at);
  [[nodiscard]] Result<void> step(char c);
  [[nodiscard]] Result<void> end_of_value();
  [[nodiscard]] Result<void> too_long_or_deep();
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
  bool is_unclosed_{false}, has_list_{false};
  std::uint32_t depth_{0};
  std::uint64_t offset_{0};  // of the next byte
  std::uint64_t value_offset_{0};
  std::string key_;
  std::string value_;
};

}  // namespace kansoku::trace::import
