// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/event_scanner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/rng.h"

namespace kansoku::trace::import {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Collects the events, as "offset:text" and "offset:key=text"; what has a tilde in it is no JSON.
class Collector final : public EventScanner::Sink {
 public:
  Result<bool> on_event(std::string_view text, std::uint64_t offset) override {
    if (text.find('~') != std::string_view::npos) return false;
    for (std::size_t i = 0; i < EventScanner::kPadding; ++i)
      padding += text.data()[text.size() + i] == ' ' ? 1 : 0;
    seen.push_back(fmt::format("{}:{}", offset, text));
    return true;
  }
  void on_bad_event(std::uint64_t offset) override { bad.push_back(offset); }
  Result<void> on_member(std::string_view key, std::string_view text,
                         std::uint64_t offset) override {
    seen.push_back(fmt::format("{}:{}={}", offset, key, text));
    return {};
  }
  std::vector<std::string> seen;
  std::vector<std::uint64_t> bad;
  std::size_t padding{0};
};

struct Outcome {
  std::vector<std::string> seen;
  std::vector<std::uint64_t> bad;  // offsets
  std::string error;               // empty: none
  Code code{};
  bool is_unclosed{false}, has_list{false}, has_more_text{false};
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Feeds pieces of the given lengths, the last one over and over.
Outcome scan_pieces(std::string_view text, const std::vector<std::size_t>& lengths,
                    const EventScanner::Limits& limits = {}) {
  Collector sink;
  EventScanner scanner(sink, limits);
  Result<void> result;
  std::size_t piece = 0;
  for (std::string_view rest = text; !rest.empty() && result;) {
    const std::size_t length = std::min(rest.size(), lengths[std::min(piece, lengths.size() - 1)]);
    ++piece;
    const std::string copy(rest.substr(0, length));  // so that reading beyond it is noticed
    result = scanner.feed(copy);
    rest.remove_prefix(length);
  }
  if (result) result = scanner.finish();
  Outcome out{.seen = sink.seen,
              .bad = sink.bad,
              .error = result ? "" : result.error().what,
              .is_unclosed = scanner.is_unclosed(),
              .has_list = scanner.has_list(),
              .has_more_text = scanner.has_more_text()};
  if (!result) out.code = result.error().code;
  return out;
}
Outcome scan(std::string_view text, const EventScanner::Limits& limits = {}) {
  return scan_pieces(text, {text.size() + 1}, limits);
}

constexpr std::string_view kObject =
    "\n {\"schema\" : 1 , \"traceEvents\": [ {\"a\":\"}]\\\"[{\"},\n{\"b\":[1,{\"c\":[]}]} ,{} ],"
    "\"other\":{\"traceEvents\":[{\"no\":1}]}, \"s\":\"x\\\\\", \"n\":null } ";

TEST(EventScanner, FindsEventsAndMembersWithTheirOffsets) {
  const Outcome out = scan(kObject);
  EXPECT_EQ(out.error, "");
  const auto at = [&](std::string_view part) { return kObject.find(part); };
  EXPECT_THAT(out.seen, ElementsAre(fmt::format("{}:schema=1", at("1 ,")),
                                    fmt::format("{}:{}", at("{\"a\""), "{\"a\":\"}]\\\"[{\"}"),
                                    fmt::format("{}:{}", at("{\"b\""), "{\"b\":[1,{\"c\":[]}]}"),
                                    fmt::format("{}:{}", at("{} ]"), "{}"),
                                    fmt::format("{}:other={}", at("{\"traceEvents\":[{\"no"),
                                                "{\"traceEvents\":[{\"no\":1}]}"),
                                    fmt::format("{}:s={}", at("\"x"), "\"x\\\\\""),
                                    fmt::format("{}:n=null", at("null"))));
  EXPECT_TRUE(out.has_list);
  EXPECT_FALSE(out.is_unclosed);
}

TEST(EventScanner, PadsEveryEvent) {
  Collector sink;
  EventScanner scanner(sink, {});
  ASSERT_TRUE(scanner.feed("[{},{\"a\":1}]").has_value());
  EXPECT_EQ(sink.padding, 2 * EventScanner::kPadding);
}

TEST(EventScanner, AnySplitOfTheBytesGivesTheSame) {
  const Outcome whole = scan(kObject);
  for (std::size_t length = 1; length < kObject.size(); ++length)
    EXPECT_EQ(scan_pieces(kObject, {length}), whole) << "pieces of " << length;
  for (std::size_t at = 0; at <= kObject.size(); ++at)
    EXPECT_EQ(scan_pieces(kObject, {std::max<std::size_t>(at, 1), kObject.size()}), whole) << at;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    std::vector<std::size_t> lengths(40);
    for (std::size_t& length : lengths)
      length = 1 + rng.below(9);
    EXPECT_EQ(scan_pieces(kObject, lengths), whole) << "seed " << seed;
  }
}

// Errors too, offset included, wherever the text is cut off or bent.
TEST(EventScanner, BrokenTextFailsAlikeInAnySplit) {
  for (std::size_t size = 0; size <= kObject.size(); ++size) {
    const std::string_view part = kObject.substr(0, size);
    EXPECT_EQ(scan_pieces(part, {1}), scan(part)) << part;
  }
  constexpr std::string_view kBytes = "\"\\{}[],: x";
  for (std::size_t at = 0; at < kObject.size(); ++at) {
    for (const char c : kBytes) {
      std::string bent(kObject);
      bent[at] = c;
      EXPECT_EQ(scan_pieces(bent, {1}), scan(bent)) << bent;
    }
  }
}

TEST(EventScanner, ReadsABareList) {
  const Outcome out = scan("[1, \"a,]\",[2,3] ,true]\n");
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.seen, ElementsAre("1:1", "4:\"a,]\"", "10:[2,3]", "17:true"));
  EXPECT_THAT(scan("[]").seen, IsEmpty());
  EXPECT_TRUE(scan("[]").has_list);
}

