// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "simulate/import/import.h"
#include "simulate/import/workload_for_test.h"

namespace kansoku::simulate::import {
namespace {

Workload wfformat_imported(std::string_view text, const ImportOptions& options = {}) {
  auto workload = import_workload(Format::kWfFormat, text, "f.json", options);
  EXPECT_TRUE(workload) << workload.error().what;
  return workload ? *std::move(workload) : Workload{};
}

std::string wfformat_error_of(std::string_view text, const ImportOptions& options = {}) {
  const auto workload = import_workload(Format::kWfFormat, text, "f.json", options);
  return workload ? "accepted" : workload.error().what;
}

/// A document with these tasks and files, and what is given of the execution.
std::string document(std::string_view tasks, std::string_view execution = "",
                     std::string_view files = "") {
  return "{\"name\": \"g\", \"workflow\": {\n\"specification\": {\"tasks\": [\n" +
         std::string(tasks) + "],\n\"files\": [" + std::string(files) + "]},\n\"execution\": {" +
         std::string(execution) + "}}}";
}

constexpr std::string_view kTwo =
    R"({"id": "a", "parents": [], "children": ["b"]},
{"id": "b", "parents": ["a"], "children": []})";

TEST(WfFormat, TasksWithTheirRuns) {
  const Workload workload = wfformat_imported(document(kTwo, R"("makespanInSeconds": 12.5,
    "tasks": [{"id": "b", "runtimeInSeconds": 1.25, "avgCPU": 93.8, "memoryInBytes": 1048577,
               "readBytes": 7, "writtenBytes": 8, "command": {"program": "x", "arguments": []}},
              {"id": "a", "runtimeInSeconds": null}],
    "machines": [{"cpu": {"coreCount": 4, "speedInMHz": 1}}, {"cpu": {"coreCount": 2}}, {}])"));
  EXPECT_EQ(text_of(workload),
            "epoch  -1\n"
            "0 +-1 @-1 a of  in g 0x0  cpu -1 mib -1 bytes -1 -1 tokens -1 -1 x1\n"
            "0 +1250000000 @-1 b of  in g 0x0  cpu 938 mib 2 bytes 7 8 tokens -1 -1 x1\n"
            "0 -> 1\n"
            "graph g: 12.5 s, 6 cores\n");
  const auto text = export_workload(Format::kWfFormat, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(text_of(wfformat_imported(*text)), text_of(workload)) << *text;
}

TEST(WfFormat, SizesOfFilesWhereBytesAreNotMeasured) {
  const Workload workload = wfformat_imported(document(
      R"({"id": "a", "inputFiles": ["x", "y"], "outputFiles": []},
         {"id": "b", "inputFiles": ["x", "unknown"], "outputFiles": ["z"]},
         {"id": "c", "inputFiles": ["x"]})",
      R"("tasks": [{"id": "c", "readBytes": 9}])",
      R"({"id": "x", "sizeInBytes": 5}, {"id": "y", "sizeInBytes": 6}, {"id": "z"})"));
  ASSERT_EQ(workload.jobs.size(), 3U);
  EXPECT_EQ(workload.jobs[0].read_bytes, 11);
  EXPECT_EQ(workload.jobs[0].written_bytes, 0);
  EXPECT_EQ(workload.jobs[1].read_bytes, -1);
  EXPECT_EQ(workload.jobs[1].written_bytes, -1);
  EXPECT_EQ(workload.jobs[2].read_bytes, 9);
  EXPECT_EQ(workload.jobs[2].written_bytes, -1);
}

TEST(WfFormat, OneOfTheTwoListsIsEnough) {
  EXPECT_EQ(
      wfformat_imported(document(R"({"id": "a", "children": ["b"]}, {"id": "b"})")).edges.size(),
      1U);
  EXPECT_EQ(wfformat_imported(document(R"({"id": "a"}, {"id": "b", "parents": ["a", "a"]})"))
                .edges.size(),
            1U);
}

TEST(WfFormat, OrderOfTheMembersHasNoMeaning) {
  const Workload workload = wfformat_imported(
      R"({"workflow": {"execution": {"tasks": [{"runtimeInSeconds": 2e0, "id": "a"}]},
                       "specification": {"tasks": [{"id": "a"}]}}})");
  EXPECT_EQ(workload.jobs[0].duration, Nanos{2'000'000'000});
  EXPECT_EQ(workload.graphs[0].name, "workflow");
  EXPECT_EQ(workload.graphs[0].makespan_s, -1);
  EXPECT_EQ(workload.graphs[0].machine_cores, -1);
}

TEST(WfFormat, ListsThatDisagree) {
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a", "children": ["b"]},
{"id": "b", "parents": ["c"]}, {"id": "c", "children": ["b"]})")),
            "f.json:3:8: task 'a' names 'b' as its child, which does not name it as its parent");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a", "children": ["b"]},
{"id": "b", "parents": ["a", "c"]}, {"id": "c"})")),
            "f.json:4:8: task 'b' names 'c' as its parent, which does not name it as its child");
}

