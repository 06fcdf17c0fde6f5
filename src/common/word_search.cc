// SPDX-License-Identifier: Apache-2.0
#include "common/word_search.h"

#include <deque>

namespace kansoku {

WordSearch::WordSearch(const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) {
    for (const char c : word) {
      std::uint16_t& letter = letters_[static_cast<unsigned char>(c)];
      if (letter == 0) letter = static_cast<std::uint16_t>(letter_count_++);
    }
  }
  const auto add_state = [&] {
    next_.resize(next_.size() + letter_count_, 0);
    ends_.push_back(kNone);
    return static_cast<std::uint32_t>(ends_.size() - 1);
  };
  add_state();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) continue;
    std::uint32_t state = 0;
    for (const char c : words[i]) {
      const std::size_t at = state * letter_count_ + letters_[static_cast<unsigned char>(c)];
      if (next_[at] == 0) {
        const std::uint32_t fresh = add_state();
        next_[at] = fresh;
      }
      state = next_[at];
    }
    chain_.push_back({i, ends_[state]});
    ends_[state] = static_cast<std::uint32_t>(chain_.size() - 1);
  }
  // Breadth first: a state takes what it lacks from the state of its longest proper suffix.
  std::vector<std::uint32_t> suffix(ends_.size(), 0);
  std::deque<std::uint32_t> open{0};
  while (!open.empty()) {
    const std::uint32_t state = open.front();
    open.pop_front();
    for (std::uint32_t letter = 0; letter < letter_count_; ++letter) {
      std::uint32_t& next = next_[state * letter_count_ + letter];
      const std::uint32_t by_suffix =
          state == 0 ? 0 : next_[suffix[state] * letter_count_ + letter];
      if (next == 0) {
        next = by_suffix;
        continue;
      }
      suffix[next] = by_suffix;
      open.push_back(next);
      if (ends_[by_suffix] == kNone) continue;
      if (ends_[next] == kNone) {
        ends_[next] = ends_[by_suffix];
        continue;
      }
      std::uint32_t last = ends_[next];
      while (chain_[last].next != kNone)
        last = chain_[last].next;
      chain_[last].next = ends_[by_suffix];
    }
  }
}

}  // namespace kansoku
