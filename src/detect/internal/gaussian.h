// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stats/mixture.h"

namespace kansoku::detect {

/// The mixture over some of its dimensions only.
[[nodiscard]] stats::Mixture marginal(const stats::Mixture& mixture,
                                      std::span<const std::size_t> dimensions);

/// One coordinate that was left out of a row to make it more likely.
struct Removal {
  std::size_t index{0};
  double drop{0};      // of half the squared Mahalanobis distance to the mode
  double expected{0};  // its mean given the coordinates that are left at the end
};
/// Leaves out, one after another, the coordinate of `row` that fits mode `mode` least given those
/// still there, until `count` are gone or no other would lower the distance by half a nat.
[[nodiscard]] std::vector<Removal> explain_in_mode(const stats::Mixture& mixture, std::size_t mode,
                                                   std::span<const double> row, std::size_t count);

/// At most `components_max` components: the two whose joining costs least are joined first.
/// Source: the bound of Runnalls 2007 on the Kullback-Leibler divergence.
[[nodiscard]] stats::Mixture reduce(const stats::Mixture& mixture, std::size_t components_max);

}  // namespace kansoku::detect
