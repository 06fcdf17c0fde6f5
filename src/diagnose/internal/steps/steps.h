// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"

namespace kansoku::diagnose {

/// Steps that all ranks have in common, in order, warm-up left out.
struct StepTable {
  std::vector<std::vector<Interval>> ranks;  // [rank index][step]; each rank on its own times
  std::string found_by{"none"};
  std::vector<std::string> word;
  bool is_short{false};  // fewer repeats than full confidence asks for
  [[nodiscard]] std::size_t count() const { return ranks.empty() ? 0 : ranks.front().size(); }
};

/// The step of one rank that holds an instant.
[[nodiscard]] std::optional<std::size_t> step_at(const std::vector<Interval>& steps,
                                                 std::int64_t time_ns);

/// Finds the steps from the word of events that repeats; without knowledge of the script. A step
/// lasts from the end of one word to the end of the next. An empty table (and a note) if there is
/// no such word or the ranks have too few steps in common.
[[nodiscard]] StepTable find_steps(const trace::Trace& trace, const Collectives& collectives,
                                   const Options& options, JobData& job);

/// Events of `kind` on the main thread that ended and are not inside another of that kind.
[[nodiscard]] std::vector<Event> outermost(const RankData& rank, EventKind kind);

}  // namespace kansoku::diagnose
