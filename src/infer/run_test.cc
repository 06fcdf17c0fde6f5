// SPDX-License-Identifier: Apache-2.0
#include "infer/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr Span kOpen{10, 0};  // without an end

TEST(ReadRun, OfATraceOfSomethingElseIsEmpty) {
  RecordingForTest recording;
  recording.slice(recording.custom_track("other"), {1, 2}, "decode", "other", {});
  recording.instant("other", "x", {});
  const auto run = recording.run();
  EXPECT_THAT(run.processes, IsEmpty());
  EXPECT_THAT(run.windows, IsEmpty());
  EXPECT_EQ(run.unreadable, 0U);
  EXPECT_NE(run.trace, nullptr);
}

TEST(ReadRun, TakesCallsAndPutsEachIntoTheOneAround) {
  RecordingForTest recording;
  recording.engine("0.25.1");
  recording.window({0, 1000}, "operator", 77, 500);
  recording.decode({10, 100}, 3, -1);
  recording.micro_batch({20, 90}, 3, 1, "0:5 0:6 2:-1");
  recording.split({25, 85});
  recording.graph({30, 80}, 1, 42);
  recording.op({31, 40}, {.graph = 1, .node = 2, .name = "A+B", .experts = "1x1 4"});
  recording.op({32, 41}, {.graph = 1, .node = 2, .name = "A+B", .ith = 3});
  recording.wait({40, 45});
  const auto run = recording.run();
  ASSERT_EQ(run.processes.size(), 1U);
  const Process& process = run.processes[0];
  EXPECT_EQ(process.pid, 100);
  EXPECT_EQ(process.name, "llama-server");
  EXPECT_EQ(process.ggml, "0.25.1");
  ASSERT_EQ(process.splits.size(), 1U);
  EXPECT_EQ(process.splits[0].micro_batch, 0U);
  EXPECT_EQ(process.splits[0].definition, std::nullopt);
  EXPECT_TRUE(process.splits[0].is_on_cpu) << "its graph ran on the CPU";
  ASSERT_EQ(process.decodes.size(), 1U);
  EXPECT_EQ(process.decodes[0].span.ns(), 90);
  EXPECT_EQ(process.decodes[0].tokens, 3);
  EXPECT_EQ(process.decodes[0].result, -1);
  EXPECT_EQ(process.decodes[0].caller, 101U);
  ASSERT_EQ(process.micro_batches.size(), 1U);
  const MicroBatch& batch = process.micro_batches[0];
  EXPECT_EQ(batch.decode, 0U);
  EXPECT_EQ(batch.tokens, 3);
  EXPECT_EQ(batch.sequences, 1);
  EXPECT_TRUE(batch.is_prefill);
  ASSERT_EQ(batch.rows.size(), 3U);
  EXPECT_EQ(batch.rows[1].position, 6);
  EXPECT_EQ(batch.rows[2].sequence, 2);
  EXPECT_EQ(batch.rows[2].position, -1);
  ASSERT_EQ(process.graphs.size(), 1U);
  EXPECT_EQ(process.graphs[0].definition, 1U);
  EXPECT_EQ(process.graphs[0].uid, 42);
  EXPECT_EQ(process.graphs[0].micro_batch, 0U);
  EXPECT_TRUE(process.graphs[0].is_whole);
  ASSERT_EQ(process.operators.size(), 2U);
  EXPECT_EQ(process.operators[0].graph, 0U);
  EXPECT_EQ(process.operators[0].tid, 101);
  EXPECT_EQ(run.trace->str(process.operators[0].name), "A+B");
  EXPECT_EQ(run.trace->str(process.operators[0].experts), "1x1 4");
  EXPECT_EQ(process.operators[1].ith, 3);
  EXPECT_EQ(process.operators[1].tid, 203);
  ASSERT_EQ(process.waits.size(), 1U);
  EXPECT_EQ(process.waits[0].graph, 0U);
  ASSERT_EQ(run.windows.size(), 1U);
  EXPECT_EQ(run.windows[0].level, trace::ModelLevel::kOperator);
  EXPECT_EQ(run.windows[0].hits, 77U);
  EXPECT_DOUBLE_EQ(run.windows[0].cost_ns, 500);
  EXPECT_EQ(run.unreadable, 0U);
}

