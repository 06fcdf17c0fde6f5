// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/internal/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

using testing::ElementsAre;

constexpr std::array<CsvColumn, 3> kColumns{{{"a", true}, {"b", true}, {"c", false}}};

/// Rows as "a|b|c", malformed ones as "! message"; or the header's error.
std::vector<std::string> rows_of(std::string_view text, const CsvOptions& options = {}) {
  CsvReader csv(text, "f", options);
  if (const auto header = csv.read_header(kColumns); !header) return {header.error().what};
  std::vector<std::string> out;
  for (auto next = csv.next(); next != CsvReader::Next::kEnd; next = csv.next()) {
    if (next == CsvReader::Next::kBad) {
      out.push_back("! " + csv.take_error().what);
      continue;
    }
    out.push_back(std::string(csv.text(0)) + "|" + std::string(csv.text(1)) + "|" +
                  std::string(csv.text(2)));
  }
  return out;
}

TEST(Csv, ColumnsAreFoundByName) {
  EXPECT_THAT(rows_of("x,b,a,y\n1,2,3,4\n5,6,7,8\n"), ElementsAre("3|2|", "7|6|"));
  EXPECT_THAT(rows_of("a,b,c\n1,2,3\n"), ElementsAre("1|2|3"));
}

TEST(Csv, HeaderErrorsNameTheColumn) {
  EXPECT_THAT(rows_of("a,c\n1,2\n"), ElementsAre("f:1:1: column 'b' is missing"));
  EXPECT_THAT(rows_of(""), ElementsAre("f:1:1: column 'a' is missing"));
  EXPECT_THAT(rows_of("a,b,x,b\n"), ElementsAre("f:1:7: column 'b' twice"));
  EXPECT_THAT(rows_of("a,b,x,x\n1,2,3,4"), ElementsAre("1|2|"));
  EXPECT_THAT(rows_of("a,b,a\n1,2,3", {.first_of_duplicates = true}), ElementsAre("1|2|"));
  EXPECT_THAT(rows_of("A,b\n"), ElementsAre("f:1:1: column 'a' is missing"));
}

TEST(Csv, LineEnds) {
  for (const char* text : {"a,b\n1,2\n3,4\n", "a,b\n1,2\n3,4", "a,b\r\n1,2\r\n3,4\r\n",
                           "a,b\r\n1,2\r\n3,4", "a,b\n1,2\n3,4\n\n\n", "a,b\r\n1,2\r\n3,4\r\n\r\n",
                           "\xEF\xBB\xBF"
                           "a,b\n1,2\n3,4\r"}) {
    EXPECT_THAT(rows_of(text), ElementsAre("1|2|", "3|4|")) << text;
  }
  EXPECT_THAT(rows_of("a,b\n"), ElementsAre());
  EXPECT_THAT(rows_of("a,b"), ElementsAre());
  EXPECT_THAT(rows_of("a,b\n1,\n,2\n,"), ElementsAre("1||", "|2|", "||"));
}

TEST(Csv, BlankLinesInsideTheTableAreMalformed) {
  EXPECT_THAT(rows_of("a,b\n1,2\n\n\r\n3,4\n\n"),
              ElementsAre("1|2|", "! f:3:1: blank line inside the table", "3|4|"));
}

