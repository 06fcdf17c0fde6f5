// SPDX-License-Identifier: Apache-2.0
#include "export/diff_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json change(double before, double after, double low, double high) {
  return Json::object()
      .set("before", before)
      .set("after", after)
      .set("ratio", after / before)
      .set("low", low)
      .set("high", high)
      .set("p", 0.001)
      .set("significant", true);
}

Json diff(const std::string& name) {
  const Json row = Json::object()
                       .set("kind", "kernel")
                       .set("lane", "device")
                       .set("name", name)
                       .set("after_name", "void " + name + "<float>(int)")
                       .set("what", "slower")
                       .set("significant", true)
                       .set("before_ms", 1.0)
                       .set("after_ms", 1.1)
                       .set("lane_before_ms", 1.0)
                       .set("lane_after_ms", 1.1)
                       .set("call_ms", change(0.25, 0.275, 1.08, 1.12))
                       .set("evidence", Json::array().push("").push("each call +10 %"));
  const Json side = Json::object().set("files", Json::array().push(name)).set("steps", 100);
  return Json::object()
      .set("schema", "kansoku.diff/1")
      .set("verdict", "changed")
      .set("headline", "kernel " + name + ": slower")
      .set("summary", Json::array())
      .set("before", side)
      .set("after", side)
      .set("step_ms", change(20, 20.1, 0.99, 1.02))
      .set("lanes", Json::array().push(Json::object()
                                           .set("lane", "device")
                                           .set("explained_ms", 0.1)
                                           .set("others_ms", -0.02)
                                           .set("uncovered_ms", 0.01)))
      .set("rows", Json::array().push(row));
}

TEST(DiffHtml, TellsWhatChanged) {
  const auto html = diff_html(diff("rope"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("<h1>Kernel rope: slower</h1>"));
  EXPECT_THAT(*html, HasSubstr("+10.0 %, 95 %: +8.0 % .. +12.0 %"));
  EXPECT_THAT(*html, HasSubstr("explained above: +0.10 ms"));
}

TEST(DiffHtml, EscapesEverythingFromOutside) {
  const auto html = diff_html(diff("<script>alert(1)</script>"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, Not(HasSubstr("<script>alert")));
}

TEST(DiffHtml, TakesAnythingOfItsSchemaAndNothingElse) {
  EXPECT_TRUE(diff_html(Json::object().set("schema", "kansoku.diff/1")).has_value());
  Json odd = diff("a");
  odd.set("rows", "none").set("lanes", 7).set("step_ms", Json());
  EXPECT_TRUE(diff_html(odd).has_value());
  const auto other = diff_html(Json::object().set("schema", "kansoku.diff/2"));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::exporter
