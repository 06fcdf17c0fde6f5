// SPDX-License-Identifier: Apache-2.0
#include "export/internal/utf8.h"

#include <cstdint>

namespace kansoku::exporter::internal {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the letter that `text` begins with, 0 if there is none.
std::size_t letter_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  std::uint32_t code = lead & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
    code = (code << 6U) | (at(i) & 0x3FU);
  }
  // Longer than needed, half of a UTF-16 pair, or beyond Unicode.
  const std::uint32_t least = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
  const bool is_wrong = code < least || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF;
  return is_wrong ? 0 : size;
}

}  // namespace

std::string clean_utf8(std::string_view untrusted, std::size_t bytes_max) {
  std::string out;
  while (!untrusted.empty()) {
    const std::size_t bytes = letter_bytes(untrusted);
    const std::string_view letter = bytes == 0 ? kReplacement : untrusted.substr(0, bytes);
    if (out.size() + letter.size() > bytes_max) break;
    out += letter;
    untrusted.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace kansoku::exporter::internal
