// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulate_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cli/simulate/simulate_files.h"
#include "common/json.h"
#include "diagnose/step_times.h"
#include "stats/fit.h"
#include "stats/summary.h"
#include "sys/fd.h"
#include "trace/import/format.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

using diagnose::Phase;

// As they follow each other in a step. Other work lies between all of them, so it comes last.
constexpr std::array<Phase, diagnose::kPhaseCount> kOrder{
    Phase::kInput,    Phase::kForward,   Phase::kBackward, Phase::kWait,
    Phase::kTransfer, Phase::kOptimizer, Phase::kRunnable, Phase::kOther};

// Families whose parameters a person can change. All have few enough for some dozen steps.
constexpr std::array kFamilies{stats::Family::kLogNormal, stats::Family::kGamma,
                               stats::Family::kWeibull, stats::Family::kExponential,
                               stats::Family::kUniform};
constexpr std::size_t kFittedStepsMin = 20;
constexpr double kHeldOut = 0.3;
constexpr int kExperimentSteps = 10'000;

/// The best of the families, cut at the longest value; the mean where nothing fits.
PhaseModel model_of(Phase phase, const std::vector<double>& seconds) {
  PhaseModel model;
  model.name = diagnose::phase_name(phase);
  model.mean_s = stats::mean(seconds);
  model.longest_s = *std::max_element(seconds.begin(), seconds.end());
  model.duration = stats::Distribution::constant(model.mean_s);
  if (seconds.size() < kFittedStepsMin) return model;
  const auto choice = stats::choose(kFamilies, seconds, kHeldOut);
  if (!choice) return model;  // all values equal, or hardly any above 0
  const stats::Fit& best = choice->candidates.front().fit;
  auto capped = best.distribution.capped(model.longest_s);
  if (!capped) return model;
  model.duration = std::move(*capped);
  model.ks = best.ks;
  return model;
}

std::vector<PhaseModel> phase_models(const diagnose::JobStepTimes& steps) {
  std::vector<PhaseModel> models;
  const auto ranks = static_cast<double>(steps.ranks.size());
  for (const Phase phase : kOrder) {
    std::vector<double> seconds(steps.durations_ms.size(), 0.0);
    for (const diagnose::RankStepTimes& rank : steps.ranks)
      for (std::size_t s = 0; s < seconds.size(); ++s)
        seconds[s] += rank.phase_ms[static_cast<std::size_t>(phase)][s] / ranks / 1e3;
    PhaseModel model = model_of(phase, seconds);
    if (model.mean_s > 0) models.push_back(std::move(model));
  }
  return models;
}

simulate::Workload workload_of(const diagnose::JobStepTimes& steps, const std::string& path) {
  simulate::Workload out;
  out.source = "recording " + path;
  out.names.emplace_back("step");
  if (!steps.job.empty()) out.groups.push_back(steps.job);
  std::vector<std::int64_t> begins(steps.durations_ms.size(), INT64_MAX);
  for (const diagnose::RankStepTimes& rank : steps.ranks)
    for (std::size_t s = 0; s < begins.size(); ++s)
      begins[s] = std::min(begins[s], rank.begin_ns[s]);
  const std::int64_t epoch = *std::min_element(begins.begin(), begins.end());
  for (std::size_t s = 0; s < begins.size(); ++s) {
    simulate::Job job;
    job.submit = Nanos{begins[s] - epoch};
    job.duration = Nanos{std::llround(steps.durations_ms[s] * 1e6)};
    job.scheduled = job.submit;
    job.name = 1;
    job.group = steps.job.empty() ? 0 : 1;
    job.gpus = static_cast<std::int32_t>(steps.ranks.size());
    job.gpu_milli = 1000;
    out.jobs.push_back(job);
  }
  simulate::sort_jobs(out);
  return out;
}

