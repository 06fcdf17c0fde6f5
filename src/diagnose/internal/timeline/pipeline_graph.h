// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "diagnose/internal/timeline/pipeline_ops.h"
#include "diagnose/internal/timeline/step_graph.h"

namespace kansoku::diagnose {

/// Node of the graph: operation `seq` of a type on a stage.
struct GraphNode {
  OpType type{};
  std::int32_t stage{0}, seq{0};
};

/// The dependencies of one step of a pipeline-parallel job, and the durations of every step and
/// data-parallel rank to run through them.
struct PipelineGraph {
  StepGraph graph;
  std::vector<GraphNode> nodes;  // by StepGraph::Node
  std::size_t lane_count{0};     // steps x data-parallel ranks, step by step
  std::size_t lanes_per_step{0};
  std::vector<double> durations_s;  // [node][lane]; of a communication: after its last start
  std::vector<double> recorded_step_s;
  std::vector<std::string> notes;
};

/// Derives the dependencies from the first step of the first data-parallel rank: computation in
/// order, each receive before its computation and after the one before that, each send after its
/// computation, both ends of a transfer together, then the gradient and optimizer operations; data-
/// parallel communication waits for all data-parallel ranks. kCorrupt names the operation that does
/// not fit; kLimit if nodes x lanes would pass `cells_max`.
/// Source: dependency rules of ByteDance-Seed/StragglerAnalysis (source read).
[[nodiscard]] Result<PipelineGraph> build_pipeline_graph(const PipelineOps& ops,
                                                         std::size_t cells_max);

}  // namespace kansoku::diagnose
