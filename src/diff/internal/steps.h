// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "diff/internal/events.h"

namespace kansoku::diff {

/// The steps of each rank, in the order of EventTable::ranks; all ranks have as many.
struct Steps {
  std::string found_by;                                                   // "" if there are none
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> ranks;  // [rank][step] begin, end
  bool on_device_clock{false};  // boundaries are begins of device operations, not of host calls
  std::vector<std::string> notes;
};

/// Slices of the name that the user gives; else a profiler's steps; else those that diagnose finds;
/// else from one kernel to the next of its name, if it marks the longest word of kernels that
/// repeats. Fails as diagnose::step_times() does.
[[nodiscard]] Result<Steps> find_steps(const trace::Trace& trace, const EventTable& events,
                                       const Options& options);

}  // namespace kansoku::diff
