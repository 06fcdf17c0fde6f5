// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::trace::import {

/// Nanoseconds of a decimal number of microseconds, cut after the third decimal; nothing if the
/// text is no number or beyond 2^61 ns. Exact where a double would not be: 16 digits and more are
/// common.
[[nodiscard]] inline std::optional<std::int64_t> nanos_of_micros(std::string_view text) {
  constexpr std::int64_t kMax = std::int64_t{1} << 61;
  const char* at = text.data();
  const char* const end = at + text.size();
  std::int64_t whole = 0;
  const bool is_negative = at != end && *at == '-';
  const auto [after, error] = std::from_chars(at, end, whole);
  if (error == std::errc{} && (after == end || *after == '.') && whole <= kMax / 1000 &&
      whole >= -kMax / 1000) {
    std::int64_t part = 0;
    std::int64_t unit = 100;
    at = after;
    if (at != end) ++at;
    bool is_plain = true;
    for (; at != end; ++at) {
      if (*at < '0' || *at > '9') {
        is_plain = false;
        break;
      }
      part += unit * (*at - '0');
      unit /= 10;
    }
    if (is_plain) {
      const std::int64_t nanos = whole * 1000 + (is_negative ? -part : part);
      return nanos >= -kMax && nanos <= kMax ? std::optional(nanos) : std::nullopt;
    }
  }
  double number = 0;  // an exponent, or nonsense
  const auto [stop, failed] = std::from_chars(text.data(), end, number);
  if (failed != std::errc{} || stop != end) return std::nullopt;
  const double nanos = number * 1000;
  if (!(nanos >= -static_cast<double>(kMax) && nanos <= static_cast<double>(kMax)))
    return std::nullopt;
  return static_cast<std::int64_t>(nanos);
}

}  // namespace kansoku::trace::import
