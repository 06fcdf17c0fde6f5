// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/names.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "sys/elf.h"

namespace kansoku::diff {
namespace {

constexpr std::size_t kNameBytesMax = 16384;  // a longer name is compared by its beginning

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

int depth_step(char c) {
  if (c == '<' || c == '(' || c == '[' || c == '{') return 1;
  if (c == '>' || c == ')' || c == ']' || c == '}') return -1;
  return 0;
}

// Blanks stay only where they part two words ("unsigned long").
std::string without_blanks(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ' ' && text[i] != '\t') {
      out += text[i];
      continue;
    }
    std::size_t next = i;
    while (next < text.size() && (text[next] == ' ' || text[next] == '\t'))
      ++next;
    if (next < text.size() && !out.empty() && is_word(out.back()) && is_word(text[next]))
      out += ' ';
    i = next - 1;
  }
  return out;
}

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

// Begin of the parameters that the text ends with; its length if it ends with none.
std::size_t parameters_at(std::string_view text) {
  if (text.empty() || text.back() != ')') return text.size();
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return text.size();
}

// Begin of the name, after a return type; nothing found: 0. The blank lies outside of brackets.
std::size_t after_return_type(std::string_view text) {
  int depth = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += depth_step(text[i]);
    if (text[i] == ' ' && depth == 0) at = i + 1;
  }
  return depth == 0 ? at : 0;
}

}  // namespace

std::string canonical_kernel(std::string_view untrusted) {
  const std::string raw(untrusted.substr(0, kNameBytesMax));
  std::string text = sys::demangle(raw);
  if (const auto clone = text.find(" [clone"); clone != std::string::npos) text.resize(clone);
  erase_all(text, "(anonymous namespace)::");
  erase_all(text, "<unnamed>::");
  for (const std::string_view tail : {" const", " noexcept"}) {
    if (text.ends_with(tail)) text.resize(text.size() - tail.size());
  }
  const std::size_t parameters = parameters_at(text);
  if (parameters > 0) text.resize(parameters);
  while (text.ends_with(' '))
    text.pop_back();
  const std::string name = without_blanks(text.substr(after_return_type(text)));
  return name.empty() ? raw : name;
}

std::string family_of(std::string_view canonical) {
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < canonical.size(); ++i) {
    const char c = canonical[i];
    if (c == '>' && depth > 0) --depth;
    if (depth > 0 || c == '>') {
      if (c == '<') ++depth;
      continue;
    }
    if (c == '<') {
      ++depth;
    } else if (!is_digit(c)) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

std::string functors_of(std::string_view canonical) {
  constexpr std::array<std::string_view, 18> kScalars{
      "float",     "double",      "half",     "Half", "__half", "BFloat",
      "nv_bfloat", "__nv_bfloat", "bfloat_t", "int",  "long",   "unsigned",
      "signed",    "char",        "short",    "bool", "int_t",  "uint_t"};
  std::string out, word;
  int depth = 0;
  const auto close = [&] {
    const bool is_scalar = std::find(kScalars.begin(), kScalars.end(), word) != kScalars.end();
    if (depth > 0 && !word.empty() && !is_scalar) out += word + " ";
    word.clear();
  };
  for (const char c : canonical) {
    if (is_digit(c)) continue;
    if (is_word(c)) {
      word += c;
      continue;
    }
    close();
    if (c == '<') ++depth;
    if (c == '>' && depth > 0) --depth;
  }
  close();
  return out;
}

std::string unnumbered(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (!is_digit(c)) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

std::string shown_name(std::string_view canonical, std::size_t columns_max) {
  std::string out;
  std::size_t word = 0;  // begin of the present word in `out`
  for (std::size_t i = 0; i < canonical.size(); ++i) {
    const char c = canonical[i];
    if (c == ':' && canonical.substr(i).starts_with("::")) {
      out.resize(word);
      ++i;
      continue;
    }
    out += c;
    if (c == ',' && i + 1 < canonical.size() && canonical[i + 1] != ' ') out += ' ';
    if (!is_word(c)) word = out.size();
  }
  if (out.empty()) out = std::string(canonical);
  if (out.size() > columns_max && columns_max > 3) {
    std::size_t end = columns_max - 3;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xc0U) == 0x80)
      --end;  // not inside a character
    out = out.substr(0, end) + "...";
  }
  return out;
}

}  // namespace kansoku::diff
