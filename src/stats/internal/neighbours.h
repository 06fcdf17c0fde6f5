// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace kansoku::stats::internal {

/// Slots that are looked at together; their number is a multiple of it.
inline constexpr std::size_t kSlotsPerBlock = 64;
inline constexpr std::size_t kNeighbours = 8;

/// Weighted points, feature by feature: the caller's arrays.
struct Points {
  const float* values;        // dimensions x slots
  const float* inverse_rows;  // slots; infinite where a slot is free
  std::size_t dimensions;
  std::size_t slots;
};

struct Neighbours {
  std::size_t count{0};
  std::array<std::size_t, kNeighbours> slots{};
  std::array<float, kNeighbours> costs{};  // ascending
};

/// Up to kNeighbours slots other than `self` whose unions with `query` (dimensions values, at
/// `self`) add least to the sum of squares (Ward's cost): squared distance / (1 / rows + 1 / rows);
/// the first ones of equal ones. Single precision, feature by feature: equal on all machines.
[[nodiscard]] Neighbours cheapest_unions(const Points& points, const float* query,
                                         std::size_t self);

/// The first place of the least of `count` > 0 values.
[[nodiscard]] std::size_t lowest(const float* values, std::size_t count);

}  // namespace kansoku::stats::internal
