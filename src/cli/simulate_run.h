// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::cli {

/// What `simulate run`, `replay` and `sweep` share.
struct SimulationOptions {
  simulate::Overrides overrides;
  int replications{0};  // 0: as the experiment says
  int jobs{0};          // 0: one a core
  bool records{false};
  bool quiet{false};
  bool skip_bad_rows{false};
};

/// Runs the replications with a progress line on standard error after two seconds. Ctrl-C keeps the
/// finished ones.
[[nodiscard]] Result<simulate::Replications> simulate_with_progress(
    const simulate::Experiment& experiment, const SimulationOptions& options,
    const std::string& label);

/// The figures that matter most, as a table on standard output.
void print_summary(const Json& summary);
void print_comparisons(const Json& sweep);

}  // namespace kansoku::cli
