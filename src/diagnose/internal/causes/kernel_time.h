// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Ranks that are slower than their peers because the kernel works longer on their main thread, as
/// sampled: "system_calls", with the function that makes them, "reclaim", "interrupts". Page
/// faults: find_page_faults().
[[nodiscard]] std::vector<Finding> find_kernel_time(const Context& context, const Options& options);

/// Ranks of the finding "reclaim", a flag each: their page faults are a consequence.
[[nodiscard]] std::vector<bool> ranks_in_reclaim(const Context& context);

/// Work of all ranks without what goes with page faults, as a [rank][step] table.
[[nodiscard]] RankSeries work_without_faults(const Context& context);

/// Work of all ranks without the kernel's, as a [rank][step] table: without what goes with page
/// faults, reclaim, interrupts, observers, and without system calls where these are a finding.
[[nodiscard]] RankSeries work_without_kernel(const Context& context);

}  // namespace kansoku::diagnose
