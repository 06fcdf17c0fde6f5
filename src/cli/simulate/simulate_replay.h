// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/simulate/simulate_files.h"
#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/workload/workload.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

struct ReplayOptions {
  std::vector<std::string> paths;  // several: task graphs
  std::string format, nodes, from, span;
  std::string scheduler{"fifo"}, placement{"first_fit"}, duration_cap;
  std::int64_t slots{0};
  int cores{0};
  double task_overhead_s{-1};  // -1: none, and learnt from other graphs
  bool clamp{false};
};

void declare_replay_options(CLI::App& app, ReplayOptions& options);

[[nodiscard]] Result<simulate::Workload> read_replayed(const ReplayOptions& options,
                                                       const std::string& path, FileLoader& loader);

/// The experiment that replays the jobs of a trace on `slots` GPUs or on nodes.
[[nodiscard]] Result<simulate::Experiment> replay_experiment(const ReplayOptions& options,
                                                             const simulate::Overrides& set,
                                                             FileLoader& loader);

/// Replays task graphs, each on its machine, and prints makespans beside the recorded ones; of
/// several also with the overhead a task that the others had.
[[nodiscard]] Result<int> replay_graphs(const ReplayOptions& options,
                                        const std::vector<simulate::Workload>& workloads,
                                        bool json);

/// The report of a fit as a table.
void print_fit(const Json& report);
void print_asset_fit(const Json& report);

}  // namespace kansoku::cli
