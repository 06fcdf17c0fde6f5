// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {

/// The experiment that executes one recorded task graph once, from time 0, on the machine that
/// recorded it: durations as recorded plus `overhead_s` each (added by the engine of the workflow),
/// `cores` slots (0: as recorded, else 1). Its pipeline's sojourn is the makespan. kNotFound
/// without that graph, kCorrupt if a task has no duration.
[[nodiscard]] Result<Experiment> graph_experiment(const Workload& workload, std::size_t graph,
                                                  int cores, double overhead_s);

/// Seconds that a recorded run took beyond its tasks one after the other, for each task:
/// `overhead_s` is learnt from this. Negative if tasks ran at the same time; NaN without a
/// makespan.
[[nodiscard]] double overhead_per_task_s(const Workload& workload, std::size_t graph);

}  // namespace kansoku::simulate
