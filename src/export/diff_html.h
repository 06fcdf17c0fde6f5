// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::exporter {

/// A comparison of recordings (schema kansoku.diff/1) as one self-contained HTML page, no network.
/// Everything from the file is untrusted and escaped. kUnsupported for another schema.
/// Deterministic; any thread.
[[nodiscard]] Result<std::string> diff_html(const Json& comparison);

}  // namespace kansoku::exporter
