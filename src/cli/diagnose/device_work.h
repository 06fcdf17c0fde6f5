// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/diagnose/sources.h"
#include "common/result.h"
#include "diagnose/diagnose.h"
#include "gpu/activity/activity.h"
#include "trace/model.h"

namespace kansoku::cli {

/// The steps that diagnose finds in a recording, of each process; none is fine.
[[nodiscard]] std::vector<gpu::activity::ProcessSteps> steps_of_jobs(const trace::Trace& trace);

/// Joins the findings on devices' work in recordings or profiles with their diagnosis. Without
/// device work nothing changes.
[[nodiscard]] Result<void> add_device_work(const Sources& sources, diagnose::Diagnosis& diagnosis);

}  // namespace kansoku::cli