TEST(ReadRun, TakesDefinitions) {
  RecordingForTest recording;
  recording.node(
      1, 1,
      {"MUL_MAT", "out-0", "F32 6x1x1x1 24", {"F32 4x6x1x1 96 =blk.0.w", "F32 4x1x1x1 16 #0"}, 7});
  recording.node(2, 0, {"VIEW", "v", "F32 6x1x1x1 24", {"nonsense", "F32 4x1x1x1 16 #0"}});
  const auto run = recording.run();
  const auto& definitions = run.processes.at(0).definitions;
  ASSERT_EQ(definitions.size(), 2U);
  ASSERT_EQ(definitions.at(1).nodes.size(), 2U);
  EXPECT_EQ(definitions.at(1).nodes[0].op, "") << "the recording lacks it";
  const Node& node = definitions.at(1).nodes[1];
  EXPECT_EQ(node.op, "MUL_MAT");
  EXPECT_EQ(node.name, "out-0");
  EXPECT_EQ(node.variant, 7U);
  ASSERT_EQ(node.sources.size(), 2U);
  EXPECT_EQ(node.sources[0].leaf, "blk.0.w");
  EXPECT_EQ(node.sources[1].node, 0U);
  EXPECT_DOUBLE_EQ(node.flops, 2 * 4 * 6);
  EXPECT_FALSE(node.is_view);
  EXPECT_TRUE(definitions.at(2).nodes[0].is_view);
  EXPECT_THAT(definitions.at(2).nodes[0].sources, IsEmpty());
}

TEST(ReadRun, KeepsProcessesAndThreadsApart) {
  RecordingForTest recording;
  const auto calls = [&](std::int64_t at) {
    recording.micro_batch({at, at + 50}, 1, 1, "");
    recording.graph({at + 10, at + 40}, 1);
    recording.op({at + 15, at + 20}, {});
  };
  recording.process(200, "second");
  calls(1000);
  recording.process(100, "first");
  calls(1000);
  recording.caller(102);
  calls(1005);  // at the same time
  const auto run = recording.run();
  ASSERT_EQ(run.processes.size(), 2U);
  EXPECT_EQ(run.processes[0].pid, 100);
  EXPECT_EQ(run.processes[1].name, "second");
  EXPECT_EQ(run.processes[1].operators.size(), 1U);
  const Process& process = run.processes[0];
  ASSERT_EQ(process.graphs.size(), 2U);
  EXPECT_EQ(process.graphs[0].micro_batch, 0U);
  EXPECT_EQ(process.graphs[1].micro_batch, 1U);
  ASSERT_EQ(process.operators.size(), 2U);
  EXPECT_EQ(process.operators[0].graph, 0U);
  EXPECT_EQ(process.operators[1].graph, 1U);
}

TEST(ReadRun, SortsByTimeWhateverTheOrderInTheFile) {
  RecordingForTest recording;
  recording.decode({100, 110}, 2);
  recording.decode({50, 60}, 1);
  const auto run = recording.run();
  EXPECT_EQ(run.processes.at(0).decodes.at(0).tokens, 1);
}

TEST(ReadRun, LeavesOutWhatHasNoEnd) {
  RecordingForTest recording;
  recording.graph({20, 30}, 1);
  recording.micro_batch(kOpen, 1, 1, "");
  recording.window({5, 6}, "thread");
  const auto run = recording.run();
  EXPECT_THAT(run.processes.at(0).micro_batches, IsEmpty());
  EXPECT_EQ(run.processes[0].graphs.at(0).micro_batch, kNone);
  EXPECT_EQ(run.unreadable, 0U);
}

