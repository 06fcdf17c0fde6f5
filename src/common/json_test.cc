// SPDX-License-Identifier: Apache-2.0
#include "common/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace kansoku {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Json parsed(std::string_view text) {
  auto json = Json::parse(text);
  EXPECT_TRUE(json) << json.error().what;
  return json ? *json : Json();
}

Json parsed_toml(std::string_view text) {
  auto json = Json::parse_toml(text, "t.toml");
  EXPECT_TRUE(json) << json.error().what;
  return json ? *json : Json();
}

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(Json, BuildsObjectsInTheOrderOfTheirKeys) {
  Json json = Json::object();
  json.set("z", 1).set("a", "text").set("m", Json::array().push(true).push(Json()).push(0.5));
  EXPECT_EQ(json.dump(), R"({"z":1,"a":"text","m":[true,null,0.5]})");
  json.set("z", Json::object().set("deep", -1));
  EXPECT_EQ(json.dump(), R"({"z":{"deep":-1},"a":"text","m":[true,null,0.5]})");
  EXPECT_THAT(json.keys(), ElementsAre("z", "a", "m"));
  EXPECT_EQ(Json::array().push(1).dump(1), "[\n 1\n]");
}

TEST(Json, IsMadeOfAnyList) {
  EXPECT_EQ(Json::array_of(std::vector<std::string>{"b", "a"}).dump(), R"(["b","a"])");
  EXPECT_EQ(Json::array_of(std::array{1.5, std::nan("")}).dump(), "[1.5,null]");
  EXPECT_EQ(Json::array_of(std::vector<bool>{true, false}).dump(), "[true,false]");
  EXPECT_EQ(Json::array_of(std::vector<std::string>{}).dump(), "[]");
}

TEST(Json, GrowsOutOfNull) {
  Json object;
  object.set("k", 1);
  EXPECT_TRUE(object.is_object());
  Json array;
  array.push(1);
  EXPECT_TRUE(array.is_array());
}

TEST(Json, KeepsNumbersWhole) {
  EXPECT_EQ(Json(std::numeric_limits<std::uint64_t>::max()).dump(), "18446744073709551615");
  EXPECT_EQ(Json(std::numeric_limits<std::int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(std::uint32_t{7}).dump(), "7");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_TRUE(Json(std::numeric_limits<double>::quiet_NaN()).is_null());
  EXPECT_TRUE(Json(std::numeric_limits<double>::infinity()).is_null());
}

TEST(Json, KnowsItsKind) {
  EXPECT_TRUE(Json().is_null());
  EXPECT_TRUE(Json(true).is_bool());
  EXPECT_TRUE(Json(1).is_integer());
  EXPECT_TRUE(Json(1).is_number());
  EXPECT_FALSE(Json(1.0).is_integer());
  EXPECT_TRUE(Json(1.0).is_number());
  EXPECT_TRUE(Json("x").is_string());
  EXPECT_TRUE(Json(std::string_view("x")).is_string());
  EXPECT_FALSE(Json("1").is_number());
}

TEST(Json, FallsBackForAnotherKind) {
  const Json text("12");
  EXPECT_EQ(text.as_int(7), 7);
  EXPECT_EQ(text.as_double(0.5), 0.5);
  EXPECT_TRUE(text.as_bool(true));
  EXPECT_EQ(text.as_string(), "12");
  EXPECT_EQ(Json(12).as_string("none"), "none");
  EXPECT_EQ(Json(1.5).as_int(7), 7);
  EXPECT_EQ(Json(3).as_double(), 3.0);
  EXPECT_FALSE(Json(1).as_bool());
}

TEST(Json, FallsBackForIntegersThatDoNotFit) {
  EXPECT_EQ(parsed("9223372036854775807").as_int(-5), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parsed("9223372036854775808").as_int(-5), -5);
  EXPECT_EQ(parsed("18446744073709551615").as_int(-5), -5);
  EXPECT_EQ(parsed("18446744073709551616").as_int(-5), -5);  // a double by now
  EXPECT_EQ(parsed("-9223372036854775808").as_int(-5), std::numeric_limits<std::int64_t>::min());
}

TEST(Json, GivesNullForWhatIsNotThere) {
  const Json json = parsed(R"({"a": [1, 2]})");
  EXPECT_EQ(json.at("a").at(1).as_int(), 2);
  EXPECT_TRUE(json.at("a").at(2).is_null());
  EXPECT_TRUE(json.at("b").is_null());
  EXPECT_TRUE(json.at(std::size_t{0}).is_null());
  EXPECT_TRUE(json.at("a").at("x").is_null());
  EXPECT_TRUE(json.contains("a"));
  EXPECT_FALSE(json.contains("b"));
  EXPECT_FALSE(Json(1).contains("a"));
  EXPECT_EQ(json.size(), 1U);
  EXPECT_EQ(json.at("a").size(), 2U);
  EXPECT_EQ(Json("text").size(), 0U);
  EXPECT_THAT(Json(1).keys(), IsEmpty());
}

TEST(Json, CopiesEverythingAndLeavesNullBehindAMove) {
  Json json = parsed(R"({"a": [1]})");
  Json copy = json;
  copy.set("a", 2);
  EXPECT_EQ(json.dump(), R"({"a":[1]})");
  const Json moved = std::move(json);
  EXPECT_EQ(moved.dump(), R"({"a":[1]})");
  EXPECT_TRUE(json.is_null());  // NOLINT(bugprone-use-after-move): promised
  json.set("again", 1);
  EXPECT_EQ(json.size(), 1U);
  const Json& same = copy;
  copy = same;
  EXPECT_EQ(copy.at("a").as_int(), 2);
}

TEST(Json, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(Json("a\xff"
                 "b")
                .dump(),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(Json(std::string_view("\0\n\"\\", 4)).dump(), R"("\u0000\n\"\\")");
}

TEST(JsonParse, RefusesWhatIsNoJson) {
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\"}", "{'a': 1}", "nul", "01", "1 2", "[1] x", "\"open",
        "\"\xff\"", "// comment\n1", "NaN", "+1", "1e400", "\xef\xbb", "{\"a\":1,}"}) {
    const auto json = Json::parse(text);
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().code, Code::kCorrupt) << text;
    EXPECT_THAT(json.error().what, StartsWith("parse json: "));
  }
  EXPECT_THAT(Json::parse("[1, 2, x]").error().what, HasSubstr("column 8"));
}

