// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/bytes.h"
#include "common/result.h"
#include "common/stat.h"
#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::simulate {

STAT(simulation_slices_over_limit, kDataLoss, kAnalysis,
     "executions and waits after the first slices_max are not in the trace; simulate a shorter "
     "horizon to see them");
STAT(simulation_no_lane, kDataLoss, kAnalysis,
     "executions that found no free lane are not in the trace; the utilisation counts them");
STAT(simulation_no_queue_lane, kDataLoss, kAnalysis,
     "waits that found no free queue lane are not in the trace; the counter of the queue has them");
STAT(simulation_records_dropped, kDataLoss, kAnalysis,
     "tasks beyond records_max of the experiment were not kept");

struct TraceOutOptions {
  std::uint64_t slices_max{1'000'000};  // the earliest ones are kept
  std::uint32_t lanes_max{2'000};       // of each cluster: tasks that execute at once
  std::uint32_t queue_lanes_max{100};   // of each cluster: tasks that wait at once
};

/// Counts of written and left-out parts of a trace.
struct TraceOutCounts {
  std::uint64_t executions{0}, waits{0};
  std::uint64_t over_limit{0}, no_lane{0}, no_queue_lane{0};
};

/// Writes one replication as a trace (docs/formats/trace.md) whose time 0 is that of the
/// simulation: a process track for each cluster with the executions of tasks as slices on `lane`
/// tracks and their waits on `queue` tracks, each slice on the lowest lane that is free when it
/// begins, so that slices of a lane never overlap; counter tracks from Replication::series. Slices
/// of one pipeline run are linked by a flow. A task that was started again shows its last execution
/// and, as its wait, all time before; tasks not ended at the end of the simulation have no record
/// and no slice. `replication.records` may be null: counters only. All that a limit leaves out is
/// counted, in the trace too. Fails as `sink` does. The same replication gives the same bytes; any
/// thread; memory bounded by slices_max.
[[nodiscard]] Result<TraceOutCounts> write_trace(const Experiment& experiment,
                                                 const Replication& replication, ByteSink& sink,
                                                 const TraceOutOptions& options = {});

}  // namespace kansoku::simulate
