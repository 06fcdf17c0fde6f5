// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/diagnose.h"

namespace kansoku::diagnose {

/// Those of `ranks` that no finding is about while others hold them up.
[[nodiscard]] std::vector<std::int32_t> victims_of(const std::vector<std::int32_t>& ranks,
                                                   const std::vector<Finding>& findings);

/// One diagnosis of all jobs, which are at least one: the worst first, the others in it.
[[nodiscard]] Diagnosis join_jobs(std::vector<Diagnosis> jobs);

}  // namespace kansoku::diagnose
