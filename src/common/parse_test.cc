// SPDX-License-Identifier: Apache-2.0
#include "common/parse.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace kansoku {
namespace {

TEST(ParseInt, TakesTheWholeText) {
  EXPECT_EQ(parse_int<int>("42"), 42);
  EXPECT_EQ(parse_int<int>("-42"), -42);
  EXPECT_EQ(parse_int<int>("007"), 7);
  EXPECT_EQ(parse_int<unsigned>("ff", 16), 255U);
  EXPECT_EQ(parse_int<std::uint64_t>("18446744073709551615"),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_int<std::int64_t>("-9223372036854775808"),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse_int<std::uint8_t>("255"), 255);
}

TEST(ParseInt, RefusesEverythingElse) {
  for (const char* text : {"", " ", "1 ", " 1", "+1", "1.0", "1e3", "0x10", "--1", "-", "a", "1a",
                           "1,000", "\xd9\xa1", "99999999999"}) {
    EXPECT_EQ(parse_int<int>(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_int<int>(std::string_view("1\0", 2)), std::nullopt);
  EXPECT_EQ(parse_int<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(parse_int<std::uint8_t>("256"), std::nullopt);
  EXPECT_EQ(parse_int<std::uint64_t>("18446744073709551616"), std::nullopt);
}

TEST(ParseDuration, KnowsItsUnits) {
  EXPECT_EQ(parse_duration("10s"), Nanos{10'000'000'000});
  EXPECT_EQ(parse_duration("10"), Nanos{10'000'000'000});
  EXPECT_EQ(parse_duration("500ms"), Nanos{500'000'000});
  EXPECT_EQ(parse_duration("250us"), Nanos{250'000});
  EXPECT_EQ(parse_duration("7ns"), Nanos{7});
  EXPECT_EQ(parse_duration("2m"), Nanos{120'000'000'000});
  EXPECT_EQ(parse_duration("1h"), Nanos{3'600'000'000'000});
  EXPECT_EQ(parse_duration("1.5s"), Nanos{1'500'000'000});
  EXPECT_EQ(parse_duration("1e-3s"), Nanos{1'000'000});
  EXPECT_EQ(parse_duration("0"), Nanos{0});
}

TEST(ParseDuration, IsExactToTheNanosecond) {
  for (int i = 0; i < 100'000; i += 7) {
    const std::string text = fmt::format("0.{:05}s", i);
    EXPECT_EQ(parse_duration(text), Nanos{i * 10'000}) << text;
  }
}

TEST(ParseDuration, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "s", "ms", "-1s", "+1s", " 1s", "1 s", "1s ", "1S", "1min", "1ss",
                           "nan", "inf", "infs", "-inf", "0x10", "1e400", "1,5s", "ten"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(ParseDuration, StopsShortOfOverflow) {
  EXPECT_EQ(parse_duration("9e9s"), Nanos{9'000'000'000'000'000'000});
  EXPECT_EQ(parse_duration("9.000001e9s"), std::nullopt);
  EXPECT_EQ(parse_duration("1e300h"), std::nullopt);
}

TEST(ParseBytes, KnowsItsUnits) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("123"), 123U);
  EXPECT_EQ(parse_bytes("5B"), 5U);
  for (const char* text : {"2k", "2K", "2KB", "2KiB"})
    EXPECT_EQ(parse_bytes(text), 2048U) << text;
  for (const char* text : {"64m", "64M", "64MB", "64MiB"})
    EXPECT_EQ(parse_bytes(text), std::uint64_t{64} << 20) << text;
  for (const char* text : {"2g", "2G", "2GB", "2GiB"})
    EXPECT_EQ(parse_bytes(text), std::uint64_t{2} << 30) << text;
  EXPECT_EQ(parse_bytes("1.5k"), 1536U);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "k", "-1", "-1k", "1 k", "1T", "1kb", "1Ki", "1e19", "nan", "inf", "0x10", "1e400"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(ParseDouble, TakesTheWholeText) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("-1e3"), -1000);
  for (const char* bad : {"", "1x", " 1", "nan", "inf", "1e999", "--1"})
    EXPECT_FALSE(parse_double(bad)) << bad;
}

}  // namespace
}  // namespace kansoku
