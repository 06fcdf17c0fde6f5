// SPDX-License-Identifier: Apache-2.0
#include "trace/import/format.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "trace/import/files_for_test.h"

namespace kansoku::trace::import {
namespace {

using namespace std::string_view_literals;

Format of(std::string_view text) {
  return format_of(as_bytes(text));
}

TEST(Format, IsToldByTheFirstBytes) {
  EXPECT_EQ(of("{\"traceEvents\":[]}"), Format::kJson);
  EXPECT_EQ(of("[{}]"), Format::kJson);
  EXPECT_EQ(of("  \t\r\n [{}]"), Format::kJson);
  EXPECT_EQ(of(gzip("anything")), Format::kJson);
  EXPECT_EQ(of("\x0a\x05\x40\x01"sv), Format::kPerfetto);
  EXPECT_EQ(of("SQLite format 3\0more"sv), Format::kNsight);
  for (const char protocol : {'\x02', '\x03', '\x04', '\x05'})
    EXPECT_EQ(of(std::string("\x80") + protocol + "}."), Format::kFlightRecorder);
}

TEST(Format, AnythingElseIsUnknown) {
  for (const std::string_view text :
       {""sv, " "sv, "hello"sv, "\x80"sv, "\x80\x01}."sv, "\x80\x06}."sv, "\x1f"sv, "\x1f\x8a"sv,
        "SQLite format 3"sv, "SQLite format 2\0"sv, "\0"sv, "\"text\""sv, "# Readme"sv})
    EXPECT_EQ(of(text), Format::kUnknown) << text;
}

// Byte 10 begins a packet and is a line break too; 0x5b and 0x7b are lengths and brackets. The next
// byte decides: a packet begins with a field's tag, never with a quote or another bracket.
TEST(Format, LineBreaksBeforeABracketAreToldFromPackets) {
  for (const std::string_view text :
       {"\n{\"traceEvents\":[]}"sv, "\n[{\"ph\":\"X\"}]"sv, "\n\n[ {}]"sv, "\n{}"sv, "\n[]"sv})
    EXPECT_EQ(of(text), Format::kJson) << text;
  for (const std::string_view text :
       {"\n[\x40\x01\x02\x03"sv, "\n{\x40\x01\x02\x03"sv, "\n"sv, "\n\x00"sv, "\n\n\n"sv, "\n{"sv})
    EXPECT_EQ(of(text), Format::kPerfetto) << text;
}

TEST(Inflated, GivesTextCompressedOrNot) {
  EXPECT_EQ(inflated(as_bytes("a,b\n"), 100).value(), "a,b\n");
  EXPECT_EQ(inflated(as_bytes(gzip("a,b\n")), 100).value(), "a,b\n");
  EXPECT_EQ(inflated(as_bytes(gzip("a,b\n")), 4).value(), "a,b\n");
  EXPECT_EQ(inflated(as_bytes(gzip("a,b\n")), 3).error().code, Code::kLimit);
  EXPECT_EQ(inflated(as_bytes(gzip("a,b\n").substr(0, 12)), 100).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace kansoku::trace::import
