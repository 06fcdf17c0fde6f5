// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/time.h"

namespace kansoku {

/// The whole of `untrusted` as a number in `base` (no sign for unsigned types, no blanks), or
/// nothing.
template <class Int>
[[nodiscard]] std::optional<Int> parse_int(std::string_view untrusted, int base = 10) {
  Int value{};
  const char* end = untrusted.data() + untrusted.size();
  const auto [stop, error] = std::from_chars(untrusted.data(), end, value, base);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// The whole of `untrusted` as a finite decimal number, or nothing.
[[nodiscard]] std::optional<double> parse_double(std::string_view untrusted);

/// A duration such as "10s", "500ms", "2m", "1h", "250us"; a bare number is seconds. Nothing if
/// malformed or negative.
[[nodiscard]] std::optional<Nanos> parse_duration(std::string_view untrusted);
/// A size such as "64M", "2GiB", "512k" or a bare number of bytes; multiples are 1024. Nothing if
/// malformed.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view untrusted);

}  // namespace kansoku
