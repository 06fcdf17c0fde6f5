// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"

// Drawings of the page of a model in inference, the graph apart. JSON goes in, HTML comes out; all
// of it is escaped here, impossible values are left out, and empty data draw nothing.
namespace kansoku::exporter {

/// A mark of a micro-batch or operator: decode is a circle, prefill a triangle of another colour.
[[nodiscard]] std::string phase_dot(double x, double y, double radius, bool is_prefill,
                                    const std::string& untrusted_tip);
/// `more`: HTML behind the phases.
[[nodiscard]] std::string phase_legend(bool has_decode, bool has_prefill, const std::string& more);

/// Each micro-batch by when and how long. `timeline`: [[s, ms, tokens, phase]]; `windows`: [[s, s]]
/// of the time that was observed.
[[nodiscard]] std::string token_timeline(const Json& timeline, const Json& windows);
/// How often a micro-batch that decodes took how long.
[[nodiscard]] std::string token_histogram(const Json& timeline, const Json& speed);
/// Cells in use over time, [[s, cells]], and how many there are.
[[nodiscard]] std::string cache_curve(const Json& points, const Json& cache);
/// Operators by FLOPs a byte and FLOPs a second, below the machine's peak rates.
[[nodiscard]] std::string roofline(const Json& operators, const Json& peaks);
/// Time by layer, [[layer, ns]].
[[nodiscard]] std::string layer_bars(const Json& layers);
/// A row a layer, a cell an expert, the darker the more it is used.
[[nodiscard]] std::string expert_map(const Json& experts);

}  // namespace kansoku::exporter
