// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnose/internal/steps/job.h"
#include "trace/model.h"
#include "trace/thread_states.h"

namespace kansoku::diagnose {

/// Use of a thread's time. `stretches`: in order of time.
[[nodiscard]] ThreadTimes thread_times(const std::vector<trace::ThreadStretch>& stretches);

/// Fills `main` of every rank from the scheduler tables of `trace`; adds a note if there is
/// nothing.
void read_thread_times(const trace::Trace& trace, JobData& job);

}  // namespace kansoku::diagnose
