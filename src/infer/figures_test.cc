// SPDX-License-Identifier: Apache-2.0
#include "infer/figures.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "infer/report.h"
#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kMs = 1'000'000;

Report report_of(RecordingForTest& recording) {
  return make_report(recording.run());
}
ProcessFigures figures_of(RecordingForTest& recording) {
  const Report report = report_of(recording);
  EXPECT_EQ(report.processes.size(), 1U);
  return report.processes.empty() ? ProcessFigures{} : report.processes[0];
}
/// norm -> product -> sum, where the product has 2 * 4 * 6 = 48 FLOPs.
void define_small(RecordingForTest& recording, std::uint32_t graph) {
  recording.node(graph, 0, {"RMS_NORM", "norm-0", "F32 4x1x1x1 16", {"F32 4x1x1x1 16 =inp"}});
  recording.node(graph, 1,
                 {"MUL_MAT",
                  "out-0",
                  "F32 6x1x1x1 24",
                  {"F16 4x6x1x1 48 =blk.0.w.weight", "F32 4x1x1x1 16 #0"}});
  recording.node(graph, 2, {"VIEW", "view-0", "F32 6x1x1x1 24", {"F32 6x1x1x1 24 #1"}});
  recording.node(graph, 3,
                 {"ADD", "sum-0", "F32 6x1x1x1 24", {"F32 6x1x1x1 24 #2", "F32 6x1x1x1 24 =bias"}});
}

TEST(Figures, OfNothingAreNone) {
  RecordingForTest recording;
  const Report report = report_of(recording);
  EXPECT_THAT(report.processes, IsEmpty());
  EXPECT_DOUBLE_EQ(report.seconds, 0);
  EXPECT_DOUBLE_EQ(report.cost_share, 0);
  EXPECT_THAT(to_text(report, {}), HasSubstr("no model in inference was seen"));
}

TEST(Figures, CountCallsAndTheirResults) {
  RecordingForTest recording;
  recording.decode({10, 20}, 5, 0);
  recording.decode({30, 40}, 1, 0);
  recording.decode({50, 60}, 1, 1);
  recording.decode({70, 80}, 1, std::nullopt);
  const ProcessFigures figures = figures_of(recording);
  EXPECT_EQ(figures.decodes, 4U);
  EXPECT_EQ(figures.decode_tokens, 8);
  EXPECT_EQ(figures.unanswered, 1U);
  EXPECT_THAT(figures.results, ElementsAre(Pair(0, 2U), Pair(1, 1U)));
  EXPECT_EQ(figures.tokens_per_second, std::nullopt) << "what is not recorded is not known";
  EXPECT_EQ(figures.ms_p50, std::nullopt);
}

TEST(Figures, TellPromptsFromGeneration) {
  RecordingForTest recording;
  // A prompt of 12 tokens in two micro-batches, in 10 ms each of a call of 25 ms.
  recording.decode({0, 25 * kMs}, 12);
  recording.micro_batch({1 * kMs, 11 * kMs}, 8, 1, "");
  recording.micro_batch({12 * kMs, 22 * kMs}, 4, 1, "");
  // Then one token a call: 2, 4 and 6 ms, of which the micro-batch is a part.
  recording.decode({30 * kMs, 32 * kMs}, 1);
  recording.micro_batch({30 * kMs, 31 * kMs}, 1, 1, "");
  recording.decode({40 * kMs, 44 * kMs}, 1);
  recording.micro_batch({41 * kMs, 43 * kMs}, 1, 1, "");
  recording.decode({50 * kMs, 56 * kMs}, 1);
  recording.micro_batch({51 * kMs, 53 * kMs}, 1, 1, "");
  const ProcessFigures figures = figures_of(recording);
  EXPECT_EQ(figures.prompt, 12);
  EXPECT_EQ(figures.generated, 3);
  EXPECT_EQ(figures.micro_batches, 5U);
  EXPECT_EQ(figures.micro_batch_tokens, 15);
  EXPECT_THAT(figures.prefill_per_second.value(), DoubleEq(12 / 0.020));
  EXPECT_THAT(figures.tokens_per_second.value(), DoubleEq(3 / 0.012));
  EXPECT_THAT(figures.ms_p50.value(), DoubleEq(4));
  EXPECT_THAT(figures.ms_p99.value(), DoubleEq(4)) << "of three, rounded down";
}

