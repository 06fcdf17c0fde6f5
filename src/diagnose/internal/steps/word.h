// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "diagnose/thresholds.h"

namespace kansoku::diagnose {

struct WordOptions {
  std::size_t period_max{64};
  std::size_t repeat_count_min{kRepeatCountFloor};  // repeats in all runs together
  // A shorter period wins over a longer one if it covers this share of the longer one's cover.
  double slack{kNearlyAllShare};
  std::vector<std::uint32_t> must_have{};  // the word contains one of these, if any are given
};

struct Word {
  std::vector<std::uint32_t> tokens;
  std::size_t repeat_count{0};
};

/// The shortest word whose repetitions cover (nearly) as much of `tokens` as any other's. A run
/// counts from three repetitions on; foreign tokens between runs are gaps. Nothing if no word
/// repeats often enough. O(period_max * n).
[[nodiscard]] std::optional<Word> find_word(std::span<const std::uint32_t> tokens,
                                            const WordOptions& options);

/// Indices of the last token of every occurrence of `word` in `tokens`. If that token is unique in
/// the word, each of its occurrences counts, even after foreign tokens.
[[nodiscard]] std::vector<std::size_t> word_ends(std::span<const std::uint32_t> tokens,
                                                 std::span<const std::uint32_t> word);

}  // namespace kansoku::diagnose