TEST(Csv, Quotes) {
  EXPECT_THAT(rows_of("a,b\n\"1,1\",\"say \"\"x\"\"\"\n\"\",\"\"\n"),
              ElementsAre("1,1|say \"x\"|", "||"));
  EXPECT_THAT(rows_of("\"a\",\"b\"\n\"1\n\r\n1\",2\n3,4,5\n"),
              ElementsAre("1\n\r\n1|2|", "! f:5:5: 3 fields, the header has 2"));
  EXPECT_THAT(rows_of("a,b\n1,2\"\n3,4\n"),
              ElementsAre("! f:2:3: quote inside an unquoted field", "3|4|"));
  EXPECT_THAT(rows_of("a,b\n1,\"2\"x\n3,4\n"),
              ElementsAre("! f:2:3: text after the closing quote", "3|4|"));
  EXPECT_THAT(rows_of("a,b\n1,\"2\n3,4\n5,6"),
              ElementsAre("! f:2:3: quote is not closed", "3|4|", "5|6|"));
  EXPECT_THAT(
      rows_of("a,b\n\"1\n1\",\"2\"x\n3,4,\n"),
      ElementsAre("! f:3:4: text after the closing quote", "! f:4:5: 3 fields, the header has 2"));
}

TEST(Csv, EveryRowIsAsLongAsTheHeader) {
  EXPECT_THAT(
      rows_of("a,b,c\n1,2\n1,2,3,4,5\n1\n1,2,3\n"),
      ElementsAre("! f:2:3: 2 fields, the header has 3", "! f:3:7: 5 fields, the header has 3",
                  "! f:4:1: 1 field, the header has 3", "1|2|3"));
}

TEST(Csv, CarriageReturnsOnlyAtTheEnd) {
  EXPECT_THAT(rows_of("a,b\n1\r,2\n3,4\n"),
              ElementsAre("! f:2:2: carriage return inside a line", "3|4|"));
}

TEST(Csv, OtherSeparator) {
  EXPECT_THAT(rows_of("a\tb\n1,1\t2\n", {.separator = '\t'}), ElementsAre("1,1|2|"));
  EXPECT_THAT(rows_of("a,b\n1\t,2\n"), ElementsAre("1\t|2|"));
}

TEST(Csv, Limits) {
  EXPECT_THAT(rows_of("a,b\n1234,2\n", {.field_bytes_max = 4}), ElementsAre("1234|2|"));
  EXPECT_THAT(rows_of("a,b\n1,12345\n\"12345\",2\n3,4", {.field_bytes_max = 4}),
              ElementsAre("! f:2:3: field longer than the limit of 4 bytes",
                          "! f:3:1: field longer than the limit of 4 bytes", "3|4|"));
  EXPECT_THAT(rows_of("a,b,x\n", {.columns_max = 3}), ElementsAre());
  EXPECT_THAT(rows_of("a,b,x,y\n", {.columns_max = 3}),
              ElementsAre("f:1:7: more columns than the limit of 3"));
}

TEST(Csv, CommentBeforeTheHeader) {
  CsvReader csv("# x\r\na,b\n1\n", "f");
  EXPECT_EQ(csv.take_comment(), "# x");
  EXPECT_EQ(csv.take_comment(), std::nullopt);
  ASSERT_TRUE(csv.read_header(kColumns));
  EXPECT_EQ(csv.next(), CsvReader::Next::kBad);
  EXPECT_EQ(csv.take_error().what, "f:3:1: 1 field, the header has 2");
}

TEST(Csv, UntrustedTextInMessagesIsHarmless) {
  EXPECT_EQ(in_quotes("a\n\x1b[31m\xff"), "'a\\x0a\\x1b[31m\\xff'");
  EXPECT_EQ(in_quotes(std::string(50, 'x')), "'" + std::string(40, 'x') + "...'");
}

TEST(Csv, WriterIsReadBack) {
  const std::array<std::string_view, 3> header{"a", "b", "c"};
  CsvWriter writer(header);
  writer.text("x,\"y\"\r\n");
  writer.decimal(-1500, 3);
  writer.empty();
  writer.end_row();
  const std::string text = writer.take();
  EXPECT_EQ(text, "a,b,c\n\"x,\"\"y\"\"\r\n\",-1.5,\n");
  EXPECT_THAT(rows_of(text), ElementsAre("x,\"y\"\r\n|-1.5|"));
}

