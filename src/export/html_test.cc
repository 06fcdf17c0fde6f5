// SPDX-License-Identifier: Apache-2.0
#include "export/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json finding(const std::string& function) {
  return Json::object()
      .set("kind", "slow_input")
      .set("ranks", Json::array().push(2))
      .set("function", function)
      .set("file", "/app/train.py")
      .set("line", 70)
      .set("stack", Json::array().push("main").push(function))
      .set("cost_ms_per_step", 20.94)
      .set("share", 0.44)
      .set("confidence", 1.0)
      .set("evidence", Json::array().push("rank 2 arrives last in 9 of 10 collectives"));
}

Json diagnosis(const Json& findings) {
  return Json::object()
      .set("schema", "kansoku.diagnosis/3")
      .set("findings", findings)
      .set("victims", Json::array().push(0).push(1).push(3))
      .set("steps", Json::object().set("count", 300).set("median_ms", 47.5).set("p95_ms", 60.0))
      .set("losses", Json::object());
}

Json view() {
  return Json::object().set("schema", "kansoku.view/2").set("ranks", Json::array().push(0));
}

std::string report(const Json& of, const Json& with = view()) {
  const Result<std::string> html = html_report(of, with);
  EXPECT_TRUE(html.has_value()) << (html ? "" : html.error().what);
  return html ? *html : std::string{};
}

TEST(HtmlReport, PutsTheVerdictInWordsOnTop) {
  const std::string html = report(diagnosis(Json::array().push(finding("Data.__getitem__"))));
  EXPECT_THAT(html,
              HasSubstr("<h1>Rank 2 slows every step by 20.9 ms: Data.__getitem__ (train.py:70)"));
  EXPECT_THAT(html, HasSubstr("Ranks 0, 1 and 3 are held up"));
  EXPECT_THAT(html, HasSubstr("<li>rank 2 arrives last in 9 of 10 collectives</li>"));
  EXPECT_THAT(html, HasSubstr("<div class=\"leaf\">  Data.__getitem__</div>"));
}

TEST(HtmlReport, AnObservationHasNoConfidence) {
  EXPECT_THAT(report(diagnosis(Json::array().push(finding("work")))),
              HasSubstr("<div><b>100 %</b><span>confidence"));
  for (const char* kind : {"page_faults", "hang"}) {
    Json of = finding("work");
    of.set("kind", kind).set("confidence", Json());
    const std::string html = report(diagnosis(Json::array().push(of)));
    EXPECT_THAT(html, HasSubstr("<div><b>observed</b><span>basis</span></div>"));
    EXPECT_THAT(html, Not(HasSubstr("<span>confidence")));
  }
}

// Null: no step is known, or no file tells since when a job stands still.
TEST(HtmlReport, ACostThatIsNotKnownIsNoZero) {
  Json of = finding("work");
  of.set("cost_ms_per_step", Json());
  const std::string slower = report(diagnosis(Json::array().push(of)));
  EXPECT_THAT(slower, HasSubstr("<h1>Rank 2 is slower, by 44 % of the time: work"));
  EXPECT_THAT(slower, Not(HasSubstr("cost of every step")));
  of.set("kind", "hang");
  EXPECT_THAT(report(diagnosis(Json::array().push(of))),
              HasSubstr("<div><b>unknown</b><span>standing still since</span></div>"));
}

TEST(HtmlReport, SaysOfEachKindWhatItIs) {
  const auto title = [](const char* kind, bool is_single = false) {
    Json of = finding("work");
    of.set("kind", kind);
    const std::string html =
        report(diagnosis(Json::array().push(of)).set("single", Json(is_single)));
    const std::size_t begin = html.find("<h1>") + 4;
    std::string said = html.substr(begin, html.find("</h1>") - begin);
    EXPECT_THAT(html, HasSubstr("<title>" + said));
    return said;
  };
  EXPECT_EQ(title("interpreter_lock"),
            "Rank 2 waits for the interpreter lock, 20.9 ms a step, held in work (train.py:70)");
  EXPECT_EQ(title("page_faults"), "Rank 2 loses 20.9 ms a step to page faults: work (train.py:70)");
  EXPECT_EQ(title("system_calls"),
            "Rank 2 loses 20.9 ms a step to system calls: work (train.py:70)");
  EXPECT_EQ(title("reclaim"),
            "Rank 2 loses 20.9 ms a step to the search for free memory: work (train.py:70)");
  EXPECT_EQ(title("interrupts"), "Rank 2 loses 20.9 ms a step to interrupts: work (train.py:70)");
  EXPECT_EQ(title("blocked"), "Rank 2 is kept waiting, 20.9 ms a step: work (train.py:70)");
  EXPECT_EQ(title("uneven_work"),
            "Rank 2 is given more work than the others, 20.9 ms a step; its data come from work "
            "(train.py:70)");
  EXPECT_EQ(title("moving_imbalance"),
            "The load moves from rank to rank, 20.9 ms a step; no rank is to blame");
  EXPECT_EQ(title("cpu_contention", true), "The process waits for a processor, 20.9 ms a step");
  EXPECT_EQ(title("common_input", true),
            "The process waits for its input, 20.9 ms a step: work (train.py:70)");
}

TEST(HtmlReport, CostsOfWindowsArePartsOfTheTime) {
  Json of = finding("work");
  of.set("kind", "uneven_time");
  const std::string html =
      report(diagnosis(Json::array().push(of))
                 .set("steps", Json::object().set("count", 0).set("found_by", "time")));
  EXPECT_THAT(html, HasSubstr("<h1>Rank 2 computes for longer than the others, "));
  EXPECT_THAT(html, HasSubstr(" % of the time"));
  EXPECT_THAT(html, HasSubstr("none; ranks are compared in windows of time"));
  EXPECT_THAT(html, Not(HasSubstr("ms a step")));
  EXPECT_THAT(html, Not(HasSubstr("cost of every step")));
}

