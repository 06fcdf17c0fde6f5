// SPDX-License-Identifier: Apache-2.0
#include "export/cuda_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "export/page_for_test.h"

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json report_of(const std::string& name) {
  const Json spread = Json::object().set("p50", 12.5).set("p99", 20);
  const Json kernel = Json::object()
                          .set("name", name)
                          .set("full_name", "void " + name + "(float*)")
                          .set("count", 3)
                          .set("total_us", 40.0)
                          .set("share", 0.4)
                          .set("us", spread)
                          .set("grid", "8,1,1")
                          .set("block", "256,1,1")
                          .set("shape_count", 2)
                          .set("occupancy", Json());
  const Json idle = Json::array().push(Json::object()
                                           .set("cause", "loader")
                                           .set("us", 250.0)
                                           .set("share", 0.25)
                                           .set("longest_us", 9.0));
  const Json device = Json::object()
                          .set("pid", 7)
                          .set("rank", 2)
                          .set("device", 0)
                          .set("judged_us", 1000.0)
                          .set("idle", idle);
  const Json finding = Json::object()
                           .set("kind", "gpu_starved")
                           .set("detail", "loader")
                           .set("share", 0.25)
                           .set("verdict", "rank 2: the device runs dry")
                           .set("evidence", Json::array().push(name));
  return Json::object()
      .set("schema", "kansoku.cuda_report/1")
      .set("mode", "every")
      .set("op_count", 3)
      .set("findings", Json::array().push(finding))
      .set("devices", Json::array().push(device))
      .set("kernels", Json::array().push(kernel))
      .set("memory", Json::array().push(
                         Json::object().set("pid", 7).set("rank", 2).set("high_water_bytes", 4e6)))
      .set("losses", Json::object().set("cuda_ring", Json::object().set("count", 4)));
}

Json view_of(const std::string& name) {
  const Json span = Json::object()
                        .set("begin_us", 10)
                        .set("us", 30)
                        .set("class", "copy")
                        .set("name", name)
                        .set("count", 1);
  const Json idle =
      Json::object().set("begin_us", 40).set("us", 20).set("cause", "loader").set("function", name);
  const Json timeline =
      Json::object()
          .set("pid", 7)
          .set("rank", 2)
          .set("step", 4)
          .set("step_count", 9)
          .set("us", 100.0)
          .set("lanes", Json::array().push(
                            Json::object().set("stream", 3).set("spans", Json::array().push(span))))
          .set("idle", Json::array().push(idle));
  const Json curve = Json::object().set("pid", 7).set(
      "points", Json::array()
                    .push(Json::array().push(0).push(0))
                    .push(Json::array().push(5.5).push(4'000'000)));
  return Json::object()
      .set("schema", "kansoku.cuda_view/1")
      .set("causes", Json::object().set("loader", "waits for data"))
      .set("timelines", Json::array().push(timeline))
      .set("memory", Json::array().push(curve));
}

TEST(CudaHtml, HasTheFindingTheStepAndTheKernels) {
  const auto html = cuda_html(report_of("rope"), view_of("rope"));
  ASSERT_TRUE(html.has_value());
  check_page_for_test(*html);
  EXPECT_THAT(*html, HasSubstr("<h1>Rank 2: the device runs dry</h1>"));
  EXPECT_THAT(*html, HasSubstr("idle, waits for data: 250 \u00b5s, 25 %"));
  EXPECT_THAT(*html, HasSubstr("Rank 2: step 5 of 9, the longest, 100 \u00b5s"));
  EXPECT_THAT(
      *html, HasSubstr("x=\"100.00\" y=\"1\" width=\"300.00\" height=\"18\" data-tip=\"copy rope"));
  EXPECT_THAT(*html, HasSubstr("idle: the thread waits for data, mostly in rope"));
  EXPECT_THAT(*html, HasSubstr("8,1,1 \u00d7 256,1,1, 1 more"));
  EXPECT_THAT(*html, HasSubstr("Live device memory"));
  EXPECT_THAT(*html, HasSubstr("cuda_ring: 4"));
}

TEST(CudaHtml, EscapesEverythingFromOutside) {
  const std::string evil = "\"><script>alert(1)</script>";
  const auto html = cuda_html(report_of(evil), view_of(evil));
  ASSERT_TRUE(html.has_value());
  check_page_for_test(*html);
  EXPECT_THAT(*html, Not(HasSubstr("<script>alert")));
}

TEST(CudaHtml, SaysThatThereIsNoWork) {
  const auto html = cuda_html(Json::object().set("schema", "kansoku.cuda_report/1"),
                              Json::object().set("schema", "kansoku.cuda_view/1"));
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr("No device work"));
}

TEST(CudaHtml, TakesOddValuesOfItsSchemaAndNoOther) {
  Json report = report_of("a"), view = view_of("a");
  report.set("kernels", "none").set("devices", 7).set("findings", Json());
  view.set("timelines", Json::array().push(3)).set("memory", -1);
  EXPECT_TRUE(cuda_html(report, view).has_value());
  const auto other = cuda_html(report, Json::object().set("schema", "kansoku.view/2"));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::exporter