TEST(Figures, AddUpOperatorsByPhase) {
  RecordingForTest recording;
  define_small(recording, 1);
  recording.micro_batch({1000, 2000}, 1, 1, "");
  recording.graph({1100, 1900}, 1, 7);
  recording.op({1100, 1200}, {.node = 0, .name = "RMS_NORM"});
  recording.op({1200, 1500}, {.node = 1, .name = "MUL_MAT"});
  recording.op({1500, 1600}, {.node = 3, .name = "ADD"});
  recording.micro_batch({3000, 4000}, 9, 1, "");
  recording.graph({3100, 3900}, 1, 8);
  recording.op({3100, 3700}, {.node = 1, .name = "MUL_MAT"});
  recording.graph({5000, 5100}, 1, 7);  // of no micro-batch
  recording.op({5000, 5040}, {.node = 1, .name = "MUL_MAT"});
  recording.op({6000, 6100}, {.node = 1, .name = "MUL_MAT"});  // of no graph
  const ProcessFigures figures = figures_of(recording);
  EXPECT_EQ(figures.graphs, 3U);
  EXPECT_EQ(figures.graphs_whole, 0U);
  EXPECT_EQ(figures.uids, 2U);
  std::vector<std::string> rows;
  for (const OperatorRow& row : figures.operators)
    rows.push_back(fmt::format("{} {} {} x {} ns {} FLOP {} B {}", phase_name(row.phase), row.op,
                               row.work.count, row.work.ns, row.work.flops, row.work.bytes,
                               row.share));
  EXPECT_THAT(rows, ElementsAre("prefill MUL_MAT 1 x 600 ns 48 FLOP 88 B 1",
                                "decode MUL_MAT 1 x 300 ns 48 FLOP 88 B 0.6",
                                "decode ADD 1 x 100 ns 6 FLOP 72 B 0.2",
                                "decode RMS_NORM 1 x 100 ns 4 FLOP 32 B 0.2",
                                "other MUL_MAT 1 x 40 ns 48 FLOP 88 B 1"));
  ASSERT_EQ(figures.nodes.size(), 5U);
  EXPECT_EQ(figures.nodes[0].name, "out-0");
  EXPECT_EQ(figures.nodes[0].weights, "F16 4x6x1x1 48 =blk.0.w.weight");
  EXPECT_EQ(figures.nodes[2].name, "norm-0");
  EXPECT_EQ(figures.nodes[2].weights, "");
  EXPECT_THAT(figures.threads, IsEmpty()) << "no barriers were recorded";
  EXPECT_EQ(figures.imbalance, std::nullopt);
}

TEST(Figures, AFusedOperatorDoesTheWorkOfBoth) {
  RecordingForTest recording;
  recording.node(1, 0, {"RMS_NORM", "norm", "F32 4x1x1x1 16", {"F32 4x1x1x1 16 =inp"}});
  recording.node(
      1, 1,
      {"MUL", "scaled", "F32 4x1x1x1 16", {"F32 4x1x1x1 16 #0", "F32 4x1x1x1 16 =norm.weight"}});
  recording.graph({0, 100}, 1);
  recording.op({10, 20}, {.node = 0, .name = "RMS_NORM+MUL"});
  recording.op({20, 30}, {.node = 1, .name = "MUL+ADD"});  // the second one is not known
  const ProcessFigures figures = figures_of(recording);
  ASSERT_EQ(figures.operators.size(), 2U);
  EXPECT_EQ(figures.operators[1].op, "RMS_NORM+MUL");
  EXPECT_DOUBLE_EQ(figures.operators[1].work.flops, 4 + 4);
  EXPECT_DOUBLE_EQ(figures.operators[1].work.bytes, 16 + 16 + 16) << "the result once, no input";
  EXPECT_DOUBLE_EQ(figures.operators[0].work.flops, 4);
}

