// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fleet/report.h"

namespace kansoku::cli {

/// A collector's report for people. `features`: the names to show; empty: the first of each job.
[[nodiscard]] std::string collect_text(const fleet::FleetReport& report,
                                       const std::vector<std::string>& features);

}  // namespace kansoku::cli
