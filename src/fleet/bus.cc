// SPDX-License-Identifier: Apache-2.0
#include "fleet/bus.h"

#include <algorithm>

namespace kansoku::fleet {
namespace {

constexpr std::size_t kSubjectWordMax = 128;

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '$';
}

/// Takes the word before the first dot off `rest`; `rest` is empty behind the last.
std::string_view take_word(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view word = rest.substr(0, dot);
  rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
  return word;
}

bool is_well_formed(std::string_view text, bool may_be_pattern) {
  if (text.empty() || text.size() > Bus::kSubjectBytesMax || text.back() == '.') return false;
  while (!text.empty()) {
    const std::string_view word = take_word(text);
    if (may_be_pattern && (word == "*" || (word == ">" && text.empty()))) continue;
    if (word.empty() || !std::all_of(word.begin(), word.end(), is_word_char)) return false;
  }
  return true;
}

}  // namespace

bool is_subject(std::string_view subject) {
  return is_well_formed(subject, false);
}

bool is_subject_pattern(std::string_view pattern) {
  return is_well_formed(pattern, true);
}

bool subject_fits(std::string_view pattern, std::string_view subject) {
  while (!pattern.empty() && !subject.empty()) {
    const std::string_view wanted = take_word(pattern), word = take_word(subject);
    if (wanted == ">") return true;
    if (wanted != "*" && wanted != word) return false;
  }
  return pattern.empty() && subject.empty();
}

std::string subject_word(std::string_view text) {
  std::string word(text.substr(0, kSubjectWordMax));
  for (char& c : word)
    if (!is_word_char(c)) c = '_';
  return word.empty() ? "_" : word;
}

}  // namespace kansoku::fleet