TEST(JsonParse, TakesTheLastOfEqualKeys) {
  const Json json = parsed(R"({"a": 1, "b": 2, "a": 3})");
  EXPECT_EQ(json.at("a").as_int(), 3);
  EXPECT_EQ(json.size(), 2U);
}

TEST(JsonParse, StopsAtTheLimitOfDepth) {
  constexpr auto kDepthMax = static_cast<std::size_t>(Json::kDepthMax);
  EXPECT_TRUE(Json::parse(nested(kDepthMax - 1)));
  EXPECT_TRUE(Json::parse(nested(kDepthMax)));
  EXPECT_EQ(parsed(nested(kDepthMax)).dump(), nested(kDepthMax));
  const auto deeper = Json::parse(nested(kDepthMax + 1));
  ASSERT_FALSE(deeper);
  EXPECT_EQ(deeper.error().code, Code::kLimit);
  EXPECT_EQ(deeper.error().what, "parse json: nested deeper than 64");
  const std::string inner(kDepthMax, '[');
  const std::string outer(kDepthMax, ']');
  EXPECT_TRUE(Json::parse(inner + "1" + outer));
  std::string objects = "1";
  for (std::size_t i = 0; i < kDepthMax; ++i)
    objects = R"({"k":)" + objects + "}";
  EXPECT_TRUE(Json::parse(objects));
  EXPECT_EQ(Json::parse(R"({"k":)" + objects + "}").error().code, Code::kLimit);
  EXPECT_EQ(Json::parse("[[1], " + nested(kDepthMax) + ", 2]").error().code, Code::kLimit);
}

TEST(JsonParse, SurvivesAMillionBrackets) {
  for (const std::string& text :
       {std::string(1'000'000, '['), nested(1'000'000), "[1, " + nested(1'000'000) + "]"}) {
    EXPECT_EQ(Json::parse(text).error().code, Code::kLimit);
  }
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i)
    objects += R"({"":)";
  EXPECT_EQ(Json::parse(objects).error().code, Code::kLimit);
}

TEST(JsonParse, GivesBackWhatItDumps) {
  const char* text = R"({"a":[1,-2,3.25,"\u00e9\n",true,null,{}],"b":{"c":[]}})";
  const Json json = parsed(text);
  EXPECT_EQ(parsed(json.dump()).dump(), json.dump());
  EXPECT_EQ(parsed(json.dump(2)).dump(), json.dump());
}

TEST(TomlParse, ReadsEveryKindOfValue) {
  const Json json = parsed_toml(R"(
text = "a \"b\""
integer = -3
real = 2.5
flag = true
date = 1979-05-27
list = [1, "two", [3]]
inline = { a.b = 1 }
[table]
key = 'raw\n'
[[array]]
n = 1
[[array]]
n = 2
)");
  EXPECT_EQ(json.dump(), R"({"array":[{"n":1},{"n":2}],"date":"1979-05-27","flag":true,)"
                         R"("inline":{"a":{"b":1}},"integer":-3,"list":[1,"two",[3]],"real":2.5,)"
                         R"("table":{"key":"raw\\n"},"text":"a \"b\""})");
  EXPECT_EQ(parsed_toml("").dump(), "{}");
}

