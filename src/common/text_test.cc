// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"

#include <gtest/gtest.h>

namespace kansoku {
namespace {

TEST(Printable, KeepsWhatCanBeReadAndNothingThatATerminalObeys) {
  EXPECT_EQ(printable("rank 3, 10.0.0.1:29500"), "rank 3, 10.0.0.1:29500");
  EXPECT_EQ(printable("\x1b]0;x\a\x1b[2J"), "?]0;x??[2J");
  EXPECT_EQ(printable("a\nb\x7f"), "a?b?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "?31m\xc2\xa0");  // C1's CSI; a wide blank is none
}

TEST(Printable, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xd0\xbe\xd0"), "\xd0\xbe?");  // cut inside of a letter
  EXPECT_EQ(printable("\xe2\x82\xac\xf0\x9f\x98\x80"), "\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xc0\xaf"), "??");  // overlong
  EXPECT_EQ(printable("\xe0\x80\xaf"), "???");
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // beyond the last code point
  EXPECT_EQ(printable("\xff"
                      "a"),
            "?a");
}

TEST(PercentDecoded, GivesTheBytesOrNothing) {
  EXPECT_EQ(percent_decoded("Basic%20aWQ6dG9rZW4%3D"), "Basic aWQ6dG9rZW4=");
  EXPECT_EQ(percent_decoded(""), "");
  for (const char* bad : {"100%", "%4", "%zz", "%00", "%-1"})
    EXPECT_FALSE(percent_decoded(bad)) << bad;
}

TEST(Trimmed, TakesBlanksOffBothEnds) {
  EXPECT_EQ(trimmed("  a b\t"), "a b");
  EXPECT_EQ(trimmed(" \t"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(NearestWord, OfSlips) {
  const std::vector<std::string> known{"record", "diagnose", "run", "watch"};
  EXPECT_EQ(nearest_word("recrod", known), "record");
  EXPECT_EQ(nearest_word("diagnoze", known), "diagnose");
  EXPECT_EQ(nearest_word("recor", known), "record");
  EXPECT_EQ(nearest_word("rum", known), "run");
  EXPECT_EQ(nearest_word("ru", known), "run");
  EXPECT_EQ(nearest_word("xyz", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word(std::string(1000, 'r'), known), "");
}

}  // namespace
}  // namespace kansoku
