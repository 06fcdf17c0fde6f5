// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/records.h"

namespace kansoku::simulate {

/// A run that drains goes on after the horizon until all is done, but no longer than so many
/// horizons; the rest is told ("pipeline.NAME.unfinished").
inline constexpr int kDrainHorizonsMax = 100;

/// One figure of one replication. Names are paths: "cluster.training.utilisation",
/// "task.nightly.train.wait_mean_s", "models.churn.performance_mean".
struct Metric {
  std::string name;
  double value{0};
};

/// Levels over time, as means over equal spans: "cluster.training.busy", "cluster.training.queue",
/// "models.churn.performance".
struct Series {
  std::string name;
  std::vector<double> values;
};

struct Replication {
  int index{0};
  std::vector<Metric> metrics;  // the same names in the same order for each replication
  std::vector<Series> series;
  double series_step_s{0};
  std::shared_ptr<Records> records;  // null: not asked for
  std::uint64_t events{0};
};

/// Shared with the caller while replications run: progress, and the wish to stop.
struct RunControl {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> permille{0};  // of all simulated time, summed over replications
};

struct RunOptions {
  bool records{false};
  bool records_of_first{false};  // of replication 0 alone
  int series_points{500};
};

/// Simulates one replication. The same (experiment, index) gives the same result on any thread:
/// every source of randomness has a stream of its own, keyed by (seed, index, name).
/// kInternal is a broken invariant and names the simulated time and the entity: utilisation above
/// capacity, jobs lost, Little's law violated. kTimeout: stopped by `control`.
[[nodiscard]] Result<Replication> run_replication(const Experiment& experiment, int index,
                                                  const RunOptions& options, RunControl& control);

/// Replications 0 .. count-1 on `threads` threads. After a stop the finished ones are returned.
struct Replications {
  std::vector<Replication> finished;  // by index
  bool stopped{false};
};
[[nodiscard]] Result<Replications> run_replications(const Experiment& experiment, int count,
                                                    int threads, const RunOptions& options,
                                                    RunControl& control);

/// Mean over replications and its 95 % interval by Student's t; an interval needs two.
struct Estimate {
  double mean{0}, low{0}, high{0}, sd{0};
  int n{0};
};
[[nodiscard]] Estimate estimate(const std::vector<double>& values);

}  // namespace kansoku::simulate
