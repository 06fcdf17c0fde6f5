// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Those of `ranks` that no finding is about while others hold them up.
[[nodiscard]] std::vector<std::int32_t> victims_of(const std::vector<std::int32_t>& ranks,
                                                   const std::vector<Finding>& findings);

/// Name of a process that is in no job: "python3 4711".
[[nodiscard]] std::string name_of_process(const trace::Trace& trace, std::int32_t pid);

/// One diagnosis of all jobs, which are at least one: the worst first, the others in it.
[[nodiscard]] Diagnosis join_jobs(std::vector<Diagnosis> jobs);

}  // namespace kansoku::diagnose
