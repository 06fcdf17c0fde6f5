// SPDX-License-Identifier: Apache-2.0
#include "export/simulation_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "export/internal/chart.h"
#include "export/internal/figure.h"
#include "export/internal/metrics.h"
#include "export/internal/page.h"

namespace kansoku::exporter {
namespace {

using ::testing::ElementsAre;

const std::string kEvil = "</script><img src=x onerror=alert(1)>\" ' & {css}";

std::string page_of(const Json& json) {
  const auto html = simulation_html(json);
  EXPECT_TRUE(html.has_value()) << (html ? "" : html.error().what);
  std::string out = html ? *html : std::string{};
  for (auto at = out.find("&nbsp;"); at != std::string::npos; at = out.find("&nbsp;", at))
    out.replace(at, 6, " ");
  return out;
}

// A page is too long to be printed by a matcher.
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::string section_of(const std::string& page, const std::string& title) {
  const auto from = page.find("<h2>" + title);
  if (from == std::string::npos) return {};
  return page.substr(from, page.find("</section>", from) - from);
}

Json metric(const std::string& name, const char* unit, double mean, double half = 0) {
  return Json::object()
      .set("name", name)
      .set("unit", unit)
      .set("mean", mean)
      .set("low", mean - half)
      .set("high", mean + half);
}

Json series(const std::string& name, double value, int count = 100) {
  Json values = Json::array();
  for (int i = 0; i < count; ++i)
    values.push(value);
  return Json::object().set("name", name).set("step_s", 3600.0).set("values", values);
}

Json run_json(double wait_s = 341) {
  Json metrics = Json::array();
  metrics.push(metric("cluster.training.utilisation", "share", 0.82, 0.02))
      .push(metric("cluster.training.queue_mean", "", 12.5, 1))
      .push(metric("cluster.compute.utilisation", "share", 0.1, 0.01))
      .push(metric("pipeline.build.arrived", "", 1200))
      .push(metric("pipeline.build.finished", "", 1190))
      .push(metric("pipeline.build.failed", "", 7))
      .push(metric("pipeline.build.sojourn_mean_s", "s", 1000, 50))
      .push(metric("task.build.train.count", "", 1195))
      .push(metric("task.build.train.wait_mean_s", "s", wait_s, wait_s / 10))
      .push(metric("task.build.train.wait_p99_s", "s", wait_s * 9, wait_s))
      .push(metric("models.churn.performance_mean", "", 0.875, 0.01))
      .push(metric("models.churn.retrainings", "", 24))
      .push(metric("store.data.bytes_read", "bytes", 2.5e12));
  Json lines = Json::array();
  lines.push(series("cluster.training.utilisation", 0.82))
      .push(series("cluster.training.queue", 12))
      .push(series("models.churn.performance", 0.9));
  return Json::object()
      .set("schema", "kansoku.simulation/1")
      .set("name", "nightly")
      .set("seed", 7)
      .set("horizon_s", 604800.0)
      .set("replications", 5)
      .set("stopped", false)
      .set("records_dropped", 0)
      .set("metrics", metrics)
      .set("series", lines);
}

Json variant(int index, const std::string& slots, double sojourn_s) {
  return Json::object()
      .set("index", index)
      .set("set", Json::object().set("clusters.gpu.slots", slots))
      .set("summary", Json::object()
                          .set("replications", 5)
                          .set("metrics", Json::array().push(metric("pipeline.build.sojourn_mean_s",
                                                                    "s", sojourn_s, 5))));
}

Json difference(int of, double mean, double half) {
  const Json values =
      Json::object().set("mean", mean).set("low", mean - half).set("high", mean + half).set("n", 5);
  return Json::object()
      .set("metric", "pipeline.build.sojourn_mean_s")
      .set("variant", of)
      .set("difference", values);
}

Json sweep_json() {
  const Json axis = Json::object()
                        .set("key", "clusters.gpu.slots")
                        .set("values", Json::array().push("10").push("20").push("40"));
  return Json::object()
      .set("schema", "kansoku.simulation_sweep/1")
      .set("name", "sizes")
      .set("axes", Json::array().push(axis))
      .set("variants_total", 3)
      .set("variants", Json::array()
                           .push(variant(0, "10", 100))
                           .push(variant(1, "20", 60))
                           .push(variant(2, "40", 59)))
      .set("comparisons", Json::array().push(difference(1, -40, 3)).push(difference(2, -1, 5)));
}

Json fit_json() {
  const auto family = [](const char* name, double ks) {
    return Json::object()
        .set("family", name)
        .set("aic", 1000 * ks)
        .set("ks", ks)
        .set("ks_held_out", ks + 0.01);
  };
  const auto pair = [](double model, double data) {
    return Json::object().set("model", model).set("data", data);
  };
  const auto statistic = [](double source, double synthetic, bool kept) {
    return Json::object().set("source", source).set("synthetic", synthetic).set("kept", kept);
  };
  const Json chosen = Json::object()
                          .set("family", "log_mixture")
                          .set("mean", pair(7200, 7000))
                          .set("qq", Json::array().push(pair(10, 11)).push(pair(100, 90)));
  return Json::object()
      .set("schema", "kansoku.workload_fit/2")
      .set("source", "philly x.csv")
      .set("jobs", 57526)
      .set("duration",
           Json::object()
               .set("families",
                    Json::array().push(family("log_mixture", 0.01)).push(family("gamma", 0.25)))
               .set("chosen", chosen)
               .set("ks_between_parts", 0.25))
      .set("hours_of_week",
           Json::object().set("hours", 160).set("families", Json::object().set("lognormal", 118)))
      .set("arrivals", Json::object()
                           .set("kind", "sessions")
                           .set("statistics", Json::object()
                                                  .set("gap_cv", statistic(17.8, 2.9, false))
                                                  .set("jobs", statistic(500, 490, true))));
}

TEST(SimulationHtml, ARunBeginsWithItsBottleneckInWords) {
  const std::string page = page_of(run_json());
  EXPECT_TRUE(has(page,
                  "<h1>Tasks \u201ctrain\u201d wait 5.68 min on average; the busiest "
                  "cluster training is used 82 %</h1>"));
  EXPECT_TRUE(has(page, "95 % interval 5.11 to 6.25 min"));
  EXPECT_TRUE(has(page, "5 replications of 7 d"));
  EXPECT_TRUE(has(page, "Of 1,200 runs of pipeline build, 7 failed."));
}

TEST(SimulationHtml, SaysThatNobodyWaits) {
  const std::string page = page_of(run_json(0));
  EXPECT_TRUE(has(page, "<h1>Nobody waits; the busiest cluster training is used 82 %</h1>"));
  EXPECT_TRUE(has(page, "class=\"verdict clean\""));
}

TEST(SimulationHtml, ARunHasEachSectionWithItsNumbers) {
  const std::string page = page_of(run_json());
  EXPECT_EQ(count_of(section_of(page, "Over time"), "<figure class=\"plot\">"), 3U);
  EXPECT_TRUE(has(section_of(page, "Over time"), "training: 82 %"));
  EXPECT_TRUE(has(section_of(page, "Waiting"), "5.68 min<small>5.11 to 6.25 min</small>"));
  EXPECT_TRUE(has(section_of(page, "Clusters"), "12.5<small>11.5 to 13.5</small>"));
  EXPECT_TRUE(has(section_of(page, "Models"), "0.875<small>0.865 to 0.885</small>"));
  EXPECT_TRUE(has(section_of(page, "Stores"), "2.50 TB"));
  EXPECT_TRUE(has(section_of(page, "The run"), "<dt>replications</dt><dd>5</dd>"));
}

TEST(SimulationHtml, OneReplicationSaysNothingOfChance) {
  const std::string page = page_of(run_json().set("replications", 1));
  EXPECT_TRUE(has(page, "One replication shows no random variation"));
  EXPECT_FALSE(has(page_of(run_json()), "no random variation"));
}

TEST(SimulationHtml, WhatWasLostIsSaid) {
  const std::string page = page_of(run_json().set("records_dropped", 12).set("stopped", true));
  EXPECT_TRUE(has(page, "12 records of single tasks were dropped"));
  EXPECT_TRUE(has(page, "stopped early"));
}

TEST(SimulationHtml, AQueueThatGrowsToTheEndIsAWarning) {
  Json values = Json::array();
  for (int i = 0; i < 100; ++i)
    values.push(i * 3);
  Json growing = Json::object();
  growing.set("name", "cluster.training.queue").set("step_s", 3600.0).set("values", values);
  const std::string page = page_of(run_json().set("series", Json::array().push(growing)));
  EXPECT_TRUE(has(page, "The queue of training is still growing at the end (268 waiting"));
  EXPECT_FALSE(has(page_of(run_json()), "still growing"));
}

TEST(SimulationHtml, ASweepNamesTheBestVariantAndWhetherThatIsClear) {
  const std::string page = page_of(sweep_json());
  EXPECT_TRUE(has(page,
                  "<h1>Lowest mean time in the system of build: 59 s, with slots = "
                  "40</h1>"));
  EXPECT_TRUE(has(page, "the difference is \u22121 s (paired, 95 % interval"));
  EXPECT_TRUE(has(page, "not clear, it may be chance."));
  const std::string table = section_of(page, "Differences to variant 0");
  EXPECT_TRUE(has(table,
                  "\u221240 s (\u221240 %)<small>\u221243.0 to \u221237.0 s</small>"
                  "<span class=\"tag good\">clear</span>"));
  EXPECT_EQ(count_of(table, "tag none\">not clear"), 1U);
}

TEST(SimulationHtml, AnAxisOfNumbersBecomesALineAndTextsBecomeRows) {
  const std::string line = section_of(page_of(sweep_json()), "The figures that differ most");
  EXPECT_TRUE(has(line, "class=\"line thin s0\""));
  Json sweep = sweep_json();
  const Json axis = Json::object()
                        .set("key", "clusters.gpu.slots")
                        .set("values", Json::array().push("10").push("fifo").push("40"));
  const std::string rows =
      section_of(page_of(sweep.set("axes", Json::array().push(axis))), "The figures that differ");
  EXPECT_FALSE(has(rows, "class=\"line thin s0\""));
  EXPECT_TRUE(has(rows, "1: slots = 20"));
}

TEST(SimulationHtml, MissingVariantsAreNamed) {
  Json sweep = sweep_json();
  sweep.set("variants", Json::array().push(variant(0, "10", 100)).push(variant(2, "40", 59)))
      .set("comparisons", Json::array());
  const std::string page = page_of(sweep);
  EXPECT_TRUE(has(page, "1 of 3 variants are missing: 1 (slots = 20)."));
  EXPECT_TRUE(has(section_of(page, "Differences"), "Not compared: variants are missing."));
}

TEST(SimulationHtml, AFitShowsFamiliesQuantilesAndWhatIsLost) {
  const std::string page = page_of(fit_json());
  EXPECT_TRUE(has(page,
                  "<h1>Durations are best described by a log mixture; the model keeps "
                  "1 of 2 figures of the arrivals</h1>"));
  EXPECT_TRUE(has(page, "differ from each other by KS 0.250"));
  EXPECT_TRUE(has(page, "The model loses: gaps, standard deviation / mean."));
  const std::string durations = section_of(page, "Durations");
  EXPECT_TRUE(has(durations, "log mixture <span class=\"tag good\">chosen</span>"));
  EXPECT_TRUE(has(durations, "quantile 2 of 2\nrecorded: 90 s\nmodel: 100 s"));
  EXPECT_EQ(count_of(section_of(page, "Arrivals"), ">lost<"), 1U);
  EXPECT_TRUE(has(section_of(page, "Hours of the week"), "160 of 168 hours"));
}

TEST(SimulationHtml, NamesCannotBecomeMarkup) {
  Json run = run_json();
  run.set("name", kEvil).set("source", kEvil);
  run.set("metrics", Json::array()
                         .push(metric("cluster." + kEvil + ".utilisation", "share", 0.5, 0.1))
                         .push(metric("task." + kEvil + "." + kEvil + ".wait_mean_s", "s", 5))
                         .push(metric(kEvil, kEvil.c_str(), 3)));
  run.set("series", Json::array().push(series("cluster." + kEvil + ".queue", 3)));
  Json sweep = sweep_json();
  sweep.set("name", kEvil)
      .set("axes", Json::array().push(
                       Json::object().set("key", kEvil).set("values", Json::array().push(kEvil))));
  Json fit = fit_json();
  fit.set("source", kEvil)
      .set("arrivals",
           Json::object()
               .set("kind", kEvil)
               .set("statistics",
                    Json::object().set(kEvil, Json::object().set("source", 1).set("kept", false))))
      .set("hours_of_week", Json::object().set("families", Json::object().set(kEvil, 3)));
  for (const Json& json : {run, sweep, fit}) {
    const std::string page = page_of(json);
    EXPECT_FALSE(has(page, "<img"));
    EXPECT_EQ(count_of(page, "</script"), 1U);
    EXPECT_EQ(count_of(page, ":root {"), 1U);
    EXPECT_TRUE(has(page, "&lt;img src=x"));
  }
}

TEST(SimulationHtml, MissingFieldsLeaveTheirSectionSayingSo) {
  const auto bare = [](const char* schema) {
    return page_of(Json::object().set("schema", schema));
  };
  const std::string run = bare("kansoku.simulation/1");
  EXPECT_TRUE(has(run, "The file has no metrics."));
  EXPECT_TRUE(has(run, "The file has no series over time."));
  EXPECT_TRUE(has(run, "The file has no figures of clusters."));
  const std::string sweep = bare("kansoku.simulation_sweep/1");
  EXPECT_TRUE(has(sweep, "The file has no variants."));
  EXPECT_TRUE(has(sweep, "The file has no comparisons."));
  const std::string fit = bare("kansoku.workload_fit/2");
  EXPECT_TRUE(has(fit, "The file has no fit of durations."));
  EXPECT_TRUE(has(fit, "The file has no statistics of the arrivals."));
}

TEST(SimulationHtml, FieldsOfTheWrongKindDoNoHarm) {
  for (const Json& sample : {run_json(), sweep_json(), fit_json()}) {
    for (const std::string& key : sample.keys()) {
      if (key == "schema") continue;
      for (const Json& wrong : {Json(), Json("x"), Json(-1), Json::object().set("a", 1),
                                Json::array().push(Json()).push("y").push(1e300)}) {
        const std::string page = page_of(Json(sample).set(key, wrong));
        EXPECT_TRUE(has(page, "</html>")) << key;
        EXPECT_EQ(count_of(page, "\"nan"), 0U) << key;
      }
    }
  }
}

TEST(SimulationHtml, ListsAreBoundedAndSayWhatWasCut) {
  Json metrics = Json::array();
  for (int i = 0; i < 500; ++i)
    metrics.push(metric("cluster.c" + std::to_string(i) + ".utilisation", "share", 0.5));
  Json lines = Json::array();
  for (int i = 0; i < 10; ++i)
    lines.push(series("cluster.c" + std::to_string(i) + ".utilisation", 0.5, 5000));
  const std::string page = page_of(run_json().set("metrics", metrics).set("series", lines));
  EXPECT_TRUE(has(page, "300 more rows are not shown"));
  EXPECT_TRUE(has(page, "4 more lines are not shown"));
  EXPECT_LT(page.size(), 300'000U);
  Json variants = Json::array();
  for (int i = 0; i < 300; ++i)
    variants.push(variant(i, std::to_string(i), 100 + i));
  const std::string sweep = page_of(sweep_json().set("variants", variants));
  EXPECT_TRUE(has(sweep, "100 more variants are not shown"));
}

TEST(SimulationHtml, NeedsNoNetworkAndNoScript) {
  for (const Json& sample : {run_json(), sweep_json(), fit_json()}) {
    const std::string page = page_of(sample);
    EXPECT_TRUE(has(page, "default-src 'none'"));
    for (const char* wanted : {"src=\"http", "href=\"http", "@import", "url(http", "fetch("})
      EXPECT_FALSE(has(page, wanted));
    EXPECT_GT(count_of(page.substr(0, page.find("<script")), "<svg"), 0U);
  }
}

TEST(SimulationHtml, SameInputSameBytes) {
  for (const Json& sample : {run_json(), sweep_json(), fit_json()})
    EXPECT_EQ(page_of(sample), page_of(sample));
}

TEST(SimulationHtml, RefusesSchemasItDoesNotKnow) {
  EXPECT_EQ(simulation_html(run_json().set("schema", "kansoku.simulation/9")).error().code,
            Code::kUnsupported);
  EXPECT_EQ(simulation_html(Json()).error().code, Code::kUnsupported);
  EXPECT_EQ(simulation_html(Json::array()).error().code, Code::kUnsupported);
}

TEST(Figures, AreWrittenForPeople) {
  EXPECT_EQ(shown(13401.4), "13,401");
  EXPECT_EQ(shown(0.02026), "0.0203");
  EXPECT_EQ(shown(-1234567.0), "\u22121,234,567");
  EXPECT_EQ(shown(-0.0), "0");
  EXPECT_EQ(shown(3e15), "3e+15");
  EXPECT_EQ(shown(0.364, Unit::kShare), "36.4 %");
  EXPECT_EQ(shown(119, Unit::kSeconds), "119 s");
  EXPECT_EQ(shown(120, Unit::kSeconds), "2 min");
  EXPECT_EQ(shown(7200, Unit::kSeconds), "2 h");
  EXPECT_EQ(shown(172800, Unit::kSeconds), "2 d");
  EXPECT_EQ(shown(0.05, Unit::kSeconds), "50 ms");
  EXPECT_EQ(shown(2.7e12, Unit::kBytes), "2.70 TB");
  EXPECT_EQ(shown_difference(90, Unit::kSeconds), "+90 s");
  EXPECT_EQ(short_number(0.1), "0.1");
  EXPECT_EQ(short_number(2500), "2,500");
}

TEST(Figures, NumbersBeyondReasonAreUnknown) {
  EXPECT_FALSE(number_in(Json(1e19)).has_value());
  EXPECT_FALSE(number_in(Json("1")).has_value());
  EXPECT_FALSE(number_in(Json(NAN)).has_value());
  EXPECT_TRUE(number_in(Json(-1e18)).has_value());
  EXPECT_EQ(shown(figure_from(Json(), "x", Unit::kSeconds)), "\u2013");
}

TEST(Figures, TicksAreWholeStepsAroundTheRange) {
  EXPECT_THAT(nice_ticks(0, 1, 5).values(),
              ElementsAre(0, 0.2, 0.4, ::testing::DoubleEq(0.6000000000000001), 0.8, 1));
  const Ticks wide = nice_ticks(-1e18, 1e18, 5);
  EXPECT_LE(wide.values().size(), 8U);
  const Ticks none = nice_ticks(5, 5, 5);
  EXPECT_LT(none.low, 5);
  EXPECT_GT(none.high, 5);
}

TEST(Metrics, AreSortedOutByTheEndsOfTheirNames) {
  const Metrics metrics = Metrics::from(
      Json::array().push(metric("task.a.b.c.wait_mean_s", "s", 3)).push(metric("events", "", 4)));
  ASSERT_EQ(metrics.of("task").size(), 1U);
  EXPECT_EQ(metrics.of("task")[0].name, "a.b.c");
  EXPECT_EQ(metrics.of("task")[0].mean("wait_mean_s"), 3);
  EXPECT_FALSE(metrics.of("task")[0].figure("count").known);
  EXPECT_EQ(in_words("pipeline.build.sojourn_mean_s"), "mean time in the system of build");
}

TEST(Pages, TextIsEscaped) {
  EXPECT_EQ(escape(std::string_view("a<b>&\"'\0\x1b\n", 9)),
            "a&lt;b&gt;&amp;&quot;&#39;\uFFFD\uFFFD");
}

TEST(Pages, TextIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abcde\u2026");
  EXPECT_EQ(shortened("\u89b3\u6e2c\u89b3\u6e2c", 5), "\u89b3\u6e2c\u2026");
}

}  // namespace
}  // namespace kansoku::exporter
