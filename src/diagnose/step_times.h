// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// The counted steps of one rank: when each began and where its time went.
struct RankStepTimes {
  std::int32_t rank{0};
  std::int32_t pid{0};
  std::vector<std::int64_t> begin_ns;                     // [step]
  std::vector<double> step_ms;                            // [step]
  std::array<std::vector<double>, kPhaseCount> phase_ms;  // [phase][step]; sums to step_ms
};

/// The steps that all ranks of a recorded job have in common, warm-up left out.
struct JobStepTimes {
  std::string job;                   // as the ranks' environment names it; may be empty
  std::string found_by{"none"};      // as StepSummary::found_by
  std::vector<double> durations_ms;  // as StepSummary::durations_ms
  std::vector<RankStepTimes> ranks;  // by rank number; empty if there are no steps
  std::vector<std::string> notes;    // why there are none, among others
};

/// The steps and phases that diagnose() finds in `trace`, step by step, without a search for
/// findings. Fails as diagnose() does on columns of different lengths. Deterministic; pure; any
/// thread.
[[nodiscard]] Result<JobStepTimes> step_times(const trace::Trace& trace, const Options& options);
/// The same of each job that diagnose() finds; empty if there is none.
[[nodiscard]] Result<std::vector<JobStepTimes>> step_times_of_jobs(const trace::Trace& trace,
                                                                   const Options& options);

}  // namespace kansoku::diagnose
