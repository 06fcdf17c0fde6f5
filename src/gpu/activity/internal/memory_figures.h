// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/host_slices.h"

namespace kansoku::gpu::activity {

/// Live device memory of each process: from the counter "device memory, live", else from
/// allocations and releases that tell their bytes.
[[nodiscard]] std::vector<MemoryFigures> memory_figures(const Input& in);

/// The least live memory of each step: a rise of it is no temporary peak.
/// Bytes a step if the memory rises over all of the steps without a plateau: by
/// kLeakBytesPerStepMin on the whole, and in each quarter of the steps.
[[nodiscard]] std::optional<double> leak_of(std::span<const double> bytes_of_steps);

}  // namespace kansoku::gpu::activity
