// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "detect/job_model.h"
#include "detect/rank_tests.h"
#include "detect/table.h"
#include "trace/incident.h"

namespace kansoku::detect {

struct RunOptions {
  std::size_t window_steps{20};
  std::size_t long_steps{200};
  // Steps that count as the run's own healthy past; none given: steps 50 to 97, or of
  // less than 150 steps those from 10 % to 30 %. Times as in the table.
  std::optional<double> reference_begin{}, reference_end{};
  std::uint64_t seed{1};
};

/// Something found in a recorded run, from one time to another.
struct RunIncident {
  double begin{0}, end{0};          // times of the first and last step
  std::vector<std::int32_t> ranks;  // empty: no single rank
  std::vector<std::string> tests;   // "job", "rank", "event"
  std::uint32_t windows{0};         // that were flagged
  std::vector<trace::Evidence> evidence;
  std::string summary;
};

struct RunVerdict {
  std::string pace;         // the column that stands for the job's speed
  double own_ratio{0};      // its median behind the reference over that in it; 0: untested
  double model_ratio{0};    // the same against the model; 0: no model
  double flagged_share{0};  // of points, by the model; 0 without
  std::size_t steps{0}, ranks{0};
  std::vector<RunIncident> incidents;
  std::vector<std::int32_t> named;  // ranks of all incidents
  std::vector<std::string> notes;   // tests that were refused, and why

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] std::string to_text() const;
};

/// Asks the three questions of a recorded run: is the job as it was, is each rank as its peers,
/// does each step fit the model. A test has to say yes in three of five windows. `columns` are the
/// cube's. kUnsupported if the model has a column that the run lacks; kNotFound if the reference
/// lies outside of the run.
/// Source: the shared reference's three tests; the persistent entry between ranks is ours.
[[nodiscard]] Result<RunVerdict> score_run(const Cube& cube, std::span<const Column> columns,
                                           const JobModel* model, const RunOptions& options);

/// Index of the column that stands for the speed: "step_mean", "decode_mean", one that begins with
/// "step", or the longest time. columns.size() if there is no time.
[[nodiscard]] std::size_t pace_column(const Cube& cube, std::span<const Column> columns);

}  // namespace kansoku::detect
