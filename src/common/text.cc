// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/parse.h"

namespace kansoku {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

bool is_continuation(unsigned byte) {
  return (byte & 0xc0U) == 0x80U;
}

/// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none (RFC 3629).
std::size_t character_bytes(std::string_view text) {
  const unsigned first = byte_at(text, 0), second = byte_at(text, 1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !is_continuation(second)) return 0;
  if (first < 0xe0) return 2;
  if (!is_continuation(byte_at(text, 2))) return 0;
  if (first < 0xf0) {
    const bool is_overlong = first == 0xe0 && second < 0xa0;
    const bool is_surrogate = first == 0xed && second > 0x9f;
    return is_overlong || is_surrogate ? 0 : 3;
  }
  if (!is_continuation(byte_at(text, 3))) return 0;
  const bool is_out_of_range = (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return is_out_of_range ? 0 : 4;
}

}  // namespace

std::string printable(std::string_view untrusted) {
  std::string out;
  out.reserve(untrusted.size());
  while (!untrusted.empty()) {
    const std::size_t bytes = character_bytes(untrusted);
    const unsigned first = byte_at(untrusted, 0);
    const bool is_control = (bytes == 1 && (first < 0x20 || first == 0x7f)) ||
                            (bytes == 2 && first == 0xc2 && byte_at(untrusted, 1) < 0xa0);
    if (bytes == 0 || is_control) {
      out += '?';
    } else {
      out += untrusted.substr(0, bytes);
    }
    untrusted.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::optional<std::string> percent_decoded(std::string_view untrusted) {
  std::string decoded;
  for (std::size_t i = 0; i < untrusted.size(); ++i) {
    if (untrusted[i] != '%') {
      decoded.push_back(untrusted[i]);
      continue;
    }
    const auto byte = parse_int<std::uint8_t>(untrusted.substr(i + 1, 2), 16);
    if (!byte || untrusted.size() - i < 3 || *byte == 0) return std::nullopt;
    decoded.push_back(static_cast<char>(*byte));
    i += 2;
  }
  return decoded;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

namespace {

// Letters to insert, remove, replace or swap with their neighbour.
std::size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        table[i][k] = i + k;
        continue;
      }
      table[i][k] = std::min({table[i - 1][k] + 1, table[i][k - 1] + 1,
                              table[i - 1][k - 1] + (a[i - 1] == b[k - 1] ? 0 : 1)});
      const bool is_swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
      if (is_swapped) table[i][k] = std::min(table[i][k], table[i - 2][k - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t kLettersMax = 64, kSlipsMax = 2;
  std::string nearest;
  std::size_t least = kSlipsMax + 1;
  if (word.size() > kLettersMax) return nearest;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLettersMax) continue;
    const std::size_t slips = slips_between(word, candidate);
    if (slips >= least || 2 * slips >= candidate.size()) continue;
    least = slips;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace kansoku
