// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "simulate/workload/internal/hour_fits.h"
#include "simulate/workload/internal/week.h"
#include "simulate/workload/model.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

using stats::Family;

constexpr std::size_t kDurationsMin = 20;
constexpr double kKeptWithin = 0.25;
constexpr std::size_t kQqPoints = 19;
constexpr std::array kFamilies{
    Family::kExponential, Family::kLogNormal, Family::kWeibull, Family::kExponentiatedWeibull,
    Family::kPareto,      Family::kBurrXII,   Family::kGamma,   Family::kLogMixture};

std::vector<double> durations_of(const Workload& workload) {
  std::vector<double> durations;
  for (const Job& job : workload.jobs)
    if (job.duration.count() >= 0) durations.push_back(internal::seconds(job.duration));
  return durations;
}

std::vector<std::pair<int, double>> gpu_shares(const Workload& workload) {
  std::map<int, std::size_t> counts;
  for (const Job& job : workload.jobs)
    ++counts[job.gpus];
  std::vector<std::pair<int, double>> shares;
  shares.reserve(counts.size());
  for (const auto& [gpus, count] : counts)
    shares.emplace_back(gpus,
                        static_cast<double>(count) / static_cast<double>(workload.jobs.size()));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

/// KS on the last part of the time after a fit to the first: what a stationary model can promise of
/// the future.
Json temporal_ks(Family family, std::span<const double> durations, std::size_t first_part,
                 const stats::FitOptions& options) {
  const auto fit = stats::fit(family, durations.first(first_part), options);
  if (!fit) return {};
  return stats::ks_distance(durations.subspan(first_part), fit->distribution);
}

Json describe_families(const stats::Choice& choice, std::span<const double> durations,
                       double held_out, const stats::FitOptions& options) {
  const auto first_part =
      static_cast<std::size_t>(static_cast<double>(durations.size()) * (1 - held_out));
  const bool split = first_part > 0 && first_part < durations.size();
  Json families = Json::array();
  for (const auto& judged : choice.candidates) {
    const auto& fit = judged.fit;
    Json row = Json::object();
    row.set("family", stats::family_name(fit.distribution.family()))
        .set("aic", fit.aic)
        .set("ks", fit.ks)
        .set("ks_held_out", judged.ks_held_out);
    row.set(
        "ks_held_out_temporal",
        split ? temporal_ks(fit.distribution.family(), durations, first_part, options) : Json());
    row.set("mean_infinite", fit.mean_infinite).set("distribution", fit.distribution.to_json());
    families.push(std::move(row));
  }
  Json out = Json::object();
  out.set("values", std::uint64_t{durations.size()}).set("held_out", held_out);
  if (split)
    out.set("ks_between_parts",
            stats::ks_distance(durations.first(first_part), durations.subspan(first_part)));
  return out.set("families", std::move(families));
}

Json describe_choice(const stats::Distribution& chosen, std::span<const double> durations) {
  Json points = Json::array();
  for (const auto& point : stats::qq_points(durations, chosen, kQqPoints))
    points.push(Json::object().set("model", point.model).set("data", point.data));
  // KS alone misses a tail that carries the load.
  return Json::object()
      .set("family", stats::family_name(chosen.family()))
      .set("cap", chosen.cap())
      .set("mean", Json::object().set("model", chosen.mean()).set("data", stats::mean(durations)))
      .set("p99", Json::object()
                      .set("model", chosen.quantile(0.99))
                      .set("data", stats::quantile(durations, 0.99)))
      .set("qq", std::move(points));
}

Json describe_hours(const Workload& workload, const ArrivalFitOptions& options) {
  if (workload.epoch_in_week_s < 0 || workload.jobs.size() < 2) return {};
  const auto fits = internal::fit_hours(workload.jobs, workload.epoch_in_week_s, options);
  std::map<std::string_view, int> tally;
  for (const Family family : options.families)
    tally[stats::family_name(family)] = 0;
  std::vector<double> distances;
  for (const auto& fit : fits) {
    if (!fit) continue;
    ++tally[stats::family_name(fit->distribution.family())];
    distances.push_back(fit->ks);
  }
  Json counts = Json::object();
  for (const auto& [name, count] : tally)
    counts.set(name, count);
  return Json::object()
      .set("hours", std::uint64_t{distances.size()})
      .set("families", std::move(counts))
      .set("ks_median", distances.empty() ? Json() : Json(stats::median(distances)));
}

/// GPU seconds asked for per second: what the machines have to carry.
double gpus_asked_for(const std::vector<Job>& jobs, double span_s) {
  double sum = 0;
  for (const Job& job : jobs)
    sum += gpu_seconds(job);
  return span_s > 0 ? sum / span_s : 0;
}

Json compare(double source, double synthetic) {
  const bool kept = std::abs(synthetic - source) <= kKeptWithin * std::abs(source);
  return Json::object().set("source", source).set("synthetic", synthetic).set("kept", kept);
}

Json describe_arrivals(const Workload& workload, const WorkloadModel& model, double span_s,
                       std::uint64_t seed) {
  const Workload synthetic = synthesize(model, internal::nanos_of(span_s), seed);
  const auto a = arrival_statistics(workload.jobs, workload.epoch_in_week_s);
  const auto b = arrival_statistics(synthetic.jobs, synthetic.epoch_in_week_s);
  Json rows = Json::object();
  rows.set("jobs", compare(static_cast<double>(a.jobs), static_cast<double>(b.jobs)))
      .set("per_hour_mean", compare(a.per_hour_mean, b.per_hour_mean))
      .set("per_hour_max", compare(a.per_hour_max, b.per_hour_max))
      .set("index_of_dispersion", compare(a.index_of_dispersion, b.index_of_dispersion))
      .set("gap_mean_s", compare(a.gap_mean_s, b.gap_mean_s))
      .set("gap_cv", compare(a.gap_cv, b.gap_cv))
      .set("zero_gap_share", compare(a.zero_gap_share, b.zero_gap_share))
      .set("log_gap_autocorrelation_1",
           compare(a.log_gap_autocorrelation_1, b.log_gap_autocorrelation_1))
      .set("log_gap_autocorrelation_10",
           compare(a.log_gap_autocorrelation_10, b.log_gap_autocorrelation_10))
      .set("hour_of_week_variance_share",
           compare(a.hour_of_week_variance_share, b.hour_of_week_variance_share))
      .set("session_jobs_mean", compare(a.session_jobs_mean, b.session_jobs_mean))
      .set("same_gpus_share", compare(a.same_gpus_share, b.same_gpus_share));
  if (model.duration)
    rows.set("duration_intraclass", compare(a.duration_intraclass, b.duration_intraclass));
  if (model.duration)
    rows.set("offered_gpus", compare(gpus_asked_for(workload.jobs, span_s),
                                     gpus_asked_for(synthetic.jobs, span_s)));
  return Json::object()
      .set("kind", kind_name(model.arrivals.kind))
      .set("span_s", span_s)
      .set("seed", seed)
      .set("statistics", std::move(rows))
      .set("per_hour_of_week", workload.epoch_in_week_s < 0
                                   ? Json()
                                   : Json::object()
                                         .set("source", Json::array_of(a.hourly_profile))
                                         .set("synthetic", Json::array_of(b.hourly_profile)));
}

double censored_share(const Workload& workload) {
  const auto censored = std::count_if(workload.jobs.begin(), workload.jobs.end(),
                                      [](const Job& job) { return job.censored; });
  return static_cast<double>(censored) / static_cast<double>(workload.jobs.size());
}

}  // namespace

