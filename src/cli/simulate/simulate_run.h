// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::cli {

/// Options that `simulate run`, `replay` and `sweep` share.
struct SimulationOptions {
  simulate::Overrides overrides;
  int replications{0};  // 0: as the experiment says
  int jobs{0};          // 0: one a core
  bool records{false};
  bool trace{false};  // keep the records of the first replication, for write_simulation_trace()
  bool quiet{false};
  bool skip_bad_rows{false};
};

/// Runs the replications with a progress line on standard error after two seconds. Ctrl-C keeps the
/// finished ones.
[[nodiscard]] Result<simulate::Replications> simulate_with_progress(
    const simulate::Experiment& experiment, const SimulationOptions& options,
    const std::string& label);

/// Writes the first replication as a trace and lists on standard error the parts that it leaves
/// out.
[[nodiscard]] Result<void> write_simulation_trace(const std::string& path,
                                                  const simulate::Experiment& experiment,
                                                  const simulate::Replications& replications);

/// The figures that matter most, as a table on standard output.
/// `by_chance`: another replication would differ, so one alone is pointed out.
void print_summary(const Json& summary, bool by_chance);
void print_comparisons(const Json& sweep);

}  // namespace kansoku::cli
