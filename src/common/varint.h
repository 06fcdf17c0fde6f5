// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/bytes.h"

namespace kansoku {

/// Appends `value` as 1 to 10 bytes of seven bits each, low bits first, the top bit of a byte
/// saying that more follow (LEB128, as in Protocol Buffers).
inline void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

/// Accepted form of a number; kAny allows padding with zeros, as linkers do (ULEB128 of DWARF).
enum class VarintForm : std::uint8_t { kShortest, kAny };

/// Takes a number that append_varint wrote off the front of `untrusted`. Nothing, and `untrusted`
/// anywhere, if the bytes end early, pass 64 bits, or are longer than they need to be and `form`
/// wants the shortest: every number has one form then.
[[nodiscard]] inline std::optional<std::uint64_t> take_varint(
    ByteSpan& untrusted, VarintForm form = VarintForm::kShortest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !untrusted.empty(); shift += 7) {
    const auto byte = static_cast<std::uint64_t>(untrusted.front());
    untrusted = untrusted.subspan(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      const bool is_padded = byte == 0 && shift > 0;
      return is_padded && form == VarintForm::kShortest ? std::nullopt : std::optional(value);
    }
  }
  return std::nullopt;
}

/// Signed numbers near zero as small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
[[nodiscard]] constexpr std::uint64_t to_zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
[[nodiscard]] constexpr std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace kansoku