/// A graph of 100 ns on two threads.
void run_on_two_threads(RecordingForTest& recording, std::int64_t at) {
  recording.graph({at, at + 100}, 1);
  recording.op({at + 5, at + 45}, {.node = 0, .name = "RMS_NORM"});  // 40, waits 5
  recording.wait({at + 45, at + 50});
  recording.op({at + 50, at + 70}, {.node = 1, .name = "MUL_MAT"});  // 20, waits 20
  recording.wait({at + 70, at + 90});
  recording.op({at + 10, at + 40}, {.node = 0, .name = "RMS_NORM", .ith = 1});  // 30, waits 10
  recording.wait({at + 40, at + 50}, 1);
  recording.op({at + 52, at + 92}, {.node = 1, .name = "MUL_MAT", .ith = 1});  // 40, waits 3
  recording.wait({at + 92, at + 95}, 1);
}

TEST(Figures, ThreadsAddUpToTheTimeOfTheirGraphs) {
  RecordingForTest recording;
  recording.window({0, 1000}, "thread");
  define_small(recording, 1);
  run_on_two_threads(recording, 100);
  run_on_two_threads(recording, 300);
  run_on_two_threads(recording, 950);  // not whole in the window
  const ProcessFigures figures = figures_of(recording);
  EXPECT_EQ(figures.graphs_whole, 2U);
  EXPECT_DOUBLE_EQ(figures.graph_ns, 200);
  ASSERT_EQ(figures.threads.size(), 2U);
  const ThreadRow &first = figures.threads[0], &second = figures.threads[1];
  EXPECT_EQ(first.ith, 0);
  EXPECT_EQ(first.operators, 4U);
  EXPECT_DOUBLE_EQ(first.busy_ns, 2 * 60);
  EXPECT_DOUBLE_EQ(first.wait_ns, 2 * 25);
  EXPECT_DOUBLE_EQ(first.outside_ns, 2 * 15);
  EXPECT_DOUBLE_EQ(first.unexplained_ns, 0);
  EXPECT_EQ(second.ith, 1);
  EXPECT_DOUBLE_EQ(second.busy_ns, 2 * 70);
  EXPECT_DOUBLE_EQ(second.wait_ns, 2 * 13);
  EXPECT_DOUBLE_EQ(second.outside_ns, 2 * 15);
  EXPECT_DOUBLE_EQ(second.unexplained_ns, 2 * 2) << "between its barrier and its next node";
  for (const ThreadRow& row : figures.threads) {
    EXPECT_DOUBLE_EQ(row.busy_ns + row.wait_ns + row.outside_ns + row.unexplained_ns,
                     figures.graph_ns);
  }
  // The longest take 40 and 40; the means are 35 and 30.
  EXPECT_THAT(figures.imbalance.value(), DoubleEq((5.0 + 10) / 80));
}

TEST(Figures, WithBarriersANodeTakesWhatItsLongestThreadDoes) {
  RecordingForTest recording;
  recording.window({0, 1000}, "thread");
  define_small(recording, 1);
  run_on_two_threads(recording, 100);
  const ProcessFigures figures = figures_of(recording);
  ASSERT_EQ(figures.operators.size(), 2U);
  EXPECT_EQ(figures.operators[0].work.count, 1U);
  EXPECT_DOUBLE_EQ(figures.operators[0].work.ns, 40);
  EXPECT_DOUBLE_EQ(figures.operators[1].work.ns, 40);
}

TEST(Figures, TellWhenThreadsHadNoProcessor) {
  RecordingForTest recording;
  define_small(recording, 1);
  recording.window({0, 1000}, "operator");
  recording.graph({100, 200}, 1);
  recording.op({100, 150}, {.node = 0, .name = "RMS_NORM"});
  recording.op({100, 180}, {.node = 0, .name = "RMS_NORM", .ith = 1});
  recording.change(110, 101, 0, 7);  // preempted for 20
  recording.change(130, 7, 1, 101);
  recording.change(140, 201, 2, 7);  // in the disk for 15, and then ready for 5
  recording.wake(155, 201);
  recording.change(160, 7, 1, 201);
  const ProcessFigures figures = figures_of(recording);
  EXPECT_TRUE(figures.has_scheduler);
  ASSERT_EQ(figures.operators.size(), 1U);
  EXPECT_DOUBLE_EQ(figures.operators[0].work.runnable_ns, 20);
  EXPECT_DOUBLE_EQ(figures.operators[0].work.blocked_ns, 0);
  EXPECT_DOUBLE_EQ(figures.runnable_ns, 25);
  EXPECT_DOUBLE_EQ(figures.blocked_ns, 15);
}

