// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/rng.h"
#include "simulate/workload/arrivals.h"
#include "simulate/workload/workload.h"
#include "stats/distribution.h"
#include "stats/fit.h"
#include "stats/mixture.h"

namespace kansoku::simulate {

/// Everything that `simulate fit` learns from one workload: durations, requests and arrivals of
/// jobs. `simulate synth` and experiments draw from it.
struct WorkloadModel {
  std::string source;
  /// Seconds: the chosen family, cut at the longest; nothing: no job of the source has one.
  std::optional<stats::Distribution> duration;
  std::vector<std::pair<int, double>> gpus;  // (GPUs asked for, share), by falling share
  ArrivalModel arrivals;
  /// Json of schema kansoku.workload_model/2; version 1 is read, too.
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static Result<WorkloadModel> from_json(const Json& untrusted);
};

struct WorkloadFitOptions {
  ArrivalModel::Kind arrivals{ArrivalModel::Kind::kSessions};
  ArrivalFitOptions arrival;
  int components{20};
  double held_out{0.3};
  std::uint64_t seed{1};
};

struct WorkloadFit {
  WorkloadModel model;
  /// Schema kansoku.workload_fit/2: families with AIC, KS on all and on held-out values of a random
  /// and of a temporal split; Q-Q points; the tally of families over the hours of week; arrival
  /// statistics of the source and of one synthetic stream of the same length, with properties kept
  /// and lost (within 25 % or not); share of censored durations.
  Json report;
};

/// kLimit with fewer than 20 jobs with a duration, if any has one. Deterministic for a seed; any
/// thread.
[[nodiscard]] Result<WorkloadFit> fit_workload(const Workload& workload,
                                               const WorkloadFitOptions& options);

/// Jobs that synthesize() makes at most.
inline constexpr std::size_t kSynthesizedJobsMax = std::size_t{1} << 26;

/// Draws a workload of `span`: arrivals from the model, durations and GPUs with the session's jobs
/// or, for models that draw times only, independently; without durations they stay unknown. It
/// starts at the hour of week at which the recording began. Stops at kSynthesizedJobsMax jobs with
/// a note in Workload::bad_row_notes.
[[nodiscard]] Workload synthesize(const WorkloadModel& model, Nanos span, std::uint64_t seed);

/// PipeSim's data assets: a mixture on (log rows, log columns, log bytes).
struct AssetModel {
  stats::Mixture mixture;
  [[nodiscard]] Json to_json() const;  // schema kansoku.asset_model/1
  [[nodiscard]] static Result<AssetModel> from_json(const Json& untrusted);
};
/// `rows`: n x 3, row by row; kCorrupt names one that is not above 0.
[[nodiscard]] Result<AssetModel> fit_assets(const std::vector<double>& rows, int components,
                                            std::uint64_t seed);
struct Asset {
  double rows{0}, columns{0}, bytes{0};
};
/// Draws are not rounded to whole rows.
[[nodiscard]] std::vector<Asset> synthesize_assets(const AssetModel& model, std::size_t count,
                                                   std::uint64_t seed);

/// How well the model keeps the sizes that it was fitted to (`rows`: n x 3): for each margin the KS
/// distance to 20,000 draws, and the correlations of the logarithms. Schema kansoku.asset_fit/1.
[[nodiscard]] Json asset_report(const AssetModel& model, const std::vector<double>& rows,
                                std::uint64_t seed);

}  // namespace kansoku::simulate
