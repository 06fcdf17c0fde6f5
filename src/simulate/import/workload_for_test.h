// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "simulate/workload/workload.h"

namespace kansoku::simulate::import {

/// All that a workload says, line by line, with names instead of indices: equal texts mean equal
/// tables. Without `with_graphs`, facts about the graphs as such are left out.
[[nodiscard]] std::string text_of(const Workload& workload, bool with_graphs = true);

}  // namespace kansoku::simulate::import
