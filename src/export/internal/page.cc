// SPDX-License-Identifier: Apache-2.0
#include "export/internal/page.h"

#include <cstddef>

namespace kansoku::exporter {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

std::string escape(std::string_view untrusted) {
  std::string out;
  for (const char c : untrusted) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters have no look, and NUL makes a text file binary to other tools.
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          out += "\uFFFD";
        else
          out += c;
    }
  }
  return out;
}

std::string figure(std::string_view value, std::string_view name) {
  return "<div><b>" + escape(value) + "</b><span>" + escape(name) + "</span></div>";
}

std::string fill(std::string_view page,
                 const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  while (!page.empty()) {
    const auto open = page.find('{');
    out += page.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = page.find('}', open);
    const std::string_view name = page.substr(open + 1, close - open - 1);
    for (const auto& [key, value] : values) {
      if (key == name) out += value;
    }
    page = page.substr(close + 1);
  }
  return out;
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (const char c : text) {
    if (is_continuation(c)) continue;
    columns += static_cast<unsigned char>(c) < 0x80 ? 1 : 2;
  }
  return columns;
}

std::string shortened(const std::string& text, std::size_t columns_max) {
  if (columns_of(text) <= columns_max) return text;
  std::size_t columns = 1;  // the ellipsis
  std::size_t end = 0;
  while (end < text.size()) {
    std::size_t next = end + 1;
    while (next < text.size() && is_continuation(text[next]))
      ++next;
    columns += next - end == 1 ? 1 : 2;
    if (columns > columns_max) break;
    end = next;
  }
  return text.substr(0, end) + "\u2026";
}

}  // namespace kansoku::exporter
