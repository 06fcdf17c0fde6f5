// SPDX-License-Identifier: Apache-2.0
// Our own table, and what exporters refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "simulate/import/import.h"
#include "simulate/import/workload_for_test.h"

namespace kansoku::simulate::import {
namespace {

Workload plain_imported(std::string_view text, const ImportOptions& options = {}) {
  auto workload = import_workload(Format::kPlain, text, "f.csv", options);
  EXPECT_TRUE(workload) << workload.error().what;
  return workload ? *std::move(workload) : Workload{};
}

std::string plain_error_of(std::string_view text) {
  const auto workload = import_workload(Format::kPlain, text, "f.csv");
  return workload ? "accepted" : workload.error().what;
}

std::string refusal_of(Format format, const Workload& workload) {
  const auto text = export_workload(format, workload);
  if (text) return "accepted";
  EXPECT_EQ(text.error().code, Code::kUnsupported);
  return text.error().what;
}

constexpr std::string_view kWhole =
    "# epoch 2017-10-02 12:00:00.25\n"
    "submit_s,duration_s,name,group,gpus,gpu_milli,gpu_type,cpu_milli,memory_mib,graph,parents,"
    "read_bytes,written_bytes,tokens_in,tokens_out,scheduled_s,censored,instances\n"
    "0,1.5,a,u,1,500,A|B,100,200,g,,1,2,3,4,0.25,1,2\n"
    "1,,b;c,u,8,1000,,,,g,a,,,,,,0,1\n"
    "2,3,\"d\\,\",,0,,,,,g,a;b\\;c,,,,,,0,1\n";

TEST(Plain, EveryColumn) {
  const Workload workload = plain_imported(kWhole);
  EXPECT_EQ(text_of(workload),
            "epoch 2017-10-02 12:00:00.25 43200\n"
            "0 +1500000000 @250000000 a of u in g 1x500 A|B cpu 100 mib 200 bytes 1 2 tokens 3 4 "
            "x2 censored\n"
            "1000000000 +-1 @-1 b;c of u in g 8x1000  cpu -1 mib -1 bytes -1 -1 tokens -1 -1 x1\n"
            "2000000000 +3000000000 @-1 d\\, of  in g 0x0  cpu -1 mib -1 bytes -1 -1 tokens -1 -1 "
            "x1\n"
            "0 -> 1\n0 -> 2\n1 -> 2\n"
            "graph g: -1 s, -1 cores\n");
  const auto text = export_workload(Format::kPlain, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text, kWhole);
}

TEST(Plain, ColumnsWithoutNewsAreNotWritten) {
  const Workload workload = plain_imported("duration_s,submit_s,gpus\n1,5,\n2,3,0\n");
  const auto text = export_workload(Format::kPlain, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text, "submit_s,duration_s\n3,2\n5,1\n");
}

TEST(Plain, Errors) {
  constexpr std::string_view kHeader = "submit_s,duration_s,name,graph,parents\n";
  const auto with = [&](std::string_view rows) { return std::string(kHeader) + std::string(rows); };
  EXPECT_EQ(plain_error_of("# epoch yesterday\nsubmit_s,duration_s\n"),
            "f.csv:1:1: not a line like '# epoch 2017-10-02 00:00:00': '# epoch yesterday'");
  EXPECT_EQ(plain_error_of("duration_s\n"), "f.csv:1:1: column 'submit_s' is missing");
  EXPECT_EQ(plain_error_of(with("-1,1,,,\n")), "f.csv:2:1: '-1' is outside 0..4200000000");
  EXPECT_EQ(plain_error_of(with("1,1,a,,b\n")), "f.csv:2:8: parents without a graph");
  EXPECT_EQ(plain_error_of(with("1,1,a,g,b\n")), "f.csv:2:9: parent 'b' is no task of graph 'g'");
  EXPECT_EQ(plain_error_of(with("1,1,b,h,\n1,1,a,g,b\n")),
            "f.csv:3:9: parent 'b' is no task of graph 'g'");
  EXPECT_EQ(plain_error_of(with("1,1,b,g,\n1,1,b,g,\n1,1,a,g,b\n")),
            "f.csv:4:9: parent 'b' is more than one task of graph 'g'");
  EXPECT_EQ(plain_error_of(with("1,1,b,g,\n1,1,a,g,b;\n")), "f.csv:3:9: ';' ends the list");
  EXPECT_EQ(plain_error_of(with("1,1,b,g,\n1,1,a,g,;b\n")), "f.csv:3:9: not a name of a task: ''");
  EXPECT_EQ(plain_error_of(with("1,1,b,g,\n1,1,a,g,b\\\n")),
            "f.csv:3:9: a backslash ends the list");
  EXPECT_EQ(plain_error_of(with("1,1,a,g,b\n1,1,b,g,a\n")), "f.csv:2:9: task 'a' waits for itself");
  EXPECT_EQ(plain_error_of(with("1,1,a,g,a\n")), "f.csv:2:9: task 'a' waits for itself");
  EXPECT_EQ(plain_error_of("submit_s,duration_s,scheduled_s\n5,1,4\n"),
            "f.csv:2:5: before the submission");
  EXPECT_EQ(plain_error_of("submit_s,duration_s,gpus,gpu_milli\n5,1,2,500\n"),
            "f.csv:2:7: below 1000 only with one GPU");
  EXPECT_EQ(plain_error_of("submit_s,duration_s,censored\n5,1,yes\n"),
            "f.csv:2:5: no number: 'yes'");
  EXPECT_EQ(plain_error_of("submit_s,duration_s,tokens_in\n5,1,1000000000000000001\n"),
            "f.csv:2:5: '1000000000000000001' is outside 0..1000000000000000000");
}

TEST(Plain, TimesHaveALimit) {
  EXPECT_EQ(plain_error_of("submit_s,duration_s\n4200000000,4200000000\n"), "accepted");
  EXPECT_EQ(plain_error_of("submit_s,duration_s\n4200000000.000000001,1\n"),
            "f.csv:2:1: '4200000000.000000001' is outside 0..4200000000");
}

TEST(Plain, ParentThatIsMissingIsLeftOutAndCounted) {
  const Workload workload = plain_imported(
      "submit_s,duration_s,name,graph,parents\n1,1,a,g,b\n1,1,c,g,a\n", {.skip_bad_rows = true});
  EXPECT_EQ(workload.jobs.size(), 2U);
  EXPECT_EQ(workload.edges.size(), 1U);
  EXPECT_EQ(workload.bad_rows, 1U);
}

TEST(Export, WhatAFormatCannotHold) {
  Workload workload;
  workload.jobs.resize(1);
  EXPECT_EQ(refusal_of(Format::kPhilly, workload), "export philly: job 0: its duration is unknown");
  EXPECT_EQ(refusal_of(Format::kAlibabaBatch, workload),
            "export alibaba-batch: job 0: its duration is unknown");
  workload.graphs = {{.name = "g"}, {.name = "g"}};
  EXPECT_EQ(refusal_of(Format::kWfFormat, workload),
            "export wfformat: 2 graphs, the format holds one");
  EXPECT_EQ(refusal_of(Format::kPlain, workload), "export plain: two graphs are named 'g'");
  workload.graphs.pop_back();
  EXPECT_EQ(refusal_of(Format::kWfFormat, workload), "export wfformat: jobs outside of the graph");
  workload.jobs[0].submit = Nanos{-1};
  EXPECT_EQ(refusal_of(Format::kPlain, workload),
            "export workload: job 0: its submission is negative or later than 133 years");
  workload.jobs[0].submit = Nanos{0};
  workload.epoch = "soon";
  EXPECT_EQ(refusal_of(Format::kAzureLlm, workload),
            "export workload: its epoch is not a civil time: 'soon'");
  workload.epoch = "2099-12-31 00:00:00";
  workload.jobs[0].submit = std::chrono::hours(24);
  EXPECT_EQ(refusal_of(Format::kAzureLlm, workload),
            "export workload: job 0: it is submitted after the year 2099");
}

TEST(Export, ParentsAreToldByName) {
  Workload workload;
  workload.jobs.resize(2);
  workload.edges = {{0, 1}};
  EXPECT_EQ(refusal_of(Format::kPlain, workload),
            "export plain: an edge leads out of its graph, from task ''");
  EXPECT_EQ(refusal_of(Format::kAlibabaBatch, workload),
            "export alibaba-batch: job 1: its parent is in another graph");
  workload.graphs = {{.name = "g"}};
  workload.jobs[0].graph = workload.jobs[1].graph = 1;
  EXPECT_EQ(refusal_of(Format::kPlain, workload),
            "export plain: several tasks have the name of a parent: ''");
}

TEST(Export, WithoutAnEpochTheHourOfTheWeekIsKept) {
  Workload workload = plain_imported("submit_s,duration_s\n0,1\n");
  workload.epoch_in_week_s = 3 * 86'400 + 7;
  const auto text = export_workload(Format::kPhilly, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text, "timestamp,duration,num_gpus,gpu_time,cluster\n2001-01-04 00:00:07,1,0,0,\n");
  const auto back = import_workload(Format::kPhilly, *text, "f.csv");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->epoch_in_week_s, 3 * 86'400 + 7);
}

}  // namespace
}  // namespace kansoku::simulate::import
