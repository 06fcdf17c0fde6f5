// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/json.h"

namespace kansoku::exporter {

/// Contents of a page of the simulator; texts are escaped already, except `title`.
struct Page {
  std::string title;  // plain text
  std::string body;   // sections
};

[[nodiscard]] Page run_page(const Json& untrusted);    // kansoku.simulation/1
[[nodiscard]] Page sweep_page(const Json& untrusted);  // kansoku.simulation_sweep/1
[[nodiscard]] Page fit_page(const Json& untrusted);    // kansoku.workload_fit/2

}  // namespace kansoku::exporter