TEST(TomlParse, TellsTheLineOfEachKey) {
  TomlLines lines;
  ASSERT_TRUE(Json::parse_toml("a = 1\n[b]\nc = [1,\n 2]\n[[d]]\ne = {f = 2}\n", "t", &lines));
  EXPECT_EQ(lines.at("a"), 1U);
  EXPECT_EQ(lines.at("b"), 2U);
  EXPECT_EQ(lines.at("b.c"), 3U);
  EXPECT_EQ(lines.at("b.c[1]"), 4U);
  EXPECT_EQ(lines.at("d[0]"), 5U);
  EXPECT_EQ(lines.at("d[0].e.f"), 6U);
}

TEST(TomlParse, NamesLineAndColumnOfAMistake) {
  const auto json = Json::parse_toml("a = 1\nb = = 2\n", "x/t.toml");
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().code, Code::kCorrupt);
  EXPECT_THAT(json.error().what, StartsWith("parse x/t.toml:2:5: "));
  for (const char* text : {"a", "a = ", "= 1", "a = 1\na = 2", "[a\n", "a = \"x", "a = 1 b = 2",
                           "a = \xff", "a = 99999999999999999999", "a.b = 1\na = 2"}) {
    const auto other = Json::parse_toml(text, "t");
    ASSERT_FALSE(other) << text;
    EXPECT_EQ(other.error().code, Code::kCorrupt) << text;
  }
}

// Texts that the TOML parser itself refuses as impossible.
TEST(TomlParse, RefusesTextWhereNoKeyCanStand) {
  for (const char* text : {"a = {{", "a = {[", "a = {=", "a.\xd1\x9a = 1", "\xd1\x9a = 1",
                           "a = 1\xc3\xa9", "[\xc3\xa9]", "a\xc2\xa0\xc2\xa1 = 1"}) {
    const auto json = Json::parse_toml(text, "t");
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().code, Code::kCorrupt) << text;
    EXPECT_THAT(json.error().what, StartsWith("parse t:")) << text;
  }
  EXPECT_EQ(parsed_toml("a = \"\xc3\xa9\"").dump(), "{\"a\":\"\xc3\xa9\"}");
}

// A value of `depth` tables and arrays, in one another.
TEST(TomlParse, StopsAtTheLimitOfDepth) {
  const auto arrays = [](std::size_t depth) { return "a = " + nested(depth - 1) + "\n"; };
  EXPECT_TRUE(Json::parse_toml(arrays(63), "t"));
  EXPECT_TRUE(Json::parse_toml(arrays(64), "t"));
  const auto deeper = Json::parse_toml(arrays(65), "t");
  ASSERT_FALSE(deeper);
  EXPECT_EQ(deeper.error().code, Code::kLimit);
  EXPECT_EQ(deeper.error().what, "parse t: nested deeper than 64");
  const auto keys = [](std::size_t depth) {
    std::string text = "a";
    for (std::size_t i = 1; i < depth; ++i)
      text += ".a";
    return text + " = 1\n";
  };
  EXPECT_TRUE(Json::parse_toml(keys(63), "t"));
  EXPECT_TRUE(Json::parse_toml(keys(64), "t"));
  EXPECT_EQ(Json::parse_toml(keys(65), "t").error().code, Code::kLimit);
  EXPECT_EQ(Json::parse_toml("\n" + keys(66), "t").error().what,
            "parse t:2: more than 64 dots in a line");
}

TEST(TomlParse, SurvivesDeepNestingOfEveryForm) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "deeper than the thread sanitizer's own stack of 65,536 calls";
#endif
  std::string dots;
  for (int i = 0; i < 500'000; ++i)
    dots += "a.";
  std::string mixed = "a = ";  // as deep as both limits of the parser together allow
  for (int i = 0; i < 127; ++i) {
    mixed += "[\n{";
    for (int k = 0; k < 64; ++k)
      mixed += "b.";
    mixed += "b = ";
  }
  mixed += "1";
  for (int i = 0; i < 127; ++i)
    mixed += "}\n]";
  for (const std::string& text : {dots + "a = 1\n", "[" + dots + "a]\n", mixed + "\n"})
    EXPECT_EQ(Json::parse_toml(text, "t").error().code, Code::kLimit);
  for (const std::string& text :
       {"a = " + nested(1'000'000), "a = " + std::string(1'000'000, '['),
        "a = " + std::string(1'000'000, '{'), std::string(1'000'000, '[')}) {
    EXPECT_FALSE(Json::parse_toml(text, "t"));
  }
}

}  // namespace
}  // namespace kansoku
