// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/run.h"

namespace kansoku::simulate {

/// "s" for ..._s, "share" for utilisations, "" otherwise: a metric's unit, by its name.
[[nodiscard]] std::string_view unit_of(std::string_view metric);

/// Schema kansoku.simulation/1 (docs/formats/simulation.md): each metric with mean, 95 % interval,
/// standard deviation and the value of each replication; each series as mean over replications.
[[nodiscard]] Json summarize(const Experiment& experiment, const Replications& replications);

/// One key of a sweep and the values that it takes, as TOML texts.
struct Axis {
  std::string key;
  std::vector<std::string> values;
};
/// "clusters.gpu.slots=40,50,60" (commas inside brackets, braces and quotes do not separate).
/// kCorrupt names the missing part.
[[nodiscard]] Result<Axis> parse_axis(std::string_view text);

/// All combinations, the last axis fastest; kLimit above 100,000.
[[nodiscard]] Result<std::vector<Overrides>> variants(const std::vector<Axis>& axes);

/// Schema kansoku.simulation_sweep/1. `summaries[i]` belongs to variant number `indices[i]`.
struct SweepPart {
  std::string name;
  std::vector<Axis> axes;
  std::vector<std::size_t> indices;
  std::vector<Json> summaries;  // kansoku.simulation/1
};
[[nodiscard]] Json sweep_json(const SweepPart& part);

/// Joins the parts of one sweep that ran apart and, when all variants are there, adds the paired
/// comparisons: for each metric and variant the mean of the differences to the first variant,
/// replication by replication, with its 95 % interval. kCorrupt: parts of different sweeps, or a
/// variant twice with other values. `missing` gets the numbers of variants that no part has.
[[nodiscard]] Result<Json> merge_sweeps(const std::vector<Json>& untrusted,
                                        std::vector<std::size_t>& missing);

}  // namespace kansoku::simulate
