// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/py_string.h"

#include <algorithm>
#include <cstring>

namespace kansoku::capture::python {
namespace {

constexpr std::uint64_t kLengthMax = std::uint64_t{1} << 20;

template <class T>
T load(ByteSpan bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void append_utf8(std::string& text, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const bool is_character = c < 0xd800 || (c >= 0xe000 && c < 0x110000);
  if (!is_character) {
    put('?');  // or half of a surrogate pair, e.g. a byte of a file name that is not UTF-8
  } else if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 63));
    put(0x80 | (c & 63));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 63));
    put(0x80 | ((c >> 6) & 63));
    put(0x80 | (c & 63));
  }
}

}  // namespace

std::size_t string_header_bytes(const Layout& layout) {
  return static_cast<std::size_t>(std::max(layout.string_length + 8, layout.string_state + 4));
}

std::optional<StringShape> string_shape(const Layout& layout, ByteSpan untrusted) {
  if (untrusted.size() < string_header_bytes(layout)) return std::nullopt;
  const auto length =
      load<std::uint64_t>(untrusted, static_cast<std::size_t>(layout.string_length));
  auto state = load<std::uint32_t>(untrusted, static_cast<std::size_t>(layout.string_state));
  // Two layouts of the state word: `interned` in bits 0-1, or, in some 3.14 builds, in bits 0-15;
  // kind (3 bits), compact and ascii follow. Up to there the word is padding in the former.
  if (layout.minor >= 14 && (state >> 16) != 0) state >>= 14;
  const std::uint32_t unit_bytes = (state >> 2) & 7;
  const bool is_compact = (state & 32) != 0;
  const bool is_ascii = (state & 64) != 0;
  if (!is_compact || length > kLengthMax) return std::nullopt;
  if (unit_bytes != 1 && unit_bytes != 2 && unit_bytes != 4) return std::nullopt;
  if (is_ascii && unit_bytes != 1) return std::nullopt;
  StringShape shape;
  shape.unit_bytes = unit_bytes;
  shape.data_offset = is_ascii ? layout.string_ascii_data : layout.string_compact_data;
  shape.length = length;
  return shape;
}

std::string to_utf8(ByteSpan untrusted, std::uint32_t unit_bytes) {
  std::string text;
  text.reserve(untrusted.size());
  for (std::size_t i = 0; i + unit_bytes <= untrusted.size(); i += unit_bytes) {
    switch (unit_bytes) {
      case 1:
        append_utf8(text, load<std::uint8_t>(untrusted, i));
        break;
      case 2:
        append_utf8(text, load<std::uint16_t>(untrusted, i));
        break;
      case 4:
        append_utf8(text, load<std::uint32_t>(untrusted, i));
        break;
      default:
        return text;
    }
  }
  return text;
}

}  // namespace kansoku::capture::python
