// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// The steps before and from `step` on differ most in their mean; later ones are longer.
struct Change {
  std::size_t step{0};
  double before_ms{0}, after_ms{0};  // means, tails clipped
  double confidence{0};              // 1 - share of resamples without order that change as much
};

/// Step at which durations rise for good, with at least `least` steps on either side; nothing if
/// they do not. Source: the cumulative sum of Page 1954 (recalled: unverified), its chance from
/// resampled blocks.
[[nodiscard]] std::optional<Change> find_change(std::span<const double> steps_ms, std::size_t least,
                                                const Options& options);

/// A single process that is slower in a later part of the recording than before ("slowed"): its
/// past stands beside it as a peer.
[[nodiscard]] std::optional<Finding> find_slowed(const Context& context, const Options& options);

}  // namespace kansoku::diagnose
