// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::simulate {

/// Gives the workloads, node lists and JSON that a test put in.
class MapLoader final : public Loader {
 public:
  [[nodiscard]] Result<Workload> workload(const std::string& path) override;
  [[nodiscard]] Result<std::vector<NodeSpec>> nodes(const std::string& path) override;
  [[nodiscard]] Result<Json> json(const std::string& path) override;
  std::map<std::string, Workload> workloads;
};

/// The experiment of a text that has no mistakes.
[[nodiscard]] Experiment parsed(std::string_view toml, const Overrides& overrides = {});
/// A trace of jobs: (submit s, duration s, GPUs, group).
struct TestJob {
  double submit_s{0}, duration_s{0};
  int gpus{1};
  std::string group{};
};
[[nodiscard]] Workload workload_of(const std::vector<TestJob>& jobs);

/// One replication, which must succeed.
[[nodiscard]] Replication simulated(const Experiment& experiment, int index = 0);
/// The value of a metric; fails the test if there is none.
[[nodiscard]] double metric(const Replication& replication, std::string_view name);
/// "task@queued+wait..end" of each record in order of its end, whole seconds, e.g. "job@0+5..15".
[[nodiscard]] std::string timeline(const Experiment& experiment, const Replication& replication);

}  // namespace kansoku::simulate
