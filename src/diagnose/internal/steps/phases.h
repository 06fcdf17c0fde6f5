// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/steps.h"

namespace kansoku::diagnose {

/// A rank's main thread cut into phases: `sets` and `unknown` are disjoint and cover all steps.
struct RankPhases {
  std::array<IntervalSet, kPhaseCount> sets;
  IntervalSet unknown;      // no slice tells the phase ...
  PhaseMs unknown_share{};  // ... so stack samples split it; the shares sum to 1
  IntervalSet exposed;      // transfer and wait together
  IntervalSet work;         // steps without `exposed` and kRunnable
};

/// One rank's milliseconds by step.
struct StepTimes {
  std::vector<double> step_ms;
  std::vector<double> work_ms;
  std::vector<double> running_ms;  // on a processor, outside of communication
  std::array<std::vector<double>, kPhaseCount> phase_ms;  // sum over phases = step_ms
};

[[nodiscard]] std::vector<RankPhases> cut_phases(const trace::Trace& trace, const JobData& job,
                                                 const Collectives& collectives,
                                                 const StepTable& steps);

[[nodiscard]] std::vector<StepTimes> measure_steps(const JobData& job,
                                                   const std::vector<RankPhases>& phases,
                                                   const StepTable& steps);

/// The phase that a Python stack belongs to; kOther if no frame tells. Out-of-range ids are kOther.
[[nodiscard]] Phase phase_of_stack(const trace::Trace& trace, trace::StackId stack);

/// Frames of a stack, outermost first; empty for an id that the trace does not have.
[[nodiscard]] std::vector<trace::Frame> frames_of(const trace::Trace& trace, trace::StackId stack);
/// The frames of the stack that was counted most often; empty if none was.
[[nodiscard]] std::vector<trace::Frame> most_frequent(
    const trace::Trace& trace, const std::map<trace::StackId, std::size_t>& counts);
/// Names the innermost of `frames` (outermost first) that is the job's own code, else the
/// innermost, as the place of a finding; nothing if empty.
void set_place(const trace::Trace& trace, const std::vector<trace::Frame>& frames,
               Finding& finding);

}  // namespace kansoku::diagnose
