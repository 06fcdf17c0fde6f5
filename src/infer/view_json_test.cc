// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "infer/figures.h"
#include "infer/report.h"

namespace kansoku::infer {
namespace {

Node node_of(const std::string& op, const std::string& name, std::vector<std::uint32_t> sources) {
  Node out;
  out.op = op;
  out.name = name;
  out.is_view = op == "VIEW";
  for (const std::uint32_t source : sources) {
    trace::TensorSource& one = out.sources.emplace_back();
    one.node = source;
  }
  return out;
}

/// A micro-batch whose graph computes each node of `nodes` for a microsecond more than the one
/// before.
struct Recorded {
  explicit Recorded(std::vector<Node> nodes, const std::string& fused = "") {
    Process process;
    process.pid = 7;
    process.micro_batches.push_back(
        {.span = {2000, 9'002'000}, .tokens = 1, .sequences = 1, .rows = {{0, 41}}});
    process.graphs.push_back({.span = {2000, 9'000'000}, .definition = 3, .micro_batch = 0});
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].is_view || nodes[i].op == "FUSED") continue;
      const std::string name = nodes[i].op == "RMS_NORM" ? fused : nodes[i].op;
      process.operators.push_back({.span = {0, 1000 * (std::int64_t{i} + 1)},
                                   .definition = 3,
                                   .node = i,
                                   .graph = 0,
                                   .name = trace.strings.intern(name)});
    }
    process.definitions[3].nodes = std::move(nodes);
    run.processes.push_back(std::move(process));
    run.windows.push_back({.span = {1000, 5000}});
    run.windows.push_back({.span = {5000, 9'001'000}});
    run.trace = &trace;
  }
  [[nodiscard]] Json view() const { return view_json(run, make_report(run)); }

  trace::Trace trace;
  Run run;
};

Json graph_of(const Recorded& recorded) {
  return recorded.view().at("processes").at(std::size_t{0}).at("graph");
}

TEST(ModelView, HasMicroBatchesCellsAndWindows) {
  const Json view = Recorded({node_of("ADD", "a", {})}).view();
  EXPECT_EQ(view.at("schema").as_string(), "kansoku.llm.view");
  EXPECT_EQ(view.at("windows").dump(), "[[0.0,0.009]]");  // joined, since the first began
  const Json process = view.at("processes").at(std::size_t{0});
  EXPECT_EQ(process.at("timeline").dump(), R"([[1e-06,9.0,1,"decode"]])");
  EXPECT_EQ(process.at("cache").dump(), "[[0.009001,42]]");
}

TEST(ModelView, ViewsStandForWhatTheyLookAtAndFusedPairsAreOne) {
  const Json graph =
      graph_of(Recorded({node_of("RMS_NORM", "norm-0", {}), node_of("FUSED", "attn_norm-0", {0}),
                         node_of("VIEW", "v", {1}), node_of("ADD", "sum-0", {2})},
                        "RMS_NORM+MUL"));
  ASSERT_EQ(graph.at("nodes").size(), 2U);
  const Json first = graph.at("nodes").at(std::size_t{0});
  EXPECT_EQ(first.at("op").as_string(), "RMS_NORM+MUL");
  EXPECT_EQ(first.at("name").as_string(), "norm-0+attn_norm-0");
  EXPECT_EQ(first.at("time_ns").as_int(), 1000);
  EXPECT_EQ(graph.at("edges").dump(), "[[0,1,true]]");
}

TEST(ModelView, OfManyLayersTheFirstAndTheLastAreDrawn) {
  std::vector<Node> nodes{node_of("GET_ROWS", "embd", {})};
  for (std::uint32_t layer = 0; layer < 5; ++layer)
    nodes.push_back(node_of("ADD", "l_out-" + std::to_string(layer), {layer}));
  nodes.push_back(node_of("MUL_MAT", "result_output", {5}));
  const Json graph = graph_of(Recorded(std::move(nodes)));
  ASSERT_EQ(graph.at("nodes").size(), 5U);
  std::string parts;
  for (std::size_t i = 0; i < 5; ++i)
    parts += graph.at("nodes").at(i).at("part").as_string() + " ";
  EXPECT_EQ(parts, "input layer layers layer output ");
  const Json between = graph.at("nodes").at(std::size_t{2});
  EXPECT_EQ(between.at("layer").as_int(), 1);
  EXPECT_EQ(between.at("last_layer").as_int(), 3);
  EXPECT_EQ(between.at("nodes").as_int(), 3);
  EXPECT_EQ(between.at("time_ns").as_int(), 3000 + 4000 + 5000);
  EXPECT_EQ(graph.at("edges").dump(), "[[0,1,true],[1,2,true],[2,3,true],[3,4,true]]");
  EXPECT_EQ(graph.at("layers").size(), 5U);
}

TEST(ModelView, DrawsABoundedGraph) {
  for (const std::size_t count : {149U, 150U, 151U}) {
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < count; ++i)
      nodes.push_back(node_of("ADD", "n", {}));
    const Json graph = graph_of(Recorded(std::move(nodes)));
    EXPECT_EQ(graph.at("nodes").size(), std::min<std::size_t>(count, 150));
    EXPECT_EQ(graph.at("not_drawn").as_int(), count == 151 ? 1 : 0);
  }
}

TEST(ModelView, HasNoGraphWithoutTimes) {
  Recorded recorded({node_of("ADD", "a", {})});
  recorded.run.processes[0].operators.clear();
  EXPECT_TRUE(graph_of(recorded).is_null());
}

}  // namespace
}  // namespace kansoku::infer
