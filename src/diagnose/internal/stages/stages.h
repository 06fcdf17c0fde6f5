// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/steps.h"

namespace kansoku::diagnose {

/// Ranks that pass micro-batches on: who sends first in a step is the first stage, and each other
/// one comes after the rank whose message it receives first.
struct Stages {
  std::vector<std::size_t> stage;               // by rank index
  std::vector<std::vector<std::size_t>> ranks;  // by stage; one of each pipeline
  std::size_t micro_batches{0};                 // of a step; 0: not known
};

/// Nothing where messages do not order the ranks so, the same way in nearly all steps: each rank in
/// one of several pipelines of as many stages, at least two.
[[nodiscard]] std::optional<Stages> find_stages(const JobData& job, const StepTable& steps);

}  // namespace kansoku::diagnose
