// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diff/diff.h"
#include "diff/internal/estimate.h"
#include "diff/internal/match.h"
#include "diff/internal/recording.h"
#include "diff/internal/series.h"

namespace kansoku::diff {

/// A row while it is judged.
struct Draft {
  Row row;
  Matched matched;
  CallTimes times;
  Difference calls, size;
  Difference presence;         // of an item that one side lacks
  std::vector<LogRatio> call;  // by recording: time a call, beside that of equal calls before
  std::vector<std::vector<LogRatio>> call_of_rank;  // [rank]; empty if ranks are not compared
  Prior prior;                                      // of `call`
  std::size_t call_count{0};                        // of the side with more
  bool is_tested{false};
};

/// All recordings of both sides, and the values that are worked out once for each.
struct Sides {
  std::vector<Recording> recordings;  // before first
  std::size_t before_count{0};
  std::vector<KeptSteps> kept;
  std::vector<StepDraws> draws;
  // [recording][lane][step]: milliseconds, and the factor that its rows share in a step, about 1.
  std::vector<std::array<std::vector<double>, kLaneCount>> lanes, factors;
  bool is_exact{false};        // every device clock is
  bool compares_ranks{false};  // several ranks, the same in all recordings
  double step_before_ms{0}, step_after_ms{0};
  double queue_before_ms{0}, queue_after_ms{0};  // part of the step: waits for a processor
  double device_ms{0};  // of a step: operations added up, of the side with more

  [[nodiscard]] std::size_t rank_count() const { return recordings.front().ranks.size(); }
  [[nodiscard]] bool is_before(std::size_t r) const { return r < before_count; }
  [[nodiscard]] bool is_clock_apart() const;
  /// Whole that shares of a lane are taken of: the step, or the device's time if it has its own
  /// clock.
  [[nodiscard]] double whole_ms(Lane lane) const;
};

/// Works out the steps of each recording, and the sums of its lanes.
[[nodiscard]] Sides make_sides(std::vector<Recording> recordings, std::size_t before_count,
                               const Options& options);

/// Every item of any recording as a draft, its differences estimated, nothing judged yet.
[[nodiscard]] std::vector<Draft> draft_rows(const Sides& sides);

/// The step's own duration, without waiting for a processor.
[[nodiscard]] Difference step_difference(const Sides& sides);

/// The difference of a value a recording; `prior` as in estimate.h.
[[nodiscard]] Difference difference_of(const Sides& sides, std::span<const LogRatio> runs,
                                       Prior prior);

/// Ratio of a whole lane in recording `r`, for its drift.
[[nodiscard]] LogRatio lane_ratio(const Sides& sides, Lane lane, std::size_t r);

}  // namespace kansoku::diff