TEST(HtmlReport, NamesTheOtherJobsOfTheRecording) {
  Json with_finding = diagnosis(Json::array().push(finding("work"))).set("job", "b<1>");
  Json healthy = diagnosis(Json::array()).set("job", "c").set("verdict", "nothing_found");
  Json unknown = diagnosis(Json::array()).set("job", "d").set("verdict", "not_enough_data");
  const std::string html =
      report(diagnosis(Json::array())
                 .set("job", "a")
                 .set("other_jobs", Json::array().push(with_finding).push(healthy).push(unknown)));
  EXPECT_THAT(html, HasSubstr("4 jobs in this recording"));
  EXPECT_THAT(html, HasSubstr("<dt>b&lt;1&gt;</dt><dd>Rank 2 slows every step"));
  EXPECT_THAT(html, HasSubstr("<dt>c</dt><dd>nothing found</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>d</dt><dd>not enough data</dd>"));
  EXPECT_THAT(report(diagnosis(Json::array())), Not(HasSubstr("jobs in this recording")));
}

TEST(HtmlReport, SaysThatNothingWasFound) {
  const std::string html = report(diagnosis(Json::array()));
  EXPECT_THAT(html, HasSubstr("<h1>Nothing found</h1>"));
  EXPECT_THAT(html, HasSubstr("300 steps were compared"));
  EXPECT_THAT(html, Not(HasSubstr("role=\"alert\"")));
}

TEST(HtmlReport, SaysThatNothingCanBeSaid) {
  const Json of = diagnosis(Json::array())
                      .set("verdict", "not_enough_data")
                      .set("missing", Json::array().push("only <one> rank"))
                      .set("steps", Json::object().set("count", 0));
  const std::string html = report(of);
  EXPECT_THAT(html, HasSubstr("<section class=\"verdict unknown\"><h1>Not enough data</h1>"));
  EXPECT_THAT(html, HasSubstr("<li>only &lt;one&gt; rank</li>"));
  EXPECT_THAT(html, Not(HasSubstr("Nothing found")));
  EXPECT_THAT(html, Not(HasSubstr("0 compared")));
  EXPECT_THAT(html, Not(HasSubstr("not explained")));
}

TEST(HtmlReport, AHangHasNoCostOfAStep) {
  Json hang = finding("main");
  hang.set("kind", "hang");
  const std::string html = report(diagnosis(Json::array().push(hang)));
  EXPECT_THAT(html, HasSubstr("<h1>Rank 2 stands still: main (train.py:70)</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("cost of every step")));
}

TEST(HtmlReport, ShowsWhatWasLostAndWhatToDo) {
  Json lossy = diagnosis(Json::array());
  const auto loss = [](const char* severity) {
    return Json::object().set("count", 12).set("severity", severity).set("advice", "raise it");
  };
  lossy.set("losses", Json::object()
                          .set("ring_dropped_records", loss("data_loss"))
                          .set("harmless_thing", loss("notice")));
  const std::string html = report(lossy);
  const auto alert = html.substr(html.find("role=\"alert\""), 300);
  EXPECT_THAT(alert, HasSubstr("<b>ring_dropped_records</b>: 12. raise it"));
  EXPECT_THAT(alert, Not(HasSubstr("<b>harmless_thing")));
}

TEST(HtmlReport, NamesOfTheTargetCannotBecomeMarkup) {
  const std::string evil = "</script><img src=x onerror=alert(1)>\" ' & \xe2\x80\xa8 {css}";
  Json picture = view();
  picture.set("functions", Json::array().push(Json::object().set("function", evil)))
      .set("facts", Json::object().set("job", evil).set("host", evil));
  const std::string html = report(diagnosis(Json::array().push(finding(evil))), picture);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("\xe2\x80\xa8\"")));
  std::size_t closes = 0;
  for (auto at = html.find("</script"); at != std::string::npos; at = html.find("</script", at + 1))
    ++closes;
  EXPECT_EQ(closes, 2U);  // the data and the program
}

TEST(HtmlReport, NeedsNoNetwork) {
  const std::string html = report(diagnosis(Json::array().push(finding("f"))));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* wanted : {"src=\"http", "href=\"http", "@import", "url(http", "fetch("})
    EXPECT_THAT(html, Not(HasSubstr(wanted)));
}

TEST(HtmlReport, IsBoundedWhateverTheJobIs) {
  Json heat = Json::array();
  Json row = Json::array();
  for (int i = 0; i < 5000; ++i)
    row.push(i);
  for (int i = 0; i < 1500; ++i)
    heat.push(row);
  Json picture = view();
  picture.set("heat", heat);
  const std::string html = report(diagnosis(Json::array()), picture);
  EXPECT_LT(html.size(), 1024U * 400 * 12);
}

TEST(HtmlReport, RefusesSchemasItDoesNotKnow) {
  Json other = diagnosis(Json::array());
  other.set("schema", "kansoku.diagnosis/9");
  EXPECT_EQ(html_report(other, view()).error().code, Code::kUnsupported);
  EXPECT_EQ(html_report(diagnosis(Json::array()), Json::object()).error().code, Code::kUnsupported);
  EXPECT_EQ(html_report(Json(), Json()).error().code, Code::kUnsupported);
}

TEST(HtmlReport, SameInputSameBytes) {
  const Json of = diagnosis(Json::array().push(finding("f")));
  EXPECT_EQ(report(of), report(of));
}

}  // namespace
}  // namespace kansoku::exporter
