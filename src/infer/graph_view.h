// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/json.h"
#include "infer/figures.h"

namespace kansoku::infer {

inline constexpr std::size_t kGraphNodesMax = 150;  // of the graph that is drawn

/// The graph that decoded most often, cut so that it can be drawn: views stand for their sources, a
/// fused pair is one node, and of more than two layers only the first and the last are left, those
/// between are one node. Nothing (null) if no graph was timed. "nodes" are in an order in which
/// they can run, "edges" pairs of their places.
[[nodiscard]] Json graph_view_json(const Process& process, const ProcessFigures& figures,
                                   const trace::Trace& trace);

}  // namespace kansoku::infer
