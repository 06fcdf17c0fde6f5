// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/internal/hour_fits.h"

#include <utility>

#include "simulate/workload/internal/week.h"

namespace kansoku::simulate::internal {

std::vector<double> gaps_of(std::span<const Job> jobs) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < jobs.size(); ++i)
    gaps.push_back(seconds(jobs[i].submit - jobs[i - 1].submit));
  return gaps;
}

Result<stats::Fit> closest_fit(std::span<const double> gaps, const ArrivalFitOptions& options) {
  stats::FitOptions fit_options;
  fit_options.seed = options.seed;
  std::optional<stats::Fit> best;
  std::optional<Error> error;
  for (const stats::Family family : options.families) {
    auto fit = stats::fit(family, gaps, fit_options);
    if (!fit)
      error = fit.error();
    else if (!best || fit->ks < best->ks)
      best = std::move(fit).value();
  }
  if (best) return *std::move(best);
  return error.value_or(Error{Code::kLimit, "fit arrivals: no family was asked for"});
}

std::array<std::optional<stats::Fit>, kHoursOfWeek> fit_hours(std::span<const Job> jobs,
                                                              std::int64_t epoch_in_week_s,
                                                              const ArrivalFitOptions& options) {
  const std::vector<double> gaps = gaps_of(jobs);
  std::array<std::vector<double>, kHoursOfWeek> by_hour;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const int hour = hour_of_week(since_monday_ns(epoch_in_week_s, jobs[i].submit));
    by_hour[static_cast<std::size_t>(hour)].push_back(gaps[i]);
  }
  std::array<std::optional<stats::Fit>, kHoursOfWeek> fits;
  for (std::size_t h = 0; h < kHoursOfWeek; ++h) {
    if (by_hour[h].size() < options.gaps_per_hour_min) continue;
    auto fit = closest_fit(by_hour[h], options);
    if (fit) fits[h] = std::move(fit).value();
  }
  return fits;
}

}  // namespace kansoku::simulate::internal
