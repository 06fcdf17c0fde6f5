// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "diff/internal/estimate.h"
#include "diff/internal/recording.h"

namespace kansoku::diff {

/// The steps of a recording that are compared: all but stalls.
struct KeptSteps {
  std::vector<std::uint32_t> index;  // by step: place among those kept; kLeftOut for a stall
  std::size_t count{0};
  std::size_t stalls{0};
  double stall_ms{0};  // a step: added by stalls to the mean of the others
  static constexpr std::uint32_t kLeftOut = UINT32_MAX;
};
[[nodiscard]] KeptSteps keep_steps(const Recording& recording);

/// Mean milliseconds a call by shape, of one side: the measure of equal work.
using CallTimes = std::map<std::string, double>;

/// One item step by step: means over the ranks, or of one rank.
struct Series {
  std::vector<double> calls, ms, lane_ms, size;
  std::vector<double> common_ms, expected_ms;  // at the shapes of CallTimes; their times there
  double call_count{0};                        // of all ranks
};

/// `rank`: an index; nothing: the mean over all. A null item gives zeros.
[[nodiscard]] Series series_of(const Item* item, const Recording& recording, const KeptSteps& kept,
                               const CallTimes& times, std::optional<std::size_t> rank);

/// Means over the ranks of a value a unit.
[[nodiscard]] std::vector<double> step_series(const std::vector<double>& by_unit,
                                              const Recording& recording, const KeptSteps& kept);

/// The shapes that both sides launch, with their time before. If they share none, the time that
/// each shape of either side would take at the work a millisecond of before; where sizes are not
/// known, the mean of all under every shape. `before`, `after`: items of one kind of thing, null
/// ones allowed.
[[nodiscard]] CallTimes common_times(const std::vector<const Item*>& before,
                                     const std::vector<const Item*>& after);

/// True if all sizes of the items can be compared.
[[nodiscard]] bool have_one_unit(const std::vector<const Item*>& before,
                                 const std::vector<const Item*>& after);
[[nodiscard]] bool have_common_shape(const std::vector<const Item*>& before,
                                     const std::vector<const Item*>& after);

/// Factor that the rows of a lane share in each step, about 1: the median over those that take most
/// of it, each beside its own mean for equal calls. 1 everywhere if there are too few.
[[nodiscard]] std::vector<double> lane_factors(const Recording& recording, const KeptSteps& kept,
                                               Lane lane);

/// True if nearly all kernels take the same time in each step: a clock that counts work.
[[nodiscard]] bool is_exact(const Recording& recording);

/// The shape of most calls.
[[nodiscard]] std::string usual_shape(const std::vector<const Item*>& items);

}  // namespace kansoku::diff
