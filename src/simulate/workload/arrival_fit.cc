// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "simulate/workload/arrivals.h"
#include "simulate/workload/internal/hour_fits.h"
#include "simulate/workload/internal/sessions.h"
#include "simulate/workload/internal/week.h"
#include "stats/fit.h"

namespace kansoku::simulate {
namespace {

using internal::kDayNs;
using internal::kHourNs;

constexpr std::size_t kJobsMin = 20;

/// The jobs to fit and the window they were recorded in, since some Monday 00:00.
struct Recording {
  std::span<const Job> jobs;
  std::int64_t epoch_in_week_s{0};
  std::int64_t begin_ns{0}, end_ns{0};

  [[nodiscard]] std::int64_t at_ns(const Job& job) const {
    return internal::since_monday_ns(epoch_in_week_s, job.submit);
  }
  [[nodiscard]] std::size_t hour(const Job& job) const {
    return static_cast<std::size_t>(internal::hour_of_week(at_ns(job)));
  }
};

Recording recording_of(const Workload& workload, std::size_t first, std::size_t last,
                       const ArrivalFitOptions& options) {
  Recording recording;
  recording.jobs = std::span(workload.jobs).subspan(first, last - first);
  recording.epoch_in_week_s = std::max<std::int64_t>(workload.epoch_in_week_s, 0);
  const std::int64_t from = recording.at_ns(recording.jobs.front());
  const std::int64_t to = recording.at_ns(recording.jobs.back());
  // Whole hours: an hour of which the recording holds the first second only must not get its jobs
  // per second as a rate.
  recording.begin_ns = internal::floor_div(from, kHourNs) * kHourNs;
  recording.end_ns = (internal::floor_div(to, kHourNs) + 1) * kHourNs;
  if (options.window_begin.count() >= 0)
    recording.begin_ns =
        std::min(from, internal::since_monday_ns(recording.epoch_in_week_s, options.window_begin));
  if (options.window_end.count() >= 0)
    recording.end_ns =
        std::max(to + 1, internal::since_monday_ns(recording.epoch_in_week_s, options.window_end));
  return recording;
}

/// How many hours of the window fall on each hour of week; parts count as parts.
std::array<double, kHoursOfWeek> covered_hours(const Recording& recording) {
  std::array<double, kHoursOfWeek> covered{};
  const std::int64_t whole_weeks = (recording.end_ns - recording.begin_ns) / internal::kWeekNs;
  covered.fill(static_cast<double>(whole_weeks));
  std::int64_t at = recording.begin_ns + whole_weeks * internal::kWeekNs;
  while (at < recording.end_ns) {
    const std::int64_t next = (internal::floor_div(at, kHourNs) + 1) * kHourNs;
    const std::int64_t until = std::min(next, recording.end_ns);
    covered[static_cast<std::size_t>(internal::hour_of_week(at))] +=
        static_cast<double>(until - at) / static_cast<double>(kHourNs);
    at = until;
  }
  return covered;
}

/// Events per hour for each hour of week from the number of events in it.
std::vector<double> hourly_rates(const Recording& recording,
                                 const std::array<double, kHoursOfWeek>& events) {
  const auto covered = covered_hours(recording);
  const double hours = std::accumulate(covered.begin(), covered.end(), 0.0);
  const double mean = std::accumulate(events.begin(), events.end(), 0.0) / hours;
  std::vector<double> rates(kHoursOfWeek, mean);
  for (std::size_t h = 0; h < kHoursOfWeek; ++h)
    if (covered[h] > 0) rates[h] = events[h] / covered[h];
  return rates;
}

/// A heavy fit without a cap would leave the load to one draw.
Result<stats::Distribution> usable(const stats::Fit& fit, double longest_s) {
  if (!fit.mean_infinite) return fit.distribution;
  return fit.distribution.capped(longest_s);
}

Result<void> fit_renewal(const Recording& recording, const ArrivalFitOptions& options,
                         ArrivalModel& model) {
  const std::vector<double> gaps = internal::gaps_of(recording.jobs);
  TRY(const auto choice, stats::choose(options.families, gaps, 0.3, {.seed = options.seed}));
  TRY(model.gap,
      usable(choice.candidates.front().fit, *std::max_element(gaps.begin(), gaps.end())));
  return {};
}

Result<void> fit_hourly_renewal(const Recording& recording, const ArrivalFitOptions& options,
                                ArrivalModel& model) {
  const std::vector<double> gaps = internal::gaps_of(recording.jobs);
  const double longest_s = *std::max_element(gaps.begin(), gaps.end());
  TRY(const auto of_all, internal::closest_fit(gaps, options));
  TRY(const auto fallback, usable(of_all, longest_s));
  model.hour_gaps.assign(kHoursOfWeek, fallback);
  const auto fits = internal::fit_hours(recording.jobs, recording.epoch_in_week_s, options);
  for (std::size_t h = 0; h < kHoursOfWeek; ++h) {
    if (!fits[h]) continue;
    TRY(model.hour_gaps[h], usable(*fits[h], longest_s));
  }
  return {};
}

/// A job as a model keeps it: without the names of a table that stays behind.
Job kept(const Job& job, Nanos submit) {
  Job copy = job;
  copy.submit = submit;
  copy.name = 0;
  copy.graph = 0;
  if (copy.scheduled.count() >= 0) copy.scheduled += submit - job.submit;
  return copy;
}

void fit_sessions(const Recording& recording, const ArrivalFitOptions& options,
                  ArrivalModel& model) {
  model.session_gap_s = options.session_gap_s;
  std::array<double, kHoursOfWeek> events{};
  for (const auto& members : internal::cut_sessions(recording.jobs, options.session_gap_s)) {
    const Job& start = recording.jobs[members.front()];
    const std::size_t hour = recording.hour(start);
    events[hour] += 1;
    model.sessions.push_back({static_cast<std::int32_t>(hour),
                              static_cast<std::uint32_t>(model.jobs.size()),
                              static_cast<std::uint32_t>(members.size())});
    for (const std::uint32_t i : members)
      model.jobs.push_back(kept(recording.jobs[i], recording.jobs[i].submit - start.submit));
  }
  model.rates = hourly_rates(recording, events);
}

Result<void> fit_days(const Recording& recording, ArrivalModel& model) {
  const std::int64_t begin = -internal::floor_div(-recording.begin_ns, kDayNs) * kDayNs;
  const std::int64_t end = internal::floor_div(recording.end_ns, kDayNs) * kDayNs;
  if (end <= begin)
    return Error{Code::kLimit, "fit day blocks: the recording covers no whole day",
                 "fit another kind of arrivals, or a longer recording"};
  for (const Job& job : recording.jobs) {
    const std::int64_t at = recording.at_ns(job);
    if (at >= begin && at < end) model.jobs.push_back(kept(job, Nanos{at - begin}));
  }
  model.span_s = static_cast<double>(end - begin) * 1e-9;
  model.epoch_in_week_s = (begin / 1'000'000'000) % (std::int64_t{7} * 86'400);
  return {};
}

void fit_replay(const Recording& recording, ArrivalModel& model) {
  const Nanos begin = recording.jobs.front().submit;
  for (const Job& job : recording.jobs)
    model.jobs.push_back(kept(job, job.submit - begin));
  const std::int64_t first_ns = recording.at_ns(recording.jobs.front());
  // Time 0 is the first job; what is left of its second below the week's grid is dropped.
  model.epoch_in_week_s = internal::floor_div(first_ns, 1'000'000'000) % (std::int64_t{7} * 86'400);
}

Result<void> check_input(ArrivalKind kind, const Workload& workload, std::size_t jobs) {
  const std::size_t least = kind == ArrivalKind::kReplay ? 1 : kJobsMin;
  if (jobs < least)
    return Error{Code::kLimit, fmt::format("fit {} arrivals: {} jobs are fewer than {}",
                                           kind_name(kind), jobs, least)};
  const bool hours_of_week = kind == ArrivalKind::kHourOfWeekPoisson ||
                             kind == ArrivalKind::kHourOfWeekRenewal ||
                             kind == ArrivalKind::kSessions || kind == ArrivalKind::kDayBlocks;
  if (hours_of_week && workload.epoch_in_week_s < 0)
    return Error{Code::kUnsupported,
                 fmt::format("fit {} arrivals: the workload does not give its hour of week",
                             kind_name(kind)),
                 "use replay or renewal arrivals"};
  return {};
}

}  // namespace

Result<ArrivalModel> fit_arrivals(ArrivalKind kind, const Workload& workload, std::size_t first,
                                  std::size_t last, const ArrivalFitOptions& options) {
  CHECK(first <= last && last <= workload.jobs.size());
  TRY_VOID(check_input(kind, workload, last - first));
  const Recording recording = recording_of(workload, first, last, options);
  ArrivalModel model;
  model.kind = kind;
  model.groups = workload.groups;
  model.gpu_types = workload.gpu_types;
  model.span_s = static_cast<double>(recording.end_ns - recording.begin_ns) * 1e-9;
  model.epoch_in_week_s =
      internal::floor_div(recording.begin_ns, 1'000'000'000) % (7 * std::int64_t{86'400});
  switch (kind) {
    case ArrivalKind::kConstant: {
      const double covered =
          internal::seconds(recording.jobs.back().submit - recording.jobs.front().submit);
      model.gap = stats::Distribution::constant(covered / static_cast<double>(last - first - 1));
      break;
    }
    case ArrivalKind::kRenewal:
      TRY_VOID(fit_renewal(recording, options, model));
      break;
    case ArrivalKind::kHourOfWeekPoisson: {
      std::array<double, kHoursOfWeek> events{};
      for (const Job& job : recording.jobs)
        events[recording.hour(job)] += 1;
      model.rates = hourly_rates(recording, events);
      break;
    }
    case ArrivalKind::kHourOfWeekRenewal:
      TRY_VOID(fit_hourly_renewal(recording, options, model));
      break;
    case ArrivalKind::kSessions:
      fit_sessions(recording, options, model);
      break;
    case ArrivalKind::kDayBlocks:
      TRY_VOID(fit_days(recording, model));
      break;
    case ArrivalKind::kReplay:
      fit_replay(recording, model);
      break;
  }
  return model;
}

}  // namespace kansoku::simulate
