// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/kernel_use.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/steps.h"
#include "stats/peers.h"

namespace kansoku::diagnose {

using RankSeries = stats::MemberSeries;  // [rank][step]

/// Everything that the search for findings reads; borrowed for the call.
struct Context {
  const trace::Trace& trace;
  const JobData& job;
  const Collectives& collectives;
  const StepTable& steps;
  const std::vector<RankPhases>& phases;
  const std::vector<StepTimes>& times;
  double median_step_ms{0};
  double mean_step_ms{0};
  std::string_view others{"on peers"};  // whom a rank is compared with, in a sentence
  KernelUses kernel{};                  // of windows of time: none
  /// False: the job has no steps, and windows of equal length stand in for them.
  [[nodiscard]] bool has_steps() const { return steps.found_by != kFoundByTime; }
};

}  // namespace kansoku::diagnose