namespace {

/// The distribution of `durations` into `model`, and what the report says of it.
Result<Json> fit_durations(const std::vector<double>& durations, const WorkloadFitOptions& options,
                           WorkloadModel& model) {
  if (durations.size() < kDurationsMin)
    return Error{Code::kLimit,
                 fmt::format("fit workload: {} jobs with a duration are fewer than {}",
                             durations.size(), kDurationsMin)};
  stats::FitOptions fit_options;
  fit_options.components = options.components;
  fit_options.seed = options.seed;
  TRY(const auto choice, stats::choose(kFamilies, durations, options.held_out, fit_options));
  // The load of a heavy fit would be decided by one draw: nothing longer than what was recorded.
  TRY(model.duration, choice.candidates.front().fit.distribution.capped(
                          *std::max_element(durations.begin(), durations.end())));
  return describe_families(choice, durations, options.held_out, fit_options)
      .set("chosen", describe_choice(*model.duration, durations));
}

}  // namespace

Result<WorkloadFit> fit_workload(const Workload& workload, const WorkloadFitOptions& options) {
  const std::vector<double> durations = durations_of(workload);
  WorkloadFit out;
  WorkloadModel& model = out.model;
  model.source = workload.source;
  Json duration;
  if (!durations.empty()) {
    TRY(duration, fit_durations(durations, options, model));
    duration.set("censored_share", censored_share(workload));
  }
  model.gpus = gpu_shares(workload);
  TRY(model.arrivals,
      fit_arrivals(options.arrivals, workload, 0, workload.jobs.size(), options.arrival));

  const double span_s = std::max(model.arrivals.span_s, 1.0);
  out.report = Json::object()
                   .set("schema", "kansoku.workload_fit/2")
                   .set("source", workload.source)
                   .set("jobs", std::uint64_t{workload.jobs.size()})
                   .set("seed", options.seed)
                   .set("duration", std::move(duration))
                   .set("hours_of_week", describe_hours(workload, options.arrival))
                   .set("arrivals", describe_arrivals(workload, model, span_s, options.seed));
  return out;
}

}  // namespace kansoku::simulate
