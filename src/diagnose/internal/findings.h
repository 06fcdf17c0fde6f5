// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/evidence.h"
#include "diagnose/internal/excess.h"

namespace kansoku::diagnose {

/// How the ranks arrive at the whole collectives inside the counted steps.
struct Lateness {
  std::vector<double> mean_wait_ms;      // by rank index: for the last rank to arrive
  std::vector<std::size_t> last_counts;  // by rank index: how often this rank was the last
  std::size_t instance_count{0};
};
/// `only` (may be empty: all): by step, 1 for steps that count.
[[nodiscard]] Lateness measure_lateness(const Evidence& evidence, const std::vector<bool>& only);

/// One phase or total of all ranks as a [rank][step] table.
[[nodiscard]] RankSeries work_series(const Evidence& evidence);

/// Findings by rank (slow_*, asymmetry, cpu_contention) and common ones, unsorted; `notes` gets
/// what was seen but not named.
[[nodiscard]] std::vector<Finding> find_causes(const Evidence& evidence, const Options& options,
                                               std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
