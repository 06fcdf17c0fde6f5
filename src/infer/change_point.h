// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace kansoku::infer {

/// The moment from which on the values of a series are larger.
struct ChangePoint {
  std::size_t at{0};     // index of the first one behind it
  double ratio{1};       // median behind it to median before it
  double separation{0};  // chance that one behind it is larger than one before it
};

/// The most likely one, by the greatest gap between means of ranks, which a single outlier does not
/// move; nothing with fewer than `side_min` values on either side. `values`: finite. Deterministic.
[[nodiscard]] std::optional<ChangePoint> find_change(const std::vector<double>& values,
                                                     std::size_t side_min);
/// Median behind `at` to that before it; 1 where the latter is 0. `at` within the series.
[[nodiscard]] double ratio_at(const std::vector<double>& values, std::size_t at);

}  // namespace kansoku::infer
