// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "simulate/workload/arrivals.h"
#include "simulate/workload/internal/sessions.h"
#include "simulate/workload/internal/week.h"
#include "stats/fit.h"

namespace kansoku::simulate {
namespace {

constexpr double kSessionGapS = 120;

/// Counts per calendar hour, from the hour of the first job to that of the last.
struct HourlyCounts {
  int first_hour_of_week{0};
  std::vector<double> counts;
};

HourlyCounts count_hours(std::span<const Job> jobs, std::int64_t epoch_in_week_s) {
  const auto hour = [&](const Job& job) {
    return internal::floor_div(internal::since_monday_ns(epoch_in_week_s, job.submit),
                               internal::kHourNs);
  };
  HourlyCounts hourly;
  const std::int64_t first = hour(jobs.front());
  hourly.first_hour_of_week = internal::hour_of_week(first * internal::kHourNs);
  hourly.counts.resize(static_cast<std::size_t>(hour(jobs.back()) - first) + 1);
  for (const Job& job : jobs)
    hourly.counts[static_cast<std::size_t>(hour(job) - first)] += 1;
  return hourly;
}

void profile_hours(const HourlyCounts& hourly, ArrivalStatistics& out) {
  std::array<double, kHoursOfWeek> hours{};
  for (std::size_t i = 0; i < hourly.counts.size(); ++i) {
    const std::size_t h = (static_cast<std::size_t>(hourly.first_hour_of_week) + i) % kHoursOfWeek;
    out.hourly_profile[h] += hourly.counts[i];
    hours[h] += 1;
  }
  for (std::size_t h = 0; h < kHoursOfWeek; ++h)
    if (hours[h] > 0) out.hourly_profile[h] /= hours[h];
  double total = 0;
  double left = 0;
  for (std::size_t i = 0; i < hourly.counts.size(); ++i) {
    const std::size_t h = (static_cast<std::size_t>(hourly.first_hour_of_week) + i) % kHoursOfWeek;
    total += std::pow(hourly.counts[i] - out.per_hour_mean, 2);
    left += std::pow(hourly.counts[i] - out.hourly_profile[h], 2);
  }
  out.hour_of_week_variance_share = total > 0 ? 1 - left / total : 0;
}

void describe_gaps(std::span<const Job> jobs, ArrivalStatistics& out) {
  if (jobs.size() < 2) return;
  std::vector<double> logs;
  double sum = 0;
  double squares = 0;
  std::size_t zeros = 0;
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    const double gap = internal::seconds(jobs[i].submit - jobs[i - 1].submit);
    sum += gap;
    squares += gap * gap;
    zeros += gap == 0 ? 1 : 0;
    logs.push_back(std::log1p(gap));
  }
  const auto n = static_cast<double>(logs.size());
  out.gap_mean_s = sum / n;
  const double variance = std::max(squares / n - out.gap_mean_s * out.gap_mean_s, 0.0);
  out.gap_cv = out.gap_mean_s > 0 ? std::sqrt(variance) / out.gap_mean_s : 0;
  out.zero_gap_share = static_cast<double>(zeros) / n;
  out.log_gap_autocorrelation_1 = stats::autocorrelation(logs, 1);
  out.log_gap_autocorrelation_10 = stats::autocorrelation(logs, 10);
}

/// Share of the variance of log duration that lies between sessions: the one-way random-effects
/// coefficient ICC(1), for sessions of different size.
/// Source: textbook analysis of variance (Donner 1986, recalled: unverified).
double intraclass(const std::vector<std::vector<double>>& sessions) {
  double n = 0;
  double total = 0;
  double sizes_squared = 0;
  for (const auto& values : sessions) {
    const auto size = static_cast<double>(values.size());
    n += size;
    sizes_squared += size * size;
    total += std::accumulate(values.begin(), values.end(), 0.0);
  }
  const auto groups = static_cast<double>(sessions.size());
  if (groups < 2 || n <= groups) return 0;
  double between = 0;
  double within = 0;
  for (const auto& values : sessions) {
    const auto size = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / size;
    between += size * std::pow(mean - total / n, 2);
    for (const double value : values)
      within += std::pow(value - mean, 2);
  }
  between /= groups - 1;
  within /= n - groups;
  const double size = (n - sizes_squared / n) / (groups - 1);
  const double sum = between + (size - 1) * within;
  return sum > 0 ? (between - within) / sum : 0;
}

void describe_sessions(std::span<const Job> jobs, ArrivalStatistics& out) {
  const auto sessions = internal::cut_sessions(jobs, kSessionGapS);
  out.session_jobs_mean = static_cast<double>(jobs.size()) / static_cast<double>(sessions.size());
  std::vector<std::vector<double>> log_durations;
  std::size_t pairs = 0;
  std::size_t same = 0;
  for (const auto& members : sessions) {
    std::vector<double> logs;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Job& job = jobs[members[i]];
      if (job.duration.count() > 0) logs.push_back(std::log(internal::seconds(job.duration)));
      if (i == 0) continue;
      ++pairs;
      same += job.gpus == jobs[members[i - 1]].gpus ? 1 : 0;
    }
    if (!logs.empty()) log_durations.push_back(std::move(logs));
  }
  out.duration_intraclass = intraclass(log_durations);
  out.same_gpus_share = pairs > 0 ? static_cast<double>(same) / static_cast<double>(pairs) : 0;
}

}  // namespace

ArrivalStatistics arrival_statistics(const std::vector<Job>& jobs, std::int64_t epoch_in_week_s) {
  ArrivalStatistics out;
  out.jobs = jobs.size();
  if (jobs.empty()) return out;
  const HourlyCounts hourly = count_hours(jobs, std::max<std::int64_t>(epoch_in_week_s, 0));
  out.per_hour_mean = static_cast<double>(jobs.size()) / static_cast<double>(hourly.counts.size());
  out.per_hour_max = *std::max_element(hourly.counts.begin(), hourly.counts.end());
  out.index_of_dispersion = stats::index_of_dispersion(hourly.counts);
  profile_hours(hourly, out);
  describe_gaps(jobs, out);
  describe_sessions(jobs, out);
  return out;
}

}  // namespace kansoku::simulate
