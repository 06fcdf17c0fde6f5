// SPDX-License-Identifier: Apache-2.0
#include "bursts_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "common/rng.h"
#include "stats/fit.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

using stats::Family;

constexpr double kFirstPart = 0.7;

double seconds_of(Nanos time) {
  return static_cast<double>(time.count()) * 1e-9;
}

/// The same values in a random order: its first part and the rest are a random split.
std::vector<double> shuffled(std::vector<double> values) {
  RandomStream random(1, "split");
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[random.below(i)]);
  return values;
}

Result<double> held_out_ks(Family family, std::span<const double> values,
                           const stats::FitOptions& options) {
  const auto first = static_cast<std::size_t>(static_cast<double>(values.size()) * kFirstPart);
  TRY(const auto fit, stats::fit(family, values.first(first), options));
  return stats::ks_distance(values.subspan(first), fit.distribution);
}

Result<void> print_families(const std::vector<double>& durations) {
  const std::vector<double> mixed = shuffled(durations);
  fmt::print(
      "| family | KS, all | KS, random 30 % unseen | KS, last 30 % of the time | mean / data |"
      "\n|---|---|---|---|---|\n");
  const double mean = stats::mean(durations);
  const auto print = [&](const std::string& name, Family family, int components) -> Result<void> {
    stats::FitOptions options;
    options.components = components;
    TRY(const auto fit, stats::fit(family, durations, options));
    TRY(const double random, held_out_ks(family, mixed, options));
    TRY(const double temporal, held_out_ks(family, durations, options));
    fmt::print(
        "| {} | {:.3f} | {:.3f} | {:.3f} | {} |\n", name, fit.ks, random, temporal,
        fit.mean_infinite ? "infinite" : fmt::format("{:.2f}", fit.distribution.mean() / mean));
    return {};
  };
  for (const Family family :
       {Family::kLogNormal, Family::kExponentiatedWeibull, Family::kBurrXII, Family::kWeibull,
        Family::kGamma, Family::kPareto, Family::kExponential})
    TRY_VOID(print(std::string(stats::family_name(family)), family, 1));
  for (const int components : {1, 3, 5, 10, 20, 50})
    TRY_VOID(
        print(fmt::format("mixture on logs, K = {}", components), Family::kLogMixture, components));
  const auto first = static_cast<std::size_t>(static_cast<double>(durations.size()) * kFirstPart);
  fmt::print(
      "\n{} durations; between the first 70 % and the last 30 % of them in time lies KS "
      "{:.3f}.\n\n",
      durations.size(),
      stats::ks_distance(std::span(durations).first(first), std::span(durations).subspan(first)));
  return {};
}

/// In how many hours of week each family is the closest, and the median of the least KS.
void print_hours(const Workload& joined, const std::vector<Family>& families) {
  std::array<std::vector<double>, 168> gaps;
  for (std::size_t i = 1; i < joined.jobs.size(); ++i) {
    const Nanos at = joined.jobs[i - 1].submit;
    gaps[static_cast<std::size_t>((at % kWeekLength).count() / kHourNs)].push_back(
        seconds_of(joined.jobs[i].submit - at));
  }
  std::map<Family, int> tally;
  std::vector<double> distances;
  for (const auto& of_hour : gaps) {
    std::pair<double, Family> best{2, Family::kConstant};
    for (const Family family : families) {
      const auto fit = stats::fit(family, of_hour);
      if (fit) best = std::min(best, std::pair{fit->ks, family});
    }
    if (best.first > 1) continue;
    ++tally[best.second];
    distances.push_back(best.first);
  }
  std::string counts;
  for (const Family family : families)
    counts += fmt::format("{} {}, ", stats::family_name(family), tally[family]);
  fmt::print("| {} hours: {}median KS {:.3f} |\n", distances.size(), counts,
             stats::median(distances));
}

}  // namespace

Result<void> print_fits(const Recording& recording) {
  std::vector<double> durations;
  for (const Job& job : recording.all)
    durations.push_back(seconds_of(job.duration));
  TRY_VOID(print_families(durations));
  const Workload joined = join_weeks(recording, {1, 2, 3, 4, 5, 6});
  fmt::print("| closest family of the gaps that start in an hour of week |\n|---|\n");
  print_hours(joined, {Family::kExponentiatedWeibull, Family::kLogNormal, Family::kPareto});
  print_hours(joined, {Family::kExponentiatedWeibull, Family::kLogNormal, Family::kPareto,
                       Family::kBurrXII});
  return {};
}

}  // namespace kansoku::simulate
