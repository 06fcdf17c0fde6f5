// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/rng.h"
#include "simulate/experiment.h"

namespace kansoku::simulate {

// The sources of randomness of one replication, by name: the draws of a pipeline run depend on
// (seed, replication, pipeline, task, number of the run) alone, so all policies see the same, and a
// synthetic trace holds the draws of a simulation.

[[nodiscard]] inline std::uint64_t replication_seed(const Experiment& experiment, int index) {
  return experiment.seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(index);
}
[[nodiscard]] inline RandomBlocks asset_blocks(std::uint64_t seed, const PipelineSpec& pipeline) {
  return {seed, "assets of " + pipeline.name};
}
[[nodiscard]] inline RandomBlocks task_blocks(std::uint64_t seed, const PipelineSpec& pipeline,
                                              const TaskSpec& task) {
  return {seed, "task " + pipeline.name + "/" + task.name};
}
[[nodiscard]] inline RandomStream arrival_stream(std::uint64_t seed, const PipelineSpec& pipeline) {
  return {seed, "arrivals of " + pipeline.name};
}

/// True if an optional task takes place.
[[nodiscard]] inline bool is_drawn(const TaskSpec& task, const RandomBlocks::Block& block) {
  return task.probability >= 1 || RandomBlocks::uniform(block[1]) < task.probability;
}

[[nodiscard]] inline double drawn_duration_s(const TaskSpec& task, double asset_bytes,
                                             const RandomBlocks::Block& block) {
  const double drawn = task.duration.draw(RandomBlocks::uniform(block[0]));
  if (!task.has_curve) return drawn;
  const double bytes = std::max(asset_bytes, 1.0);
  return task.curve_a * std::exp(std::log(task.curve_b) * std::log(bytes)) + task.curve_c + drawn;
}

}  // namespace kansoku::simulate
