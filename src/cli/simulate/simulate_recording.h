// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "simulate/workload/workload.h"
#include "stats/distribution.h"

namespace kansoku::cli {

/// How long one phase of a step takes.
struct PhaseModel {
  std::string name;                // as in kansoku.diagnosis/3
  double mean_s{0}, longest_s{0};  // over steps; of a step: the mean over ranks
  double ks{0};                    // of the fit; 0 for a constant
  stats::Distribution duration;    // seconds, capped at the longest
};

/// The steps of a recorded training job, for simulation.
struct RecordedJob {
  /// A job each step: submitted when the first rank begins it, its duration the median over ranks
  /// (as `kansoku diagnose` reports), asking for as many GPUs as there are ranks; the group is the
  /// training job.
  simulate::Workload workload;
  std::vector<PhaseModel> phases;  // those that take time, in the order they have in a step
  std::string found_by;            // the event that ends a step
};

/// True if the text of a file looks like a recording (.pftrace).
[[nodiscard]] bool is_recording(std::string_view untrusted);

/// Reads a recording (.pftrace) and finds its steps and phases as `kansoku diagnose` does.
/// kCorrupt for damage, kUnsupported with the reason if there are no steps. `path` serves for
/// messages. Deterministic.
[[nodiscard]] Result<RecordedJob> read_recorded_job(ByteSpan untrusted, const std::string& path);

/// An experiment file (docs/formats/experiment.md) with one pipeline, a run of which is a step: its
/// tasks are the phases one after the other. Runs come further apart than the longest possible
/// step, so that none waits for another and the sojourn is the time of a step.
[[nodiscard]] std::string recorded_experiment(const RecordedJob& job);

/// Reads the recording at `path`, writes its recorded_experiment() to `output` and, unless `quiet`,
/// prints the phases as a table. kUnsupported if the file is no recording.
[[nodiscard]] Result<void> write_recorded_experiment(const std::string& path,
                                                     const std::string& output, bool quiet);

}  // namespace kansoku::cli
