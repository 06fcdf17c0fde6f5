// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

namespace kansoku::stats {

/// The chance of a Student's t at least so far from 0, to either side. `degrees` > 0, infinity
/// gives the normal distribution; 1 for a `t` that is no number. Pure; any thread.
[[nodiscard]] double two_sided(double t, double degrees);

/// Chances corrected for all of them being looked at, in the same order: rejecting those up to a
/// level rejects any true hypothesis no more often than that, however they depend on each other.
/// `chances` in 0 .. 1. Pure; any thread. Source: Holm 1979 (recalled: unverified).
[[nodiscard]] std::vector<double> holm(std::span<const double> chances);

}  // namespace kansoku::stats