TEST(EventScanner, AnUnclosedListIsReadUpToItsEnd) {
  for (const char* text : {"[{},{}", "[{},{},", "[{},{},\n", "{\"traceEvents\":[{},{}"}) {
    const Outcome out = scan(text);
    EXPECT_EQ(out.error, "") << text;
    EXPECT_TRUE(out.is_unclosed) << text;
    EXPECT_EQ(out.seen.size(), 2U) << text;
  }
  EXPECT_TRUE(scan("[").is_unclosed);
  for (const char* text :
       {"[{},{\"a\":", "{\"traceEvents\":[{}]", "{\"traceEvents\":[{}],\"a\":"}) {
    const Outcome out = scan(text);
    EXPECT_EQ(out.error, "") << text;
    EXPECT_TRUE(out.is_unclosed) << text;
    EXPECT_EQ(out.seen.size(), 1U) << text;
  }
}

// One damaged event costs itself: a quote too many, one too few, a bracket too few, a byte that
// stands nowhere in JSON.
TEST(EventScanner, GoesOnBehindADamagedEvent) {
  const std::string good = R"({"ph":"X","name":"a","args":{"b":[{"c":1},{"d":2}]}})";
  for (const char* bad :
       {R"({"ph":"X","name":"a"b"})", R"({"ph":"X","name":"a"b"c"})", R"({"ph":"X","name":"a)",
        R"j({"ph":"X","name":"{"x": "y"}(3)"})j", R"({"ph":"X","args":{"b":1})", R"({"ph":"X",,~})",
        R"({"ph":"X","name":"~"})", R"({"ph":~})", "}", "}}", "~", R"("~")",
        R"({"ph":"X","args":[[[[[[[[[[[[]]]]]]]]]]]]})"}) {
    for (const char* between : {",\n  ", ","}) {
      const std::string text = "[" + good + between + bad + between + good + between + good + "]";
      const Outcome out = scan(text, {.depth_max = 8});
      EXPECT_EQ(out.error, "") << text;
      EXPECT_EQ(out.seen.size(), 3U) << text;
      EXPECT_FALSE(out.bad.empty()) << text;
      EXPECT_FALSE(out.is_unclosed) << text;
      EXPECT_EQ(scan_pieces(text, {1}, {.depth_max = 8}), out) << text;
    }
  }
}

// A damaged last event does not take the file's header with it.
TEST(EventScanner, MembersBehindADamagedLastEventAreRead) {
  const std::string text = R"({"traceEvents":[{"ph":"X","name":"a"},{"ph":"X","name":"b],)"
                           "\n\"traceName\":\"t\",\"baseTimeNanoseconds\":7}";
  const Outcome out = scan(text);
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.bad.size(), 1U);
  EXPECT_FALSE(out.is_unclosed);
  EXPECT_THAT(out.seen.back(), HasSubstr("baseTimeNanoseconds=7"));
  EXPECT_EQ(scan_pieces(text, {1}), out);
}

TEST(EventScanner, TextBehindTheTraceIsToldAndLeftOut) {
  for (const char* text : {"[1]2", "[]]", "{}{}", "{} []"}) {
    const Outcome out = scan(text);
    EXPECT_EQ(out.error, "") << text;
    EXPECT_TRUE(out.has_more_text) << text;
  }
}

