// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/result.h"
#include "simulate/workload/arrivals.h"
#include "simulate/workload/workload.h"
#include "stats/fit.h"

namespace kansoku::simulate::internal {

/// Seconds from each job to the next; one fewer than jobs, which are sorted by submission.
[[nodiscard]] std::vector<double> gaps_of(std::span<const Job> jobs);

/// The fit of `options.families` with the least KS, PipeSim's least squares in effect; a family
/// that cannot be fitted is left out. The last one's error if none can.
[[nodiscard]] Result<stats::Fit> closest_fit(std::span<const double> gaps,
                                             const ArrivalFitOptions& options);

/// closest_fit() of the gaps that start in each hour of week; nothing for an hour with fewer than
/// `gaps_per_hour_min` or where no family can be fitted.
[[nodiscard]] std::array<std::optional<stats::Fit>, kHoursOfWeek> fit_hours(
    std::span<const Job> jobs, std::int64_t epoch_in_week_s, const ArrivalFitOptions& options);

}  // namespace kansoku::simulate::internal