TEST(Figures, FindTheLongestPathThroughAGraph) {
  RecordingForTest recording;
  // Two branches from node 0, of 30 and 50, that meet in node 3; node 4 is alone.
  recording.node(1, 0, {"ADD", "a", "F32 1x1x1x1 4", {"F32 1x1x1x1 4 =inp"}});
  recording.node(1, 1, {"ADD", "b", "F32 1x1x1x1 4", {"F32 1x1x1x1 4 #0"}});
  recording.node(1, 2, {"ADD", "c", "F32 1x1x1x1 4", {"F32 1x1x1x1 4 #0"}});
  recording.node(1, 3, {"ADD", "d", "F32 1x1x1x1 4", {"F32 1x1x1x1 4 #1", "F32 1x1x1x1 4 #2"}});
  recording.node(1, 4, {"VIEW", "e", "F32 1x1x1x1 4", {"F32 1x1x1x1 4 #9"}});  // of none
  for (const std::int64_t at : {1000, 2000}) {
    recording.graph({at, at + 500}, 1);
    recording.op({at, at + 10}, {.node = 0});
    recording.op({at + 10, at + 40}, {.node = 1});
    recording.op({at + 40, at + (at == 1000 ? 80 : 100)}, {.node = 2});  // 40 and 60
    recording.op({at + 200, at + 205}, {.node = 3});
    recording.op({at + 300, at + 320}, {.node = 4});
  }
  const ProcessFigures figures = figures_of(recording);
  ASSERT_EQ(figures.definitions.size(), 1U);
  const GraphRow& row = figures.definitions[0];
  EXPECT_EQ(row.definition, 1U);
  EXPECT_EQ(row.runs, 2U);
  EXPECT_EQ(row.nodes, 5U);
  EXPECT_EQ(row.computed, 4U);
  EXPECT_EQ(row.phase, Phase::kOther);
  EXPECT_THAT(row.node_ns, ElementsAre(10, 30, 50, 5, 20));
  EXPECT_DOUBLE_EQ(row.ns, 115);
  EXPECT_DOUBLE_EQ(row.critical_ns, 65);
  EXPECT_THAT(row.path, ElementsAre(0U, 2U, 3U));
}

TEST(Figures, CountExperts) {
  RecordingForTest recording;
  const std::vector<std::string> sources{"F16 4x6x4x1 192 =blk.0.ffn_gate_exps.weight",
                                         "F32 4x1x2x1 32 =x", "I32 2x2x1x1 16 =ids"};
  std::vector<std::string> up = sources;
  up[0] = "F16 4x6x4x1 192 =blk.0.ffn_up_exps.weight";
  recording.node(1, 0, {"MUL_MAT_ID", "gate-0", "F32 6x2x2x1 96", sources});
  recording.node(1, 1, {"MUL_MAT_ID", "up-0", "F32 6x2x2x1 96", up});
  for (const std::int64_t at : {0, 30, 40})
    recording.graph({at, at == 0 ? 30 : at + 10}, 1);
  // Three tokens, of which the second has one of the first's, and the third both of its.
  recording.op({10, 20}, {.node = 0, .name = "MUL_MAT_ID", .experts = "2x2 3 1 1 0"});
  recording.op({20, 30}, {.node = 1, .name = "MUL_MAT_ID", .experts = "2x2 3 1 1 0"});
  recording.op({30, 40}, {.node = 0, .name = "MUL_MAT_ID", .experts = "2x1 0 1"});
  recording.op({40, 50}, {.node = 0, .name = "MUL_MAT_ID", .experts = "2x1 99 -1"});  // of none
  const ProcessFigures figures = figures_of(recording);
  ASSERT_EQ(figures.experts.size(), 1U) << "the others of a layer use the same ones";
  const ExpertRow& row = figures.experts[0];
  EXPECT_EQ(row.name, "gate-0");
  EXPECT_EQ(row.tokens, 3U);
  EXPECT_THAT(row.counts, ElementsAre(2U, 3U, 0U, 1U));
  EXPECT_DOUBLE_EQ(row.repeated, 3.0 / 4);
  // Bytes are of the experts that were used: 3 of 4, and 2 of 4; without a list, at most all.
  const double rest = 32 + 96;
  std::map<std::string, double> bytes;
  for (const NodeRow& node : figures.nodes)
    bytes[node.name] = node.work.bytes;
  EXPECT_DOUBLE_EQ(bytes["up-0"], 192.0 * 3 / 4 + rest);
  EXPECT_DOUBLE_EQ(bytes["gate-0"], 192.0 * 3 / 4 + 192.0 * 2 / 4 + 192 + 3 * rest);
}

