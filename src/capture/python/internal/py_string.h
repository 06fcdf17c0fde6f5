// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "capture/python/offsets.h"
#include "common/bytes.h"

namespace kansoku::capture::python {

/// How a Python string lies in memory, told by its header.
struct StringShape {
  std::uint32_t unit_bytes{1};  // 1, 2 or 4 a character
  std::int32_t data_offset{0};  // of the first character, from the start of the object
  std::uint64_t length{0};      // in characters
};

/// `untrusted`: at least string_header_bytes() of a str object. Nothing unless it is a compact
/// string of a plausible length (2^20 characters).
[[nodiscard]] std::optional<StringShape> string_shape(const Layout& layout, ByteSpan untrusted);
[[nodiscard]] std::size_t string_header_bytes(const Layout& layout);

/// Characters of 1 (latin-1), 2 or 4 bytes as UTF-8; a unit that is no character becomes "?".
[[nodiscard]] std::string to_utf8(ByteSpan untrusted, std::uint32_t unit_bytes);

}  // namespace kansoku::capture::python
