// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::exporter {

/// A result of the simulator as one self-contained HTML page, no network: kansoku.simulation/1
/// (figures, utilisation, queues, model performance over time), kansoku.simulation_sweep/1
/// (variants and differences with intervals) or kansoku.workload_fit/2 (Q-Q, arrivals, properties
/// kept and lost). Everything from the file is untrusted and escaped. kUnsupported for another
/// schema. Deterministic; any thread.
[[nodiscard]] Result<std::string> simulation_html(const Json& result);

}  // namespace kansoku::exporter
