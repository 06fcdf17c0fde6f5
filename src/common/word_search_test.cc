// SPDX-License-Identifier: Apache-2.0
#include "common/word_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/rng.h"

namespace kansoku {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::set<std::size_t> found(const std::vector<std::string_view>& words, std::string_view text) {
  std::set<std::size_t> out;
  WordSearch(words).search(text, [&](std::size_t word) { out.insert(word); });
  return out;
}

TEST(WordSearch, FindsWordsWithinAndBehindEachOther) {
  EXPECT_THAT(found({"he", "she", "his", "hers"}, "ushers"), ElementsAre(0, 1, 3));
  EXPECT_THAT(found({"he", "she", "his", "hers"}, "this"), ElementsAre(2));
  EXPECT_THAT(found({"he", "she", "his", "hers"}, "h-e-r-s"), IsEmpty());
}

TEST(WordSearch, OneWordTwiceIsFoundTwiceAndAnEmptyOneNever) {
  EXPECT_THAT(found({"a", "", "a"}, "banana"), ElementsAre(0, 2));
  EXPECT_THAT(found({"a", ""}, ""), IsEmpty());
  EXPECT_THAT(found({}, "banana"), IsEmpty());
}

TEST(WordSearch, TakesEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  EXPECT_THAT(found({all, "\xff", std::string_view("\0", 1)}, "x" + all), ElementsAre(0, 1, 2));
}

TEST(WordSearch, FindsWhatASearchForEachWordDoes) {
  RandomStream random(1, "test.words");
  for (int round = 0; round < 300; ++round) {
    const auto drawn = [&](double most) {
      std::string out(static_cast<std::size_t>(1 + most * random.uniform()), 'a');
      for (char& c : out)
        c = static_cast<char>('a' + static_cast<int>(3 * random.uniform()));
      return out;
    };
    std::vector<std::string> words;
    for (int i = 0; i < 8; ++i)
      words.push_back(drawn(4));
    const std::string text = drawn(30);
    std::set<std::size_t> expected;
    for (std::size_t i = 0; i < words.size(); ++i)
      if (text.find(words[i]) != std::string::npos) expected.insert(i);
    EXPECT_EQ(found({words.begin(), words.end()}, text), expected) << text;
  }
}

}  // namespace
}  // namespace kansoku
