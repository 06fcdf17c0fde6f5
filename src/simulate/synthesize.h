// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {

inline constexpr std::size_t kSynthesizedTasksMax = std::size_t{1} << 26;

/// The pipelines of an experiment as a trace, without simulating who waits: each run a task graph,
/// its tasks with the durations, bytes and demands that replication 0 of the experiment draws.
/// Optional tasks that do not take place are left out, their followers wait for their predecessors.
/// Pipelines that only triggers start, and recorded jobs, are not part of it. Submission = arrival
/// of the run. kLimit above kSynthesizedTasksMax tasks. Deterministic.
[[nodiscard]] Result<Workload> synthesize_pipelines(const Experiment& experiment);

}  // namespace kansoku::simulate
