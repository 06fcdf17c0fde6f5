// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/rng.h"
#include "common/time.h"
#include "simulate/workload/workload.h"
#include "stats/distribution.h"

namespace kansoku::simulate {

inline constexpr int kHoursOfWeek = 168;

/// The next arrival: its time, and the job that arrives if the model draws jobs (sessions, replay,
/// day blocks); `job` stays valid as long as the model does.
struct Arrival {
  Nanos at{0};
  const Job* job{nullptr};
};

/// A stream of arrivals, times never falling. One object a replication; made from an ArrivalModel,
/// which outlives it. Not shared between threads.
class ArrivalProcess {
 public:
  ArrivalProcess() = default;
  ArrivalProcess(const ArrivalProcess&) = delete;
  ArrivalProcess& operator=(const ArrivalProcess&) = delete;
  virtual ~ArrivalProcess() = default;
  /// Nothing once the stream has ended (a replay that does not repeat).
  [[nodiscard]] virtual std::optional<Arrival> next() = 0;
};

enum class ArrivalKind : std::uint8_t {
  kConstant,           // every `gap`
  kRenewal,            // independent gaps from `gap` (exponential: Poisson)
  kHourOfWeekPoisson,  // per hour of week a Poisson number at `rates`, uniform in the hour
  kHourOfWeekRenewal,  // PipeSim's: gaps from the distribution of the hour in which they start
  kSessions,           // bursts resampled with their jobs, started per hour of week
  kDayBlocks,          // whole recorded days of the same weekday, one after the other
  kReplay,             // the recorded jobs as they came
};

/// How requests arrive, and with `sessions`, `day_blocks` and `replay` also which. A value type;
/// any thread may read it.
struct ArrivalModel {
  using Kind = ArrivalKind;
  /// A run of jobs of one group that came close together: offsets from its start, jobs as recorded.
  struct Session {
    std::int32_t hour{0};              // of week in which it started
    std::uint32_t first{0}, count{0};  // indices in `jobs`, in order
  };

  Kind kind{Kind::kRenewal};
  stats::Distribution gap;                     // seconds; kConstant, kRenewal
  std::vector<double> rates;                   // arrivals (sessions) per hour, 168
  std::vector<stats::Distribution> hour_gaps;  // seconds, 168; kHourOfWeekRenewal
  double gap_cap_s{12 * 3600.0};               // kHourOfWeekRenewal
  double session_gap_s{0};                     // kSessions: gap that cuts a session
  std::vector<Session> sessions;               // kSessions
  std::vector<Job> jobs;               // kSessions (by session), kDayBlocks, kReplay (by time)
  std::vector<std::string> groups;     // names of Job::group
  std::vector<std::string> gpu_types;  // names of Job::gpu_type
  /// Begin of the recording, and with it of time 0 of `jobs` for kDayBlocks and kReplay, in the
  /// week; kDayBlocks: a midnight.
  std::int64_t epoch_in_week_s{0};
  double span_s{0};  // of the recording, for rates and reports; kDayBlocks: of its whole days
  /// Divides every gap (kReplay: every submission time), multiplies every rate: the load's knob.
  /// kDayBlocks: so many drawn days are laid over each other, of the last only a share of the jobs.
  double intensity{1};

  /// {"kind": "sessions", ...}: schema of the file that `simulate fit` writes,
  /// docs/formats/model.md.
  [[nodiscard]] Json to_json() const;
  /// kCorrupt names the key.
  [[nodiscard]] static Result<ArrivalModel> from_json(const Json& untrusted);
};

[[nodiscard]] std::string_view kind_name(ArrivalModel::Kind kind);
[[nodiscard]] std::optional<ArrivalModel::Kind> kind_from_name(std::string_view name);

/// Starts a stream at time 0, which lies `start_in_week_s` >= 0 seconds after Monday 00:00 (models
/// without hours of week ignore it). `random` is copied. A stream ends after 146 years, and at once
/// if its model can draw no arrival (no rate, no job, gaps that are all 0).
[[nodiscard]] std::unique_ptr<ArrivalProcess> start_arrivals(const ArrivalModel& model,
                                                             std::int64_t start_in_week_s,
                                                             const RandomStream& random);

struct ArrivalFitOptions {
  double session_gap_s{120};
  std::vector<stats::Family> families{stats::Family::kLogNormal,
                                      stats::Family::kExponentiatedWeibull, stats::Family::kPareto};
  std::size_t gaps_per_hour_min{20};  // fewer: the hour uses the fit of all hours
  std::uint64_t seed{1};
  /// Window that the jobs were recorded in, since Workload::epoch; < 0: from the full hour before
  /// the first job to the one after the last.
  Nanos window_begin{-1}, window_end{-1};
};

/// Fits a kind to the jobs [first, last) of a workload whose hour of week is known (epoch_in_week_s
/// >= 0, else kUnsupported for kinds with hours of week). kLimit with fewer than 20 jobs (kReplay:
/// none), and for kDayBlocks without one whole day. Sessions: per group, cut where the gap exceeds
/// session_gap_s; the rate of an hour of week is the number of sessions started in it over the
/// number of times the span covers it (hours that it does not cover take the mean rate).
/// kHourOfWeekRenewal: of `families` the one with the least KS. A fit whose mean is infinite is
/// capped at the longest gap. Deterministic; any thread.
[[nodiscard]] Result<ArrivalModel> fit_arrivals(ArrivalModel::Kind kind, const Workload& workload,
                                                std::size_t first, std::size_t last,
                                                const ArrivalFitOptions& options = {});

/// Statistics of a stream of arrivals: of times and, if there are jobs, of them.
struct ArrivalStatistics {
  std::size_t jobs{0};
  double per_hour_mean{0}, per_hour_max{0};
  double index_of_dispersion{0};  // variance over mean of counts per hour
  double gap_mean_s{0}, gap_cv{0}, zero_gap_share{0};
  double log_gap_autocorrelation_1{0}, log_gap_autocorrelation_10{0};  // of log(1 + gap)
  double hour_of_week_variance_share{0};  // of counts per hour, explained by 168 means
  double session_jobs_mean{0};            // sessions cut at 120 s, by group
  double duration_intraclass{0};          // intra-class correlation of log duration in sessions
  double same_gpus_share{0};              // next job of a session asks for the same GPUs
  std::array<double, kHoursOfWeek> hourly_profile{};  // mean count per hour of week
};
[[nodiscard]] ArrivalStatistics arrival_statistics(const std::vector<Job>& jobs,
                                                   std::int64_t epoch_in_week_s);

}  // namespace kansoku::simulate