TEST(Number, Decimals) {
  EXPECT_EQ(parse_decimal("66.0", 9), 66'000'000'000);
  EXPECT_EQ(parse_decimal("0.098189", 9), 98'189'000);
  EXPECT_EQ(parse_decimal("0.1234567894", 9), 123'456'789);
  EXPECT_EQ(parse_decimal("0.12345678949999", 9), 123'456'789);
  EXPECT_EQ(parse_decimal("0.1234567895", 9), 123'456'790);
  EXPECT_EQ(parse_decimal("-1.5", 0), -2);
  EXPECT_EQ(parse_decimal("1e-05", 9), 10'000);
  EXPECT_EQ(parse_decimal("9.1e9", 9), 9'100'000'000'000'000'000);
  EXPECT_EQ(parse_decimal("9223372036854775806", 0), 9'223'372'036'854'775'806);
  for (const char* text :
       {"", " 1", "1 ", "+1", ".5", "5.", "1.2.3", "nan", "inf", "0x10", "1e", "1e400", "--1",
        "9999999999999999999", "9223372036.9", "9.3e9", ".5e1", "e1", "-e1"}) {
    EXPECT_EQ(parse_decimal(text, 9), std::nullopt) << text;
  }
}

TEST(Number, DecimalsAreReadBack) {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{10}, kTimeNsMax,
        std::int64_t{1'000'000'000}, std::int64_t{123'456'789'012'345}}) {
    for (const int digits : {0, 1, 3, 9}) {
      std::string text;
      append_decimal(text, value, digits);
      EXPECT_EQ(parse_decimal(text, digits), value) << text;
    }
  }
}

TEST(Number, CivilTimes) {
  EXPECT_EQ(parse_civil_ns("1970-01-01 00:00:00"), 0);
  EXPECT_EQ(parse_civil_ns("2017-10-09 07:01:55"), 1'507'532'515'000'000'000);
  EXPECT_EQ(parse_civil_ns("2023-11-16 18:17:03.9799600"), 1'700'158'623'979'960'000);
  EXPECT_EQ(parse_civil_ns("2023-11-16T18:17:03.979960+00:00"), 1'700'158'623'979'960'000);
  EXPECT_EQ(parse_civil_ns("2099-12-31 23:59:59.999999999Z"), kCivilNsMax);
  EXPECT_TRUE(parse_civil_ns("2096-02-29 00:00:00"));
  for (const char* text :
       {"", "None", "2017-10-09", "2017-10-09 07:01", "2017-02-29 00:00:00", "2017-13-01 00:00:00",
        "2017-00-01 00:00:00", "2017-10-00 00:00:00", "2017-10-09 24:00:00", "2017-10-09 07:60:00",
        "2017-10-09 07:00:60", "1969-12-31 23:59:59", "2100-01-01 00:00:00", "2017-10-09 07:01:55.",
        "2017-10-09 07:01:55.1234567890", "2017-10-09 07:01:55+09:00", "2017-10-09 07:01:55 ",
        "2017/10/09 07:01:55", "2017-10-09 07:01:5x"}) {
    EXPECT_EQ(parse_civil_ns(text), std::nullopt) << text;
  }
}

TEST(Number, CivilTimesAreReadBack) {
  // Every 13 hours or so of all the years.
  for (std::int64_t ns = 0; ns >= 0 && ns <= kCivilNsMax; ns += 46'811'001'000'100) {
    const std::string text = civil_text(ns);
    ASSERT_EQ(parse_civil_ns(text), ns) << text;
  }
}

TEST(Number, SecondOfWeek) {
  EXPECT_EQ(second_of_week(*parse_civil_ns("2017-10-02 00:00:00")), 0);  // a Monday
  EXPECT_EQ(second_of_week(*parse_civil_ns("2017-10-08 23:59:59.9")), 7 * 86'400 - 1);
  EXPECT_EQ(second_of_week(0), 3 * 86'400);
}

}  // namespace
}  // namespace kansoku::simulate::import
