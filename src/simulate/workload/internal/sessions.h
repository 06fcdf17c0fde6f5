// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulate/workload/workload.h"

namespace kansoku::simulate::internal {

/// Cuts the jobs of each group, in order of time, where the gap exceeds `gap_s`. Every job is in
/// one session; sessions by (time of the first job, its index), members by index. `jobs` sorted by
/// submission.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> cut_sessions(std::span<const Job> jobs,
                                                                   double gap_s);

}  // namespace kansoku::simulate::internal