// A decimal point or exponent in every number: 1 would be an integer.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string toml_of(const stats::Distribution& distribution) {
  if (distribution.family() == stats::Family::kConstant) return number(distribution.mean());
  const Json json = distribution.to_json();
  std::string out = "{ ";
  for (const std::string& key : json.keys()) {
    const Json value = json.at(key);
    out += fmt::format("{}{} = {}", out.size() > 2 ? ", " : "", key,
                       value.is_string() ? value.dump() : number(value.as_double()));
  }
  return out + " }";
}

/// The phases as a table on standard output.
void print_phases(const RecordedJob& job) {
  fmt::print("{:<12} {:>12} {:>12} {:>12} {:>8}  {}\n", "phase", "mean ms", "longest ms",
             "model ms", "KS", "family");
  for (const PhaseModel& phase : job.phases)
    fmt::print("{:<12} {:>12.3f} {:>12.3f} {:>12.3f} {:>8.3f}  {}\n", phase.name,
               1e3 * phase.mean_s, 1e3 * phase.longest_s, 1e3 * phase.duration.mean(), phase.ks,
               stats::family_name(phase.duration.family()));
  fmt::print("\n");
}

}  // namespace

bool is_recording(std::string_view untrusted) {
  return trace::import::format_of(as_bytes(untrusted)) == trace::import::Format::kPerfetto;
}

Result<RecordedJob> read_recorded_job(ByteSpan untrusted, const std::string& path) {
  auto trace = trace::read_trace(untrusted);
  if (!trace) return Error{trace.error().code, path + ": " + trace.error().what};
  TRY(const auto steps, diagnose::step_times(*trace, {}));
  if (steps.durations_ms.empty())
    return Error{
        Code::kUnsupported,
        fmt::format("{}: no steps of a training job in this trace{}{}", path,
                    steps.notes.empty() ? "" : ": ", steps.notes.empty() ? "" : steps.notes.back()),
        "`kansoku diagnose` shows its contents"};
  return RecordedJob{workload_of(steps, path), phase_models(steps), steps.found_by};
}

std::string recorded_experiment(const RecordedJob& job) {
  double longest_s = 0;
  for (const PhaseModel& phase : job.phases)
    longest_s += phase.longest_s;
  const double every_s = std::ceil(longest_s * 1000 + 1) / 1000;
  std::string out = fmt::format(
      "# Steps of {}, fitted to {} steps; the end of a step is the end of \"{}\".\n"
      "# A step is a run of the pipeline, its phases are tasks. Steps come further apart than the "
      "longest\n"
      "# possible one, so that none waits for another: sojourn_mean_s is the time of a step. "
      "Phases are drawn\n"
      "# independently of each other.\n"
      "name = {}\nseed = 1\nhorizon = {}\ndrain = true\n\n[clusters.job]\nslots = 1\n\n"
      "[pipelines.step]\narrivals = {{ kind = \"constant\", every = {} }}\n",
      Json(job.workload.source).dump(), job.workload.jobs.size(), job.found_by,
      Json("steps of " + job.workload.source).dump(), number(every_s * kExperimentSteps),
      number(every_s));
  for (const PhaseModel& phase : job.phases)
    out += fmt::format(
        "\n[[pipelines.step.tasks]]\nname = \"{}\"  # mean {:.6f} s, at most {:.6f} s\n"
        "cluster = \"job\"\nduration = {}\n",
        phase.name, phase.mean_s, phase.longest_s, toml_of(phase.duration));
  return out;
}

Result<void> write_recorded_experiment(const std::string& path, const std::string& output,
                                       bool quiet) {
  TRY(const std::string bytes, read_text(path));
  if (!is_recording(bytes))
    return Error{Code::kUnsupported, path + ": not a recording, so it has no phases",
                 "use --experiment with recordings of `kansoku record`"};
  TRY(const auto job, read_recorded_job(as_bytes(bytes), path));
  TRY_VOID(sys::write_file(output, recorded_experiment(job)));
  if (!quiet) print_phases(job);
  return {};
}

}  // namespace kansoku::cli
