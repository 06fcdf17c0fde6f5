// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"

namespace kansoku::exporter {

/// The graph of kansoku.llm.view/1 drawn in layers from top to bottom, a column for each layer of
/// the model, with its longest path; nothing if there is none. Everything from the JSON is bounded
/// and escaped here.
[[nodiscard]] std::string graph_svg(const Json& graph);
/// Effect of each kind of operator that is drawn, in a sentence each.
[[nodiscard]] std::string operator_glossary(const Json& graph);

}  // namespace kansoku::exporter
