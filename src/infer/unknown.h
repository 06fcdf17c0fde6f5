// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "infer/run.h"

namespace kansoku::infer {

/// Figures of a process that a recording does not hold, and why: "decode", "micro_batches",
/// "graphs", "operators", "threads". A function that was not probed, or was never seen although
/// others say that it ran, is no 0; neither are two levels that contradict each other.
[[nodiscard]] std::map<std::string, std::string> unknown_figures(const Run& run,
                                                                 const Process& process);

}  // namespace kansoku::infer
