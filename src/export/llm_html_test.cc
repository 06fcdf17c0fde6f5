// SPDX-License-Identifier: Apache-2.0
#include "export/llm_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "export/page_for_test.h"

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json parsed(const std::string& text) {
  const auto json = Json::parse(text);
  EXPECT_TRUE(json.has_value()) << text;
  return json ? *json : Json();
}

Json work_of(const std::string& name, const std::string& phase, double share) {
  return Json::object()
      .set("op", name)
      .set("name", name + "-3")
      .set("weights", "F16 8x8x1x1 128 =" + name)
      .set("phase", phase)
      .set("share", share)
      .set("count", 200)
      .set("time_ns", 4'000'000)
      .set("flops", 8e9)
      .set("bytes", 2e9)
      .set("flops_per_second", 2e9)
      .set("bytes_per_second", 5e8)
      .set("memory_share", 0.34)
      .set("compute_share", 0.01)
      .set("bound", "memory");
}

Json llm_report_of(const std::string& name) {
  Json process = parsed(R"({"pid": 7, "ggml": "0.25.1",
    "decode": {"calls": 95, "results": {"0": 93, "1": 2}, "tokens": 300},
    "speed": {"tokens_per_second": 64.7, "prompt_tokens_per_second": 30,
              "decode_ms_p50": 15.46, "decode_ms_p99": 17.66},
    "graph_ns": 1000000, "imbalance": 0.108, "scheduler": {"known": true},
    "threads": [{"thread": 1, "busy_ns": 600000, "runnable_ns": 100000, "blocked_ns": 0,
                 "wait_ns": 390000, "outside_ns": 8000, "unexplained_ns": 2000}],
    "experts": [{"name": "ffn_moe_gate-10", "repeated": 0.45, "counts": [1, 3]},
                {"name": "ffn_moe_gate-2", "repeated": 0.5, "counts": [0, 8]}],
    "cache": {"cells": 512, "used_max": 155, "attended": 256}})");
  process.set("name", name);
  process.set(
      "operators",
      Json::array().push(work_of(name, "decode", 0.936)).push(work_of("ROPE", "prefill", 0.095)));
  process.set("nodes", Json::array().push(work_of(name, "decode", 0.5)));
  return parsed(R"({"schema": "kansoku.llm.report", "version": 2, "seconds": 4.2,
    "cost_share": 0.0182, "coverage": [{"level": "thread", "seconds": 4.2, "hits": 127805}],
    "peaks": {"bytes_per_second": 25e9, "flops_per_second": 92e9, "threads": 2}})")
      .set("findings", Json::array().push(Json::object()
                                              .set("cause", "no_processor")
                                              .set("pid", 7)
                                              .set("share", 0.52)
                                              .set("text", "threads of " + name + " were ready")))
      .set("comparison", Json::object()
                             .set("token_ratio", 1.4)
                             .set("operators", Json::array().push(work_of(name, "decode", 0.9)
                                                                      .set("base_ns", 2500)
                                                                      .set("now_ns", 3000)
                                                                      .set("ratio", 1.5))))
      .set("losses", Json::object().set(name + "_lost", 4))
      .set("processes", Json::array().push(process));
}

Json llm_view_of(const std::string& name) {
  Json graph = parsed(R"({"phase": "decode", "runs": 89, "computed": 462, "time_ns": 10000,
    "critical_ns": 6500, "layers": [[0, 400], [1, 500], [2, 800]],
    "edges": [[0, 1, true], [1, 2, false], [2, 3, false], [1, 3, true], [3, 1, true]]})");
  const auto node = [&](const std::string& part, int layer, int ns) {
    return Json::object()
        .set("name", name + "-7")
        .set("op", "MUL_MAT")
        .set("part", part)
        .set("layer", layer)
        .set("time_ns", ns);
  };
  graph.set("nodes", Json::array()
                         .push(node("layer", 0, 400).set("is_critical", true))
                         .push(node("layers", 1, 8800).set("last_layer", 22).set("nodes", 374))
                         .push(node("layer", 23, 800))
                         .push(node("output", 0, 0)));
  Json process = parsed(R"({"pid": 7, "cache": [[0.5, 32], [1.5, 155]],
    "timeline": [[0.5, 200, 32, "prefill"], [1, 15.5, 1, "decode"], [1.5, 16.5, 1, "decode"]]})");
  process.set("graph", graph);
  return parsed(R"({"schema": "kansoku.llm.view", "version": 1, "windows": [[0, 0.7], [0.9, 2]]})")
      .set("processes", Json::array().push(process));
}

