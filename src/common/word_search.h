// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kansoku {

/// Tells which of some words a text holds, in one pass over the text however many words there are:
/// the automaton of Aho and Corasick ("Efficient string matching", 1975), with all transitions
/// stored. Immutable; any thread. Takes 4 bytes for each character of all words times the number of
/// different characters among them.
class WordSearch {
 public:
  explicit WordSearch(const std::vector<std::string_view>& words);

  /// Calls `on_word(index)` at each place at which a word ends. The empty word is never found.
  template <class OnWord>
  void search(std::string_view text, OnWord on_word) const {
    std::uint32_t state = 0;
    for (const char c : text) {
      const std::uint16_t letter = letters_[static_cast<unsigned char>(c)];
      state = next_[state * letter_count_ + letter];
      for (std::uint32_t at = ends_[state]; at != kNone; at = chain_[at].next)
        on_word(chain_[at].word);
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct End {
    std::size_t word{0};
    std::uint32_t next{kNone};  // of the words that end at the same place
  };
  std::array<std::uint16_t, 256> letters_{};  // 0: of no word
  std::uint32_t letter_count_{1};
  std::vector<std::uint32_t> next_;  // by state and letter
  std::vector<std::uint32_t> ends_;  // by state, into chain_
  std::vector<End> chain_;
};

}  // namespace kansoku