TEST(ReadRun, AGraphIsWholeWithinOneWindowThatSeesOperators) {
  RecordingForTest recording;
  recording.window({100, 200}, "graph");
  recording.window({200, 300}, "operator");
  recording.window({300, 400}, "thread");
  for (const Span span : {Span{110, 120}, Span{190, 210}, Span{200, 300}, Span{290, 310},
                          Span{310, 320}, Span{390, 401}})
    recording.graph(span, 1);
  const auto run = recording.run();
  std::vector<bool> whole;
  for (const Graph& graph : run.processes.at(0).graphs)
    whole.push_back(graph.is_whole);
  EXPECT_THAT(whole, ElementsAre(false, false, true, false, true, false));
}

// Beside a fast model's graphs, those of a slow one lie far back.
TEST(ReadRun, OperatorsOfASlowGraphAreItsOwnWhateverOthersDo) {
  RecordingForTest recording;
  recording.node(1, 0, {"ADD", "sum", "F32 4x1x1x1 16"});
  recording.graph({10, 100'000}, 1);
  recording.op({90'000, 95'000}, {1, 0, "ADD"});
  recording.caller(102);
  for (int i = 0; i < 500; ++i)
    recording.graph({100 + 100 * i, 150 + 100 * i}, 1, 2);
  recording.graph({89'990, 89'999}, 1, 2);
  const auto run = recording.run();
  ASSERT_EQ(run.processes.at(0).operators.size(), 1U);
  EXPECT_EQ(run.processes[0].operators[0].graph, 0U);
}

TEST(ReadRun, APromptHasMoreTokensThanSequences) {
  RecordingForTest recording;
  recording.micro_batch({10, 20}, 1, 1, "0:9");
  recording.micro_batch({30, 40}, 4, 4, "");
  recording.micro_batch({50, 60}, 5, 4, "");
  recording.micro_batch({70, 80}, 1, 0, "");
  recording.micro_batch({90, 99}, 2, 0, "");
  std::vector<bool> prefill;
  const auto run = recording.run();
  for (const MicroBatch& one : run.processes.at(0).micro_batches)
    prefill.push_back(one.is_prefill);
  EXPECT_THAT(prefill, ElementsAre(false, false, true, false, true));
}

std::vector<std::pair<std::int64_t, std::int64_t>> drafts_and_generated(const Run& run) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const MicroBatch& one : run.processes.at(0).micro_batches)
    out.emplace_back(one.drafts, one.generated);
  return out;
}

TEST(ReadRun, DraftsAreNoPrompt) {
  RecordingForTest recording;
  recording.micro_batch({10, 20}, 3, 1, "0:0 0:1 0:2", 4);
  recording.micro_batch({30, 40}, 3, 1, "0:3 0:4 0:5", 7);  // of two drafts one is accepted
  recording.micro_batch({50, 60}, 3, 1, "0:5 0:6 0:7", 7);  // both
  recording.micro_batch({70, 80}, 3, 2, "0:8 0:9 1:7", 7);  // unknown: nothing comes behind it
  EXPECT_THAT(drafts_and_generated(recording.run()),
              ElementsAre(Pair(0, 0), Pair(2, 2), Pair(2, 3), Pair(1, 2)));
}

TEST(ReadRun, EvaluationsAndFurtherPromptsAreNoDrafts) {
  RecordingForTest recording;
  recording.micro_batch({10, 20}, 3, 1, "0:0 0:1 0:2", 7);  // all outputs: an evaluation
  recording.micro_batch({30, 40}, 3, 1, "0:3 0:4 0:5", 7);
  recording.micro_batch({50, 60}, 1, 1, "0:6", 1);
  recording.micro_batch({70, 80}, 2, 1, "0:7 0:8", 2);   // a user goes on
  recording.micro_batch({82, 84}, 2, 1, "0:0 0:1", 3);   // an evaluation begins
  recording.micro_batch({86, 88}, 2, 1, "0:2 0:3");      // a build that does not tell
  recording.micro_batch({90, 98}, 40, 1, "0:8 0:9", 3);  // more tokens than are shown
  recording.micro_batch({102, 104}, 1, 1, "0:2147483647", 1);
  recording.micro_batch({106, 108}, 2, 1, "0:1 0:2147483647", 3);  // the last position there is
  EXPECT_THAT(drafts_and_generated(recording.run()),
              ElementsAre(Pair(0, 0), Pair(0, 0), Pair(0, 1), Pair(0, 0), Pair(0, 0), Pair(0, 0),
                          Pair(0, 0), Pair(0, 1), Pair(1, 1)));
}

