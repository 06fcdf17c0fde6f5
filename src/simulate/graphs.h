// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

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

/// Seconds that this experiment takes. As graph_experiment(); kInternal if it does not end.
[[nodiscard]] Result<double> graph_makespan_s(const Workload& workload, std::size_t graph,
                                              int cores, double overhead_s);

/// The overhead with which the graph takes as long as it was recorded to take, found by simulating
/// it again and again. Nothing without a recorded makespan, or where that is shorter than the
/// simulated one without overhead: then the recorded machine was another. As graph_experiment().
[[nodiscard]] Result<std::optional<double>> overhead_per_task_s(const Workload& workload,
                                                                std::size_t graph, int cores);

}  // namespace kansoku::simulate
