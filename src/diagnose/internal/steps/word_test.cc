// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/word.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

bool is_rotation(std::vector<std::uint32_t> a, const std::vector<std::uint32_t>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a == b) return true;
    std::rotate(a.begin(), a.begin() + 1, a.end());
  }
  return false;
}

// A word whose last token is unique, as an optimizer step is.
std::vector<std::uint32_t> random_word(Rng& rng, std::size_t period) {
  std::vector<std::uint32_t> word(period);
  for (auto& token : word)
    token = 1 + static_cast<std::uint32_t>(rng.below(3));
  word.back() = 9;
  return word;
}

TEST(FindWord, EveryPeriodUpToTheBoundWithGaps) {
  for (std::size_t period = 1; period <= 64; ++period) {
    Rng rng(period);
    const auto word = random_word(rng, period);
    std::vector<std::uint32_t> tokens{5, 6, 7};  // warm-up
    for (int run = 0; run < 6; ++run) {
      for (std::uint64_t k = 0; k < 5 + rng.below(10); ++k)
        tokens.insert(tokens.end(), word.begin(), word.end());
      for (std::uint64_t k = 0; k <= rng.below(4); ++k)
        tokens.push_back(20 + static_cast<std::uint32_t>(rng.below(100)));  // an evaluation
    }
    WordOptions options;
    options.must_have = {9};
    const auto found = find_word(tokens, options);
    ASSERT_TRUE(found.has_value()) << "period " << period;
    EXPECT_TRUE(is_rotation(found->tokens, word)) << "period " << period;
    EXPECT_GE(found->repeat_count, 25U);
  }
}

TEST(FindWord, BeyondTheBoundNothing) {
  Rng rng(1);
  const auto word = random_word(rng, 65);
  std::vector<std::uint32_t> tokens;
  for (int k = 0; k < 12; ++k)
    tokens.insert(tokens.end(), word.begin(), word.end());
  WordOptions options;
  options.must_have = {9};
  EXPECT_FALSE(find_word(tokens, options).has_value());
  options.period_max = 65;
  EXPECT_TRUE(find_word(tokens, options).has_value());
}

TEST(FindWord, AccumulationIsNotMistakenForSteps) {
  std::vector<std::uint32_t> tokens;  // sixteen times input, backward, then the optimizer
  for (int step = 0; step < 12; ++step) {
    for (int micro = 0; micro < 16; ++micro) {
      tokens.push_back(1);
      tokens.push_back(2);
    }
    tokens.push_back(9);
  }
  WordOptions options;
  options.must_have = {9};
  const auto found = find_word(tokens, options);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tokens.size(), 33U);
}

TEST(FindWord, LoggingEveryFifthStepDoesNotMakeLongSteps) {
  std::vector<std::uint32_t> tokens;
  for (int step = 0; step < 60; ++step) {
    tokens.insert(tokens.end(), {1, 2, 3, 9});
    if (step % 5 == 4) tokens.push_back(4);
  }
  WordOptions options;
  options.must_have = {9};
  const auto found = find_word(tokens, options);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tokens.size(), 4U);
  const std::vector<std::uint32_t> word{1, 2, 3, 9};
  EXPECT_EQ(word_ends(tokens, word).size(), 60U);
}

TEST(FindWord, TooFewRepeatsAndEmptyInput) {
  const std::vector<std::uint32_t> five{1, 9, 1, 9, 1, 9, 1, 9, 1, 9};
  EXPECT_FALSE(find_word(five, {}).has_value());
  EXPECT_FALSE(find_word({}, {}).has_value());
  EXPECT_TRUE(word_ends({}, {}).empty());
}

TEST(WordEnds, AnEndTokenUsedTwiceNeedsTheWholeWord) {
  const std::vector<std::uint32_t> word{1, 9, 2, 9};
  const std::vector<std::uint32_t> tokens{2, 9, 1, 9, 2, 9, 5, 1, 9, 2, 9};
  EXPECT_EQ(word_ends(tokens, word), (std::vector<std::size_t>{5, 10}));
}

}  // namespace
}  // namespace kansoku::diagnose