TEST(WfFormat, Cycles) {
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "x", "parents": ["a"]},
{"id": "a", "parents": ["a"]})")),
            "f.json:4:8: task 'a' waits for itself");
}

TEST(WfFormat, ErrorsNameTaskAndPlace) {
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a"}, {"id": "a"})")),
            "f.json:3:21: task 'a' twice");
  EXPECT_EQ(wfformat_error_of(document(R"({"name": "a"})")), "f.json:3:1: task without an id");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": ""})")), "f.json:3:8: id of a task: empty");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": 5})")), "f.json:3:8: id of a task: no text");
  EXPECT_EQ(wfformat_error_of(document("[]")), "f.json:3:1: task: no object");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a", "parents": "b"})")),
            "f.json:3:24: parents: no array");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a", "parents": ["b"]})")),
            "f.json:3:25: parent 'b' of task 'a' is not a task");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a"})", R"("tasks": [{"id": "b"}])")),
            "f.json:5:32: executed task 'b' is not a task");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a"})", R"("tasks": [{"id": "a"}, {"id": "a"}])")),
            "f.json:5:45: task 'a' was executed twice");
  EXPECT_EQ(wfformat_error_of(
                document(R"({"id": "a"})", R"("tasks": [{"id": "a", "runtimeInSeconds": "1"}])")),
            "f.json:5:57: runtimeInSeconds: no number: '\"1\"'");
  EXPECT_EQ(wfformat_error_of(
                document(R"({"id": "a"})", R"("tasks": [{"id": "a", "runtimeInSeconds": -1}])")),
            "f.json:5:57: runtimeInSeconds: '-1' is out of range");
  EXPECT_EQ(wfformat_error_of(document(R"({"id": "a"})", R"("makespanInSeconds": -1)")),
            "f.json:5:36: makespanInSeconds: not a number of seconds");
}

TEST(WfFormat, NoWorkflow) {
  EXPECT_EQ(wfformat_error_of("{}"),
            "f.json:1:1: workflow.specification.tasks is missing: not WfFormat 1.5");
  EXPECT_EQ(wfformat_error_of("[]"), "f.json:1:1: not a JSON object");
  EXPECT_EQ(wfformat_error_of(R"({"workflow": 5})"), "f.json:1:14: workflow: no object");
}

TEST(WfFormat, MalformedTextNamesThePlace) {
  EXPECT_THAT(wfformat_error_of("{\"workflow\": {\n  \"x\": tru}}"),
              testing::StartsWith("f.json:2:11: malformed JSON: "));
  EXPECT_THAT(wfformat_error_of(""), testing::StartsWith("f.json:1:1: malformed JSON: "));
  EXPECT_THAT(wfformat_error_of("{\"workflow\": \"\xff\"}"),
              testing::StartsWith("f.json:1:15: malformed"));
  // Skipped parts must be JSON as well.
  EXPECT_THAT(wfformat_error_of("{\"x\": [1 2], \"workflow\": {}}"),
              testing::StartsWith("f.json:1:10: malformed JSON: "));
}

TEST(WfFormat, Limits) {
  const auto deep = [](std::size_t depth) {
    return "{\"x\": " + std::string(depth, '[') + std::string(depth, ']') +
           ", \"workflow\": {\"specification\": {\"tasks\": []}}}";
  };
  EXPECT_EQ(wfformat_error_of(deep(60)), "accepted");
  EXPECT_THAT(wfformat_error_of(deep(70)), testing::StartsWith("f.json:1:1: malformed JSON: "));
  EXPECT_EQ(wfformat_error_of(document(kTwo), {.rows_max = 2}), "accepted");
  EXPECT_EQ(wfformat_error_of(document(kTwo), {.rows_max = 1}),
            "f.json:4:1: more tasks than the limit of 1");
  EXPECT_EQ(wfformat_error_of(document("{\"id\": \"" + std::string(4096, 'x') + "\"}")),
            "accepted");
  EXPECT_EQ(wfformat_error_of(document("{\"id\": \"" + std::string(4097, 'x') + "\"}")),
            "f.json:3:8: id of a task: longer than the limit of 4096 bytes");
}

TEST(WfFormat, TasksOfOtherFormatsGetNames) {
  const auto plain = import_workload(
      Format::kPlain, "submit_s,duration_s,name\n0,1,same\n0,0.000000001,same\n", "f.csv");
  ASSERT_TRUE(plain);
  const auto text = export_workload(Format::kWfFormat, *plain);
  ASSERT_TRUE(text) << text.error().what;
  const Workload back = wfformat_imported(*text);
  EXPECT_EQ(back.names[back.jobs[1].name], "task_2");
  EXPECT_EQ(back.jobs[1].duration, Nanos{1});
}

}  // namespace
}  // namespace kansoku::simulate::import