TEST(EventScanner, RefusesGarbage) {
  for (const char* text :
       {"", "  ", "x", "\"text\"", "1", "null", "]", "}", "{x", "{1:2}", "{\"a\" 1}", "{\"a\"}",
        "{\"a\":}", "{\"a\":,}", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1"}) {
    const Outcome out = scan(text);
    EXPECT_EQ(out.code, Code::kCorrupt) << text;
    EXPECT_THAT(out.error, HasSubstr("read JSON trace at offset ")) << text;
  }
}

TEST(EventScanner, OnlyTheOuterListOfEventsCounts) {
  const Outcome nested = scan("{\"a\":{\"traceEvents\":[{}]},\"b\":[\"traceEvents\",[{}]]}");
  EXPECT_EQ(nested.error, "");
  EXPECT_FALSE(nested.has_list);
  EXPECT_EQ(nested.seen.size(), 2U);
  const Outcome no_list = scan("{\"traceEvents\":{\"x\":[]}}");
  EXPECT_FALSE(no_list.has_list);
  EXPECT_THAT(no_list.seen, ElementsAre("15:traceEvents={\"x\":[]}"));
  EXPECT_FALSE(scan("{\"TraceEvents\":[{}]}").has_list);
}

std::string nested(int depth) {
  return "[" + std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']') + "]";
}

TEST(EventScanner, DepthHasALimit) {
  const EventScanner::Limits limits{.depth_max = 5};
  EXPECT_THAT(scan(nested(5), limits).bad, IsEmpty());
  EXPECT_THAT(scan(nested(6), limits).bad, ElementsAre(1));
  const Outcome member = scan("{\"a\":" + nested(5) + "}", limits);
  EXPECT_EQ(member.code, Code::kLimit);
  EXPECT_THAT(member.error, HasSubstr("offset 11: nested deeper than 5"));
  // Brackets in texts are no depth, and a new event begins at none.
  EXPECT_THAT(scan("[\"[[[[[[[[\",[[[[[]]]]],[[[[[]]]]]]", limits).bad, IsEmpty());
}

TEST(EventScanner, EventsHaveALimitInLength) {
  const EventScanner::Limits limits{.event_bytes_max = 10};
  for (const std::size_t size : {9U, 10U, 11U}) {
    const std::string text = "[{},\"" + std::string(size - 2, 'x') + "\"]";
    const Outcome out = scan(text, limits);
    EXPECT_EQ(out.error.empty(), size <= 10) << size;
    EXPECT_EQ(out.code == Code::kLimit, size > 10) << size;
    EXPECT_EQ(scan_pieces(text, {1}, limits), out) << size;
  }
  EXPECT_THAT(scan("[{},\"123456789\"]", limits).error, HasSubstr("offset 4: an event of more"));
}

// A long member is none of the importer's business: it is skipped, and what follows is read.
TEST(EventScanner, LongMembersAreSkipped) {
  const EventScanner::Limits limits{.member_bytes_max = 10};
  for (const std::size_t size : {9U, 10U, 11U, 5000U}) {
    const std::string text = "{\"a\":\"" + std::string(size - 2, ']') + "\",\"b\":2}";
    const Outcome out = scan(text, limits);
    EXPECT_EQ(out.error, "") << size;
    EXPECT_EQ(out.seen.size(), size <= 10 ? 2U : 1U) << size;
    EXPECT_THAT(out.seen.back(), HasSubstr("b=2")) << size;
    EXPECT_EQ(scan_pieces(text, {1}, limits), out) << size;
  }
}

TEST(EventScanner, MemberNamesHaveALimit) {
  const auto text = [](std::size_t size) { return "{\"" + std::string(size, 'k') + "\":1}"; };
  EXPECT_EQ(scan(text(4096)).error, "");
  EXPECT_EQ(scan(text(4097)).code, Code::kCorrupt);
  EXPECT_EQ(scan_pieces(text(4097), {1}).code, Code::kCorrupt);
}

class Refusing final : public EventScanner::Sink {
 public:
  Result<bool> on_event(std::string_view, std::uint64_t) override {
    return Error{Code::kCorrupt, "event refused"};
  }
  void on_bad_event(std::uint64_t) override {}
  Result<void> on_member(std::string_view, std::string_view, std::uint64_t) override {
    return Error{Code::kCorrupt, "member refused"};
  }
};

TEST(EventScanner, WhatTheSinkRefusesEndsTheReading) {
  Refusing sink;
  EventScanner list(sink, {}), object(sink, {});
  const auto of_list = list.feed("[{}]");
  ASSERT_FALSE(of_list.has_value());
  EXPECT_EQ(of_list.error().what, "event refused");
  const auto of_object = object.feed("{\"a\":1}");
  ASSERT_FALSE(of_object.has_value());
  EXPECT_EQ(of_object.error().what, "member refused");
}

}  // namespace
}  // namespace kansoku::trace::import