TEST(LlmHtml, HasFiguresAndLosses) {
  const auto html = llm_html(llm_report_of("mulmat"), llm_view_of("Qcur"));
  ASSERT_TRUE(html.has_value());
  check_page_for_test(*html);
  EXPECT_THAT(*html, HasSubstr("<h1>64.7 tokens a second</h1>"));
  EXPECT_THAT(*html, HasSubstr("mulmat takes 93.6&nbsp;% of the time of all operators while "
                               "decoding, at 34&nbsp;% of the memory bandwidth"));
  EXPECT_THAT(*html, HasSubstr("<b>15.5 ms</b><span>a token, median"));
  EXPECT_THAT(*html, HasSubstr("<b>1.82 %</b><span>cost of observing"));
  EXPECT_THAT(*html, HasSubstr("<li>4 mulmat_lost</li>"));
  EXPECT_THAT(*html, HasSubstr("2 of 95 calls of llama_decode failed with 1 (no free cells"));
  EXPECT_LT(html->find("mulmat_lost"), html->find("<h1>"));
}

TEST(LlmHtml, HasFindingsAndWhatChanged) {
  const auto html = llm_html(llm_report_of("mulmat"), llm_view_of("Qcur"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("<b>52 %</b></td><td>Threads of mulmat were ready<small>"
                               "no_processor, process 7"));
  EXPECT_THAT(*html, HasSubstr("A token takes 1.40 times as long as there."));
  EXPECT_THAT(*html, HasSubstr("<td class=\"num\">2.50 \u00b5s</td><td class=\"num\">3 \u00b5s</td>"
                               "<td class=\"num\">1.50 \u00d7</td>"));
}

TEST(LlmHtml, DrawsWhatTheViewHolds) {
  const auto html = llm_html(llm_report_of("mulmat"), llm_view_of("Qcur"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("data-tip=\"prefill, 32 tokens\n0.200 s\""));
  EXPECT_EQ(count_for_test(*html, "data-tip=\"not observed\""), 1U);  // between the windows
  EXPECT_THAT(*html, HasSubstr("memory 25 GB/s"));
  EXPECT_THAT(*html, HasSubstr("arithmetic 92 GFLOP/s"));
  EXPECT_THAT(*html, HasSubstr("512 cells in all"));
  EXPECT_THAT(*html, HasSubstr("layer 2: 0.800 \u00b5s, 47.1 % of all layers"));
}

TEST(LlmHtml, DrawsTheGraphInColumns) {
  const auto html = llm_html(llm_report_of("mulmat"), llm_view_of("Qcur"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr(">layers 1\u201322</text>"));
  EXPECT_THAT(*html, HasSubstr(">22 layers more</text>"));
  EXPECT_THAT(*html, HasSubstr(">layer 23, output</text>"));
  EXPECT_THAT(*html, HasSubstr(">Qcur \u00b7 0.400 \u00b5s</text>"));
  EXPECT_EQ(count_for_test(*html, "class=\"edge critical\""), 2U);  // none leads back
  EXPECT_EQ(count_for_test(*html, "class=\"edge\""), 2U);
}

TEST(LlmHtml, DrawsThreadsAndExperts) {
  const auto html = llm_html(llm_report_of("mulmat"), llm_view_of("Qcur"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("data-tip=\"computes: 500 \u00b5s, 50 %\""));
  EXPECT_THAT(*html, HasSubstr("data-tip=\"ready, but without a processor: 100 \u00b5s, 10 %\""));
  EXPECT_THAT(*html, HasSubstr("data-tip=\"waits for other threads: 390 \u00b5s, 39 %\""));
  EXPECT_THAT(*html, HasSubstr("data-tip=\"expert 1: 75 % of uses\""));
  EXPECT_LT(html->find("<span>layer 2</span>"), html->find("<span>layer 10</span>"));
}

TEST(LlmHtml, EscapesEverythingFromOutside) {
  const std::string evil = "\"><script>alert(1)</script>";
  const auto html = llm_html(llm_report_of(evil), llm_view_of(evil));
  ASSERT_TRUE(html.has_value());
  check_page_for_test(*html);
  EXPECT_THAT(*html, Not(HasSubstr("<script>alert")));
}

TEST(LlmHtml, LeavesOutWhatIsUnknown) {
  Json report = llm_report_of("mulmat");
  report.set("peaks", Json());
  const auto html = llm_html(report, parsed(R"({"schema": "kansoku.llm.view", "version": 1})"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, Not(HasSubstr("<h2>Roofline")));
  EXPECT_THAT(*html, Not(HasSubstr("<h2>The graph")));
  EXPECT_THAT(*html, HasSubstr("<h2>Operators while decoding"));
}

TEST(LlmHtml, SaysThatThereIsNoModel) {
  const auto html = llm_html(parsed(R"({"schema": "kansoku.llm.report", "version": 2})"),
                             parsed(R"({"schema": "kansoku.llm.view", "version": 1})"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("No model in inference was seen"));
}

TEST(LlmHtml, TakesOddValuesOfItsSchemaAndNoOther) {
  Json report = llm_report_of("a"), view = llm_view_of("a");
  report.set("losses", 7).set("coverage", "none");
  view.set("windows", Json::array().push(3));
  EXPECT_TRUE(llm_html(report, view).has_value());
  for (const Json& other :
       {Json(report).set("version", 3), Json(report).set("schema", "x"), view}) {
    const auto refused = llm_html(other, view);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
  }
}

}  // namespace
}  // namespace kansoku::exporter
