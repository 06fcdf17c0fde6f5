// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/recorder.h"
#include "common/result.h"
#include "sys/procfs.h"

namespace kansoku::cli {

/// Points a recorder at running processes: those of `pids` with everything below them, and all of
/// the job named `job` (may be empty). kNotFound names the jobs that do run here.
[[nodiscard]] Result<void> observe_targets(capture::Recorder& recorder,
                                           const std::vector<std::int32_t>& pids,
                                           const std::string& job, const sys::Procfs& procfs);

/// The processes of the job with that name, or of all jobs of this host if it is empty, ascending.
/// kNotFound names the jobs that do run here.
[[nodiscard]] Result<std::vector<std::int32_t>> pids_of_job(const sys::Procfs& procfs,
                                                            const std::string& name);

}  // namespace kansoku::cli
