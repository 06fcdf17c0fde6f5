// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/result.h"
#include "diagnose/diagnose.h"
#include "gpu/activity/activity.h"
#include "trace/model.h"

namespace kansoku::cli {

/// The steps that diagnose finds in a recording, of each process; none is fine.
[[nodiscard]] std::vector<gpu::activity::ProcessSteps> steps_of_jobs(const trace::Trace& trace);

/// Joins what the work of devices in `trace` says with its diagnosis. A recording without device
/// work changes nothing.
[[nodiscard]] Result<void> add_device_work(const trace::Trace& trace,
                                           diagnose::Diagnosis& diagnosis);

}  // namespace kansoku::cli