TEST(ReadRun, TakesRowsUpToWhatIsNone) {
  RecordingForTest recording;
  for (const std::string_view rows :
       {"", "0:1", "0:1 x", "0:1 2 0:3", "0:1  0:2", "a:1", "0:99999999999"})
    recording.micro_batch({10, 20}, 1, 1, rows);
  std::vector<std::size_t> counts;
  const auto run = recording.run();
  for (const MicroBatch& one : run.processes.at(0).micro_batches)
    counts.push_back(one.rows.size());
  EXPECT_THAT(counts, ElementsAre(0, 1, 1, 1, 1, 0, 0));
}

TEST(ReadRun, CountsWhatMakesNoSense) {
  RecordingForTest recording;
  const auto track = recording.custom_track("some track");
  recording.slice(track, {1, 2}, "decode", trace::kModelDecode, {});
  recording.slice(track, {1, 2}, "ADD", trace::kModelOperator, {});
  recording.slice(recording.custom_track(trace::graph_thread_track(65536, 1)), {1, 2}, "wait",
                  trace::kModelWait, {});
  recording.slice(recording.custom_track(trace::graph_thread_track(0, 1)), {1, 2}, "ADD",
                  trace::kModelOperator, {trace::Arg::uint(recording.key("graph"), 1)});
  recording.window({1, 2}, "everything");
  recording.node(1, 0, {"ADD", "n", "F32 1x1x1 4"});
  recording.node(1, 65536, {"ADD", "n", "F32 1x1x1x1 4"});
  recording.instant(trace::kModelNode, "n", {});
  const auto run = recording.run();
  EXPECT_EQ(run.unreadable, 8U);
  for (const Process& process : run.processes) {
    EXPECT_THAT(process.decodes, IsEmpty());
    EXPECT_THAT(process.operators, IsEmpty());
    EXPECT_THAT(process.definitions, IsEmpty());
  }
}

TEST(ReadRun, NumbersAreBounded) {
  RecordingForTest recording;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  recording.decode({1, 2}, kMost);
  recording.decode({3, 4}, 1, kMost);
  recording.micro_batch({5, 6}, std::numeric_limits<std::uint64_t>::max(), 1, "");
  recording.micro_batch({7, 8}, static_cast<std::uint64_t>(kMost), 1, "");
  recording.op({1, 2}, {.graph = 1, .node = 0xffffffff});
  const auto run = recording.run();
  for (const Decode& one : run.processes.at(0).decodes)
    EXPECT_LE(one.tokens, std::numeric_limits<std::int32_t>::max());
  for (const MicroBatch& one : run.processes[0].micro_batches)
    EXPECT_LE(one.tokens, std::numeric_limits<std::int32_t>::max());
  EXPECT_THAT(run.processes[0].operators, IsEmpty());
  EXPECT_EQ(run.unreadable, 1U);
}

TEST(ReadRun, NodesThatTheRecordingLacksAreBounded) {
  RecordingForTest recording;
  for (std::uint32_t graph = 0; graph < 100; ++graph)
    recording.node(graph, 65535, {"ADD", "n", "F32 1x1x1x1 4"});
  const auto run = recording.run();
  std::size_t nodes = 0;
  for (const auto& [number, definition] : run.processes.at(0).definitions)
    nodes += definition.nodes.size();
  EXPECT_LE(nodes, std::size_t{1} << 17);
  EXPECT_EQ(run.unreadable, 99U);
}

}  // namespace
}  // namespace kansoku::infer
