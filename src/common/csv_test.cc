// SPDX-License-Identifier: Apache-2.0
#include "common/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kansoku {
namespace {

using testing::ElementsAre;

/// Rows with "|" between fields, then the error if there is one.
std::vector<std::string> rows_of(std::string_view text, const CsvRows::Limits& limits = {}) {
  CsvRows rows(text, ',', limits);
  std::vector<std::string> out;
  for (;;) {
    const auto more = rows.next();
    if (!more) out.push_back("! " + more.error().what);
    if (!more || !*more) return out;
    std::string& row = out.emplace_back();
    for (const std::string_view& field : rows.fields())
      row += (&field == &rows.fields().front() ? "" : "|") + std::string(field);
  }
}

TEST(CsvRows, PlainAndQuotedFields) {
  EXPECT_THAT(rows_of("a,b\r\n1,2\n"), ElementsAre("a|b", "1|2"));
  EXPECT_THAT(rows_of("\xEF\xBB\xBF\"a,b\",\"say \"\"no\"\"\",\"x\ny\"\n\n,\n3"),
              ElementsAre("a,b|say \"no\"|x\ny", "|", "3"));
  EXPECT_THAT(rows_of("1,\"\"\r\n\r\n2,"), ElementsAre("1|", "2|"));
  EXPECT_THAT(rows_of(""), ElementsAre());
}

TEST(CsvRows, NamesTheLineOfWhatIsBroken) {
  EXPECT_THAT(rows_of("a\n\"b"), ElementsAre("a", "! line 2: quote is not closed"));
  EXPECT_THAT(rows_of("\"a\nb\"\n\"c\"d\n"),
              ElementsAre("a\nb", "! line 3: text after a closing quote"));
}

TEST(CsvRows, Limits) {
  EXPECT_THAT(rows_of("1,2,3", {.fields_max = 3, .field_bytes_max = 9}), ElementsAre("1|2|3"));
  EXPECT_THAT(rows_of("1,2,3", {.fields_max = 2, .field_bytes_max = 9}),
              ElementsAre("! line 1: more fields than the limit of 2"));
  EXPECT_THAT(rows_of("12,123", {.fields_max = 2, .field_bytes_max = 2}),
              ElementsAre("! line 1: field longer than the limit of 2 bytes"));
}

}  // namespace
}  // namespace kansoku
