// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"

namespace kansoku::diagnose {

/// A hang, and who stands where (culprits first).
struct Hang {
  Finding finding;
  std::vector<HangGroup> groups;
};

/// A finding of kind "hang" or "stopped" if, at the end of the recording, some ranks have been in a
/// collective for hang_step_multiple * `mean_step_ms` and at least hang_min_ms that others never
/// joined. `mean_step_ms` is 0 if no steps are known.
[[nodiscard]] std::optional<Hang> find_hang(const trace::Trace& trace, const JobData& job,
                                            const Collectives& collectives, double mean_step_ms);

}  // namespace kansoku::diagnose
