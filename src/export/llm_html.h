// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::exporter {

/// A report of models in inference (schema kansoku.llm.report, version 1) with the data drawn
/// beside it (kansoku.llm.view, version 1) as one self-contained HTML page, no network. Everything
/// from the files is untrusted and escaped; a part that is missing or of another type leaves its
/// section out. kUnsupported for another schema or version. Deterministic; any thread.
[[nodiscard]] Result<std::string> llm_html(const Json& report, const Json& view);

}  // namespace kansoku::exporter
