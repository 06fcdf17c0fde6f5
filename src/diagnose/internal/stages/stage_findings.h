// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"
#include "diagnose/internal/stages/stages.h"

namespace kansoku::diagnose {

/// Ranks of a pipeline that hold it back. Stages do different work, so a rank is compared with
/// those of its own stage, if there are several pipelines; beside that, one is blamed that has more
/// work than the other stages by a function of the job's own that only it runs. Adds findings, and
/// notes: a stage with more work than the others, what an equal cut saves, what the schedule costs.
/// Nothing if the passes cannot be run again.
std::optional<PipelineSummary> find_stage_causes(const Context& context, const Stages& stages,
                                                 const Options& options,
                                                 std::vector<Finding>& findings,
                                                 std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