TEST(Figures, SeeHowFullTheCacheIs) {
  RecordingForTest recording;
  recording.node(
      1, 0,
      {"SET_ROWS", "cache_k", "F16 8x512x1x1 8192", {"F32 8x1x1x1 32 =k", "I64 1x1x1x1 8 =ids"}});
  recording.node(1, 1,
                 {"FLASH_ATTN_EXT",
                  "fa",
                  "F32 4x2x1x1 32",
                  {"F32 4x1x2x1 32 =q", "F16 4x256x2x1 4096 =k", "F16 4x256x2x1 4096 =v"}});
  recording.micro_batch({10, 20}, 3, 1, "0:0 0:1 0:2");
  recording.micro_batch({30, 40}, 2, 2, "0:3 1:9");  // 4 + 10
  recording.micro_batch({50, 60}, 1, 1, "1:0");      // it began anew: 4 + 1
  const ProcessFigures figures = figures_of(recording);
  ASSERT_TRUE(figures.cache.has_value());
  EXPECT_EQ(figures.cache->cells, 512);
  EXPECT_EQ(figures.cache->attended, 256);
  EXPECT_EQ(figures.cache->used_max, 14);
  RecordingForTest without;
  without.micro_batch({10, 20}, 1, 1, "0:5");
  EXPECT_FALSE(figures_of(without).cache.has_value());
}

TEST(Figures, CellsAreNoElementsOfTransposedValues) {
  RecordingForTest recording;
  recording.node(1, 0, {"SET_ROWS", "cache_k", "F16 8x512x1x1 8192", {"F32 8x1x1x1 32 =k"}});
  recording.node(1, 1, {"SET_ROWS", "cache_v", "F16 1x4096x1x1 8192", {"F32 1x8x1x1 32 =v"}});
  recording.node(1, 2,
                 {"SOFT_MAX",
                  "kq_soft_max",
                  "F32 256x1x2x1 2048",
                  {"F32 256x1x2x1 2048 =kq", "F32 256x1x1x1 1024 =mask"}});
  recording.node(1, 3, {"SOFT_MAX", "gate", "F32 900x1x1x1 3600", {"F32 900x1x1x1 3600 =x"}});
  recording.micro_batch({10, 20}, 1, 1, "0:2");
  const ProcessFigures figures = figures_of(recording);
  ASSERT_TRUE(figures.cache.has_value());
  EXPECT_EQ(figures.cache->cells, 512);
  EXPECT_EQ(figures.cache->attended, 256);
}

TEST(Figures, DrawAtMostSoMuchOfATimeline) {
  RecordingForTest recording;
  const auto add = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const auto at = static_cast<std::int64_t>(i * 10);
      recording.micro_batch({at, at + 5}, 1, 1, "");
    }
  };
  add(0, kTimelineMax);
  EXPECT_EQ(figures_of(recording).timeline.size(), kTimelineMax);
  add(kTimelineMax, kTimelineMax + 1);
  const ProcessFigures figures = figures_of(recording);
  EXPECT_EQ(figures.timeline.size(), kTimelineMax / 2 + 1);
  EXPECT_EQ(figures.timeline[1].begin_ns, 20);
  EXPECT_DOUBLE_EQ(figures.timeline[1].ms, 5e-6);
}

