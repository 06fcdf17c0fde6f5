// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"

// The folder is called export, which C++ does not allow as a name.
namespace kansoku::exporter {

/// The report of a diagnosis as one self-contained HTML page: verdict, heat map, phases, worst
/// step, functions. No network; everything that came from the trace is untrusted and escaped.
/// `diagnosis`: schema kansoku.diagnosis/3; `view`: schema kansoku.view/2; kUnsupported for another
/// schema. Fields that are missing leave their section saying so. Deterministic.
[[nodiscard]] Result<std::string> html_report(const Json& diagnosis, const Json& view);

}  // namespace kansoku::exporter
