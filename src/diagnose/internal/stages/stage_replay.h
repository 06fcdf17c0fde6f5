// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "diagnose/internal/causes/context.h"
#include "diagnose/internal/stages/stages.h"

namespace kansoku::diagnose {

/// The passes of a pipeline's steps, run again from what each rank worked between its messages and
/// from who waited for whose: without transfers, without waiting for a processor, and without what
/// follows the passes (the optimizer, averaging, the next batch).
struct StageTimes {
  double passes_ms{0};     // of a mean step, as the stages are
  double equal_ms{0};      // if all stages had the same work
  double bubble_share{0};  // of all ranks' time in the passes, with equal stages: they have to wait
  double uneven_share{0};  // of it as the stages are, beyond that
  std::vector<double> work_ms;  // by rank, of a mean step
};
/// Nothing if messages of a step run in a circle.
[[nodiscard]] std::optional<StageTimes> replay_stages(const Context& context, const Stages& stages);

}  // namespace kansoku::diagnose