TEST(Figures, SayWhatWasLookedAtAndWhatItCost) {
  RecordingForTest recording;
  recording.window({0, 900 * kMs}, "graph", 10, kMs);
  recording.window({900 * kMs, 1000 * kMs}, "thread", 1000, 9 * kMs);
  recording.window({1000 * kMs, 2000 * kMs}, "graph", 20, 0);
  static constexpr StatDef kLost{"llm_records_lost", Severity::kDataLoss, Origin::kCapture,
                                 "raise"};
  static constexpr StatDef kNote{"llm_unreadable", Severity::kNotice, Origin::kCapture, "well"};
  recording.writer().loss(kLost, 3, boot_time(1));
  recording.writer().loss(kNote, 4, boot_time(1));
  const Report report = report_of(recording);
  EXPECT_DOUBLE_EQ(report.seconds, 2);
  EXPECT_DOUBLE_EQ(report.cost_share, 0.005);
  ASSERT_EQ(report.coverage.size(), 2U);
  EXPECT_EQ(report.coverage[0].level, trace::ModelLevel::kGraph);
  EXPECT_DOUBLE_EQ(report.coverage[0].seconds, 1.9);
  EXPECT_EQ(report.coverage[0].hits, 30U);
  EXPECT_DOUBLE_EQ(report.coverage[1].cost_seconds, 0.009);
  EXPECT_THAT(report.losses, ElementsAre(Pair("llm_records_lost", 3U)));
  EXPECT_THAT(to_text(report, {}), HasSubstr("lost: 3 llm_records_lost"));
}

TEST(Figures, OfOperatorsWithoutADefinitionAreTimesAlone) {
  RecordingForTest recording;
  recording.graph({0, 100}, 1);
  recording.op({10, 30}, {.graph = 1, .node = 60000, .name = "ADD"});
  recording.op({30, 40}, {.graph = 9, .node = 0, .name = "MUL+ADD"});
  const ProcessFigures figures = figures_of(recording);
  ASSERT_EQ(figures.operators.size(), 2U);
  EXPECT_DOUBLE_EQ(figures.operators[0].work.ns, 20);
  EXPECT_DOUBLE_EQ(figures.operators[0].work.flops, 0);
  EXPECT_EQ(figures.nodes[0].name, "?");
}

TEST(Figures, AreTheSameTwice) {
  RecordingForTest recording;
  recording.window({0, 1000}, "thread", 5, 5);
  define_small(recording, 1);
  recording.decode({90, 210}, 1);
  recording.micro_batch({95, 205}, 1, 1, "0:0");
  run_on_two_threads(recording, 100);
  ReportOptions options;
  options.peaks = Peaks{1e9, 1e9, 2};
  const auto run = recording.run();
  EXPECT_EQ(to_json(make_report(run), options).dump(), to_json(make_report(run), options).dump());
  EXPECT_EQ(to_text(make_report(run), options), to_text(make_report(run), options));
}

TEST(Report, SaysWhichLimitIsNear) {
  RecordingForTest recording;
  define_small(recording, 1);
  recording.micro_batch({0, 300}, 1, 1, "");
  recording.graph({0, 200}, 1);
  recording.op({0, 100}, {.node = 1, .name = "MUL_MAT"});  // 48 FLOPs and 88 bytes in 100 ns
  ReportOptions options;
  options.peaks = Peaks{1.76e9, 0.96e9, 1};
  const Report report = report_of(recording);
  const std::string json = to_json(report, options).dump();
  EXPECT_THAT(json, HasSubstr("\"schema\""));
  EXPECT_THAT(to_text(report, options), HasSubstr(" 50 % of memory"));
  options.peaks = Peaks{8.8e9, 0.96e9, 1};
  EXPECT_THAT(to_text(report, options), HasSubstr(" 50 % of compute"));
}

}  // namespace
}  // namespace kansoku::infer
