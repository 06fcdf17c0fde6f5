// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "common/python_code.h"
#include "diagnose/internal/causes/common_wait.h"
#include "diagnose/internal/causes/contention.h"
#include "diagnose/internal/causes/kernel_time.h"
#include "diagnose/internal/causes/localise.h"
#include "diagnose/internal/causes/page_faults.h"
#include "diagnose/internal/causes/slow_link.h"
#include "diagnose/internal/causes/stolen.h"
#include "diagnose/internal/causes/throttled.h"
#include "diagnose/internal/causes/uneven_time.h"
#include "diagnose/internal/causes/waits.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/peers.h"
#include "stats/summary.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::array<Phase, 5> kWorkPhases{Phase::kInput, Phase::kForward, Phase::kBackward,
                                           Phase::kOptimizer, Phase::kOther};

// A rank found slow, before it has a function.
struct SlowRank {
  stats::Outlier outlier;
  bool is_intermittent{false};
  std::vector<bool> hot_steps;  // intermittent: the steps that carry the excess; else empty
  double hot_excess_ms{0};      // mean excess over those steps; steady: over all
};

RankSeries series_of(const Context& context, const std::vector<double> StepTimes::*member) {
  RankSeries series;
  for (const StepTimes& times : context.times)
    series.push_back(times.*member);
  return series;
}

double mean_excess(const RankSeries& values, std::size_t rank) {
  return stats::mean(stats::excess_of(values, rank));
}

struct PhaseExcess {
  Phase phase{Phase::kOther};
  double excess_ms{-1e300};
};

PhaseExcess phase_of_excess(const Context& context, std::size_t rank) {
  PhaseExcess best;
  for (const Phase phase : kWorkPhases) {
    const double ms = mean_excess(phase_series(context, phase), rank);
    if (ms > best.excess_ms) best = {phase, ms};
  }
  return best;
}

// Ranks whose excess is in most steps. Repeated, so that a rank hidden behind a slower one shows.
std::vector<SlowRank> steady_suspects(const RankSeries& excess, std::vector<bool>& known,
                                      const stats::OutlierTest& options) {
  std::vector<SlowRank> found;
  while (found.size() < std::max<std::size_t>(1, excess.size() / 2)) {
    const auto outliers = stats::find_outliers(excess, known, options);
    if (outliers.empty()) break;
    for (const stats::Outlier& outlier : outliers) {
      known[outlier.member] = true;
      found.push_back({outlier, false, {}, outlier.excess});
    }
    if (excess.size() < 4) break;
  }
  return found;
}

// Ranks whose excess sits in few steps: a checkpoint, an evaluation.
std::vector<SlowRank> intermittent_suspects(const RankSeries& excess, std::vector<bool>& known,
                                            stats::OutlierTest options) {
  options.clip_share = 0;
  // Few steps are slow, so few blocks are.
  options.asks_blocks = false;
  std::vector<SlowRank> found;
  for (const stats::Outlier& outlier : stats::find_outliers(excess, known, options)) {
    const std::vector<double>& series = excess[outlier.member];
    std::vector<bool> hot = stats::steps_above(series, std::max(options.least, outlier.excess));
    const auto count = static_cast<std::size_t>(std::count(hot.begin(), hot.end(), true));
    if (count < kHotStepsMin || stats::concentration(series) < kConcentrationMin) continue;
    known[outlier.member] = true;
    const double hot_ms = stats::mean_over(series, hot);
    found.push_back({outlier, true, std::move(hot), hot_ms});
  }
  return found;
}

// Ranks that stall now and then: too seldom for a mean to show it, and more often than chance puts
// stalls on one rank.
std::vector<SlowRank> stall_suspects(const Context& context, const RankSeries& excess,
                                     std::vector<bool>& known) {
  std::vector<SlowRank> found;
  for (stats::SeldomLong& stalls :
       stats::find_seldom_long(excess, kLongStepMin * context.median_step_ms, known)) {
    if (stalls.long_excess < kExcessMinMs ||
        stalls.excess < kStallCostShareMin * context.mean_step_ms)
      continue;
    known[stalls.member] = true;
    found.push_back({{stalls.member, stalls.excess, 1 - stalls.chance},
                     true,
                     std::move(stalls.steps),
                     stalls.long_excess});
  }
  return found;
}

void add_processor_share(const Context& context, std::size_t rank, double excess_ms,
                         Finding& finding) {
  if (!context.job.ranks[rank].main.is_known || excess_ms <= 0) return;
  const double running_ms = mean_excess(series_of(context, &StepTimes::running_ms), rank);
  const double share = std::clamp(running_ms / excess_ms, 0.0, 1.0);
  const bool is_stopped = stopped_ms(context, rank) > kMostShare * excess_ms;
  const std::string_view reading = is_stopped    ? words::kOnCpuStopped
                                   : share < 0.2 ? words::kOnCpuSleeps
                                   : share > 0.8 ? words::kOnCpuComputes
                                                 : "";
  finding.evidence.push_back(fmt::format(words::kOnCpu, share * 100, reading));
}

void add_phase(const Context& context, std::size_t rank, Phase phase, Finding& finding) {
  std::vector<double> means;
  for (const auto& series : phase_series(context, phase))
    means.push_back(stats::mean(series));
  finding.evidence.push_back(fmt::format(words::kPhaseAgainst, phase_name(phase), means[rank],
                                         mean_of_others(means, rank), context.others));
}

// Forward and backward grow with the data: forward by a fifth to a half of what both grow by,
// since backward computes one to four times as much. The optimizer does not grow.
std::optional<std::string> uneven_work(const Context& context, std::size_t rank) {
  struct Grown {
    double ratio, more_ms;
  };
  const auto grown = [&](Phase phase) {
    std::vector<double> means;
    for (const auto& series : phase_series(context, phase))
      means.push_back(stats::mean(series));
    const double peers = mean_of_others(means, rank);
    const bool counts = means[rank] >= kUnevenPhaseShareMin * context.mean_step_ms && peers > 0;
    return counts ? std::optional(Grown{means[rank] / peers, means[rank] - peers}) : std::nullopt;
  };
  const auto forward = grown(Phase::kForward), backward = grown(Phase::kBackward);
  if (!forward || !backward || std::min(forward->ratio, backward->ratio) < kLongerRatioMin)
    return std::nullopt;
  const double forward_part = forward->more_ms / (forward->more_ms + backward->more_ms);
  const double growth = std::sqrt(forward->ratio * backward->ratio) - 1;
  const auto optimizer = grown(Phase::kOptimizer);
  if (forward_part < kUnevenForwardMin || forward_part > kUnevenForwardMax ||
      (optimizer && optimizer->ratio - 1 > kUnevenOptimizerMax * growth))
    return std::nullopt;
  return fmt::format(words::kMoreWork, forward->ratio, context.others, backward->ratio,
                     optimizer ? fmt::format(words::kMoreWorkOptimizer, optimizer->ratio) : "");
}

struct InputFunction {
  std::size_t sample_count{0};
  std::vector<trace::Frame> frames;  // outermost first, of the first sample
};

// Samples of input by the innermost function of the job's own: libraries only pass the data on. All
// ranks count, since they run the same code and input is short.
std::map<trace::Frame, InputFunction> count_input(const Context& context) {
  std::map<trace::Frame, InputFunction> functions;
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    const IntervalSet& input = context.phases[r].sets[static_cast<std::size_t>(Phase::kInput)];
    const auto& steps = context.steps.ranks[r];
    for (const ThreadSample& sample : context.job.ranks[r].samples) {
      const bool is_in_steps =
          sample.time_ns >= steps.front().begin_ns && sample.time_ns < steps.back().end_ns;
      if (!is_in_steps || (!input.contains(sample.time_ns) &&
                           phase_of_stack(context.trace, sample.stack) != Phase::kInput))
        continue;
      auto frames = frames_of(context.trace, sample.stack);
      while (!frames.empty() && !is_own_python_file(text_of(context.trace, frames.back().file)))
        frames.pop_back();
      if (frames.empty()) continue;
      InputFunction& function = functions[{frames.back().function, frames.back().file, 0}];
      if (function.sample_count++ == 0) function.frames = std::move(frames);
    }
  }
  return functions;
}

void add_data_source(const Context& context, Finding& finding) {
  finding.function.clear();
  finding.file.clear();
  finding.line = 0;
  finding.stack.clear();
  const auto functions = count_input(context);
  const auto most = std::max_element(
      functions.begin(), functions.end(),
      [](const auto& a, const auto& b) { return a.second.sample_count < b.second.sample_count; });
  if (most == functions.end()) {
    finding.evidence.emplace_back(words::kDataSourceUnknown);
    return;
  }
  set_place(context.trace, most->second.frames, finding);
  finding.evidence.push_back(fmt::format(words::kDataComeFrom, finding.function));
}

void add_rhythm(const Context& context, const SlowRank& suspect, Finding& finding) {
  std::vector<double> gaps;
  std::optional<std::size_t> previous;
  std::size_t count = 0;
  for (std::size_t s = 0; s < suspect.hot_steps.size(); ++s) {
    if (!suspect.hot_steps[s]) continue;
    ++count;
    if (previous) gaps.push_back(static_cast<double>(s - *previous));
    previous = s;
  }
  const bool is_regular =
      gaps.size() >= kHotStepsMin - 1 &&
      *std::max_element(gaps.begin(), gaps.end()) == *std::min_element(gaps.begin(), gaps.end());
  finding.evidence.push_back(fmt::format(words::kIntermittent, count, suspect.hot_steps.size(),
                                         is_regular ? "every " : words::kAboutEvery,
                                         stats::mean(gaps), suspect.hot_excess_ms, context.others,
                                         1 + suspect.hot_excess_ms / context.median_step_ms));
}

void add_location(const Context& context, const Location& location, bool has_scheduler_data,
                  Finding& finding) {
  finding.function = location.function;
  finding.file = location.file;
  finding.line = location.line;
  finding.stack = location.stack;
  if (location.function.empty()) {
    finding.evidence.push_back(
        fmt::format(words::kNotLocated,
                    location.sample_count == 0 ? words::kNoStackSamples : words::kSamplesDisagree,
                    context.has_steps() ? words::kOnlyPhaseKnown : words::kFunctionUnknown));
    return;
  }
  finding.confidence = finding.rank_confidence * location.support;
  finding.evidence.push_back(
      fmt::format(words::kStackSamples, location.excess_ms, per_step(context), location.function) +
      (location.below.empty() ? "" : fmt::format(words::kMostlyBelow, location.below)));
  if (!has_scheduler_data) {
    finding.evidence.push_back(fmt::format(words::kAsleepThere, location.sleeping_share * 100));
  }
  if (location.worker_pid != 0) {
    finding.evidence.push_back(
        fmt::format(words::kWaitsForWorkers, trace::pid_on_host(location.worker_pid)));
  }
}

void blame(const Context& context, const MainWait& wait, Finding& finding) {
  if (wait.blamed.empty()) return;
  if (!finding.function.empty())
    finding.evidence.push_back(fmt::format(words::kMeanwhileIn, finding.function));
  set_place(context.trace, wait.blamed, finding);
}

bool sleeps(const Context& context, std::size_t rank, double excess_ms) {
  const double running_ms = mean_excess(series_of(context, &StepTimes::running_ms), rank);
  return context.job.ranks[rank].main.is_known && running_ms < (1 - kMostShare) * excess_ms &&
         stopped_ms(context, rank) < kMostShare * excess_ms;
}

// A rank that sleeps is not slow by itself: names its wait, and the cause of that.
void add_wait(const Context& context, std::size_t rank, double excess_ms,
              std::optional<Phase> phase, Finding& finding) {
  const auto wait =
      sleeps(context, rank, excess_ms) ? explain_wait(context, rank, phase) : std::nullopt;
  if (!wait) return;
  finding.evidence.insert(finding.evidence.end(), wait->evidence.begin(), wait->evidence.end());
  // Waiting for a batch is told as that.
  const bool is_input = finding.phase == phase_name(Phase::kInput);
  if (!wait->is_for_others || (is_input && !wait->is_interpreter_lock)) return;
  finding.kind = wait->is_interpreter_lock ? "interpreter_lock" : "blocked";
  blame(context, *wait, finding);
}

Finding describe_suspect(const Context& context, const SlowRank& suspect, const Lateness& lateness,
                         const Options& options) {
  const std::size_t rank = suspect.outlier.member;
  const auto [phase, phase_excess_ms] = phase_of_excess(context, rank);
  Finding finding;
  finding.kind =
      context.job.ranks.size() == 2 ? "asymmetry" : "slow_" + std::string(phase_name(phase));
  finding.ranks = {context.job.ranks[rank].rank};
  finding.phase = phase_name(phase);
  finding.cost_ms_per_step = suspect.outlier.excess;
  finding.share = suspect.outlier.excess / context.mean_step_ms;
  finding.rank_confidence = suspect.outlier.confidence;
  if (context.steps.is_short)
    finding.rank_confidence = std::min(finding.rank_confidence, kShortTraceConfidenceMax);
  finding.confidence = finding.rank_confidence;
  add_lateness(context, lateness, rank, finding);
  add_phase(context, rank, phase, finding);
  add_processor_share(context, rank, suspect.outlier.excess, finding);
  if (suspect.is_intermittent) add_rhythm(context, suspect, finding);
  const bool is_one_phase = phase_excess_ms >= kPhaseDominanceMin * suspect.outlier.excess;
  const std::optional<Phase> only = is_one_phase ? std::optional(phase) : std::nullopt;
  std::vector<bool> culprits(context.job.ranks.size());
  culprits[rank] = true;
  add_location(context, locate_excess(context, culprits, only, options),
               context.job.ranks[rank].main.is_known, finding);
  add_wait(context, rank, suspect.outlier.excess, only, finding);
  // A rank that waits has its phases stretched by that.
  const bool may_be_uneven =
      !suspect.is_intermittent && finding.kind != "interpreter_lock" && finding.kind != "blocked";
  if (const auto uneven = may_be_uneven ? uneven_work(context, rank) : std::nullopt) {
    finding.kind = "uneven_work";
    finding.evidence.push_back(*uneven);
    add_data_source(context, finding);
  }
  return finding;
}

// Ranks that are slow in the same place are one finding.
void merge_into(std::vector<Finding>& findings, Finding next) {
  for (Finding& finding : findings) {
    if (!verdict::is_same_place(claim_of(finding), claim_of(next))) continue;
    finding.ranks.insert(finding.ranks.end(), next.ranks.begin(), next.ranks.end());
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.cost_ms_per_step = std::max(finding.cost_ms_per_step, next.cost_ms_per_step);
    finding.share = std::max(finding.share, next.share);
    finding.confidence = std::min(finding.confidence, next.confidence);
    finding.rank_confidence = std::min(finding.rank_confidence, next.rank_confidence);
    finding.evidence.insert(finding.evidence.end(), next.evidence.begin(), next.evidence.end());
    return;
  }
  findings.push_back(std::move(next));
}

// Ranks that spend their time unlike their peers, in windows of time.
void find_busy_ranks(const Context& context, const Options& options, std::vector<Finding>& findings,
                     std::vector<std::string>& notes) {
  for (Finding& finding : find_uneven_time(context, options, notes)) {
    std::vector<bool> culprits;
    bool has_samples = false;
    for (const RankData& rank : context.job.ranks) {
      culprits.push_back(rank.rank == finding.ranks.front());
      has_samples = has_samples || (culprits.back() && !rank.samples.empty());
    }
    if (has_samples) {
      // Finds the code of its excess: all ranks together have the whole time.
      std::vector<RankPhases> parts = context.phases;
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const ThreadTimes& main = context.job.ranks[r].main;
        parts[r].work = parts[r].work.intersect(main.running);
      }
      const Context in_part{
          context.trace, context.job,   context.collectives,    context.steps,
          parts,         context.times, context.median_step_ms, context.mean_step_ms};
      add_location(in_part, locate_excess(in_part, culprits, std::nullopt, options), true, finding);
    }
    merge_into(findings, std::move(finding));
  }
}

// Share of resamples in which every rank spends the threshold share of its steps in input.
double common_input_confidence(const Context& context, double share_min, const Options& options) {
  std::vector<stats::PrefixSums> input;
  std::vector<stats::PrefixSums> step;
  for (const StepTimes& times : context.times) {
    input.emplace_back(times.phase_ms[static_cast<std::size_t>(Phase::kInput)]);
    step.emplace_back(times.step_ms);
  }
  const std::size_t count = context.steps.count();
  stats::BlockBootstrap bootstrap(count, stats::default_block_length(count), options.seed);
  std::size_t hits = 0;
  for (std::uint32_t i = 0; i < options.resample_count; ++i) {
    const auto blocks = bootstrap.draw();
    bool everywhere = true;
    for (std::size_t r = 0; r < input.size() && everywhere; ++r) {
      const double input_ms = input[r].mean(blocks);
      everywhere = input_ms >= kExcessMinMs && input_ms >= share_min * step[r].mean(blocks);
    }
    hits += everywhere ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(options.resample_count);
}

/// Least share over the ranks of the time in input in which the main thread sleeps; 0 if not known.
double asleep_in_input(const Context& context) {
  double least = 1;
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    const ThreadTimes& main = context.job.ranks[r].main;
    const Interval all{context.steps.ranks[r].front().begin_ns,
                       context.steps.ranks[r].back().end_ns};
    const IntervalSet& input = context.phases[r].sets[static_cast<std::size_t>(Phase::kInput)];
    const auto input_ns = static_cast<double>(input.measure_ns(all));
    if (!main.is_known || !(input_ns > 0)) return 0;
    const IntervalSet asleep = input.intersect(main.blocked);
    least = std::min(least, static_cast<double>(asleep.measure_ns(all)) / input_ns);
  }
  return least;
}

// Ranks whose main thread waits for the interpreter lock for long, whatever their peers do: a
// thread that each of them has holds up all alike.
void find_lock_waits(const Context& context, std::vector<Finding>& findings) {
  const double least_ms = std::max(kExcessMinMs, kExcessShareMin * context.mean_step_ms);
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    const std::int32_t number = context.job.ranks[r].rank;
    if (finding_of(findings, number) != nullptr) continue;
    const auto wait = explain_wait(context, r, std::nullopt);
    if (!wait || !wait->is_interpreter_lock || wait->ms_per_step_low < least_ms) continue;
    Finding finding;
    finding.kind = "interpreter_lock";
    finding.ranks = {number};
    finding.cost_ms_per_step = wait->ms_per_step;
    finding.share = std::min(wait->ms_per_step / context.mean_step_ms, 1.0);
    finding.confidence = finding.rank_confidence = 0.975;
    finding.evidence = wait->evidence;
    blame(context, *wait, finding);
    merge_into(findings, std::move(finding));
  }
}

void find_common_input(const Context& context, const Options& options,
                       std::vector<Finding>& findings) {
  // Preparing a batch is work that somebody must do; waiting for one is lost.
  const double share_min =
      asleep_in_input(context) >= kMostShare ? kCommonInputWaitShareMin : kCommonInputShareMin;
  double least_ms = 1e300;
  double share = 1;
  for (const StepTimes& times : context.times) {
    const double ms = stats::mean(times.phase_ms[static_cast<std::size_t>(Phase::kInput)]);
    least_ms = std::min(least_ms, ms);
    share = std::min(share, ms / context.mean_step_ms);
  }
  if (share < share_min || least_ms < kExcessMinMs) return;
  const double confidence = common_input_confidence(context, share_min, options);
  if (confidence < kConfidenceMin) return;
  Finding finding;
  finding.kind = "common_input";
  for (const RankData& rank : context.job.ranks)
    finding.ranks.push_back(rank.rank);
  finding.phase = phase_name(Phase::kInput);
  finding.cost_ms_per_step = least_ms;
  finding.share = share;
  finding.confidence = finding.rank_confidence = confidence;
  finding.evidence.push_back(fmt::format(
      words::kCommonInput, context.job.is_single ? "it" : words::kEveryRank, share * 100));
  add_location(context,
               locate_excess(context, std::vector<bool>(context.job.ranks.size(), true),
                             Phase::kInput, options),
               context.job.ranks.front().main.is_known, finding);
  findings.push_back(std::move(finding));
}

}  // namespace

double mean_of_others(const std::vector<double>& values, std::size_t rank) {
  if (values.size() < 2) return 0;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return (sum - values[rank]) / static_cast<double>(values.size() - 1);
}

std::string subject(const Context& context, std::size_t rank) {
  return context.job.is_single ? words::kTheProcess
                               : fmt::format("rank {}", context.job.ranks[rank].rank);
}

std::string a_step(const Context& context) {
  return context.has_steps() ? fmt::format(words::kAStep, context.mean_step_ms)
                             : fmt::format(words::kAWindow, context.mean_step_ms);
}

std::string per_step(const Context& context) {
  return context.has_steps() ? words::kPerStep
                             : fmt::format(words::kInEachWindow, context.mean_step_ms);
}

RankSeries phase_series(const Context& context, Phase phase) {
  RankSeries series;
  for (const StepTimes& times : context.times)
    series.push_back(times.phase_ms[static_cast<std::size_t>(phase)]);
  return series;
}

stats::OutlierTest excess_options(const Context& context, const Options& options) {
  stats::OutlierTest out;
  out.least = std::max(kExcessMinMs, kExcessShareMin * context.median_step_ms);
  out.confidence_min = kConfidenceMin;
  out.clip_share = kClipShare;
  out.resample_count = options.resample_count;
  out.seed = options.seed;
  return out;
}

bool waits_least(const Lateness& lateness, std::size_t rank, double excess_ms,
                 const std::vector<bool>& slower) {
  if (lateness.instance_count == 0) return true;
  double least_ms = lateness.mean_wait_ms[rank];
  for (std::size_t r = 0; r < slower.size(); ++r) {
    if (!slower[r]) least_ms = std::min(least_ms, lateness.mean_wait_ms[r]);
  }
  return lateness.mean_wait_ms[rank] <= least_ms + kToleranceShare * excess_ms;
}

void add_lateness(const Context& context, const Lateness& lateness, std::size_t rank,
                  Finding& finding) {
  if (lateness.instance_count == 0) return;
  const std::int32_t number = context.job.ranks[rank].rank;
  finding.evidence.push_back(fmt::format(words::kArrivesLast, number, lateness.last_counts[rank],
                                         lateness.instance_count));
  finding.evidence.push_back(fmt::format(words::kMeanWait, number, lateness.mean_wait_ms[rank],
                                         mean_of_others(lateness.mean_wait_ms, rank)));
}

Finding* finding_of(std::vector<Finding>& findings, std::int32_t rank) {
  const auto found = std::find_if(findings.begin(), findings.end(), [rank](const Finding& f) {
    return std::find(f.ranks.begin(), f.ranks.end(), rank) != f.ranks.end();
  });
  return found == findings.end() ? nullptr : &*found;
}

RankSeries work_series(const Context& context) {
  return series_of(context, &StepTimes::work_ms);
}

Lateness measure_lateness(const Context& context, const std::vector<bool>& only) {
  const std::size_t rank_count = context.job.ranks.size();
  Lateness out;
  out.mean_wait_ms.resize(rank_count);
  out.last_counts.resize(rank_count);
  for (const Instance& instance : context.collectives.instances) {
    if (!instance.is_complete || !instance.is_of_all) continue;
    const auto& steps = context.steps.ranks.front();
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), instance.ranks.front().arrive_ns,
                         [](std::int64_t t, const Interval& step) { return t < step.begin_ns; });
    if (after == steps.begin() || instance.ranks.front().arrive_ns >= (after - 1)->end_ns) continue;
    if (!only.empty() && !only[static_cast<std::size_t>(after - 1 - steps.begin())]) continue;
    ++out.instance_count;
    for (std::size_t r = 0; r < rank_count; ++r) {
      const std::int64_t wait_ns = instance.last_ns - instance.ranks[r].arrive_ns;
      out.mean_wait_ms[r] += static_cast<double>(wait_ns) / 1e6;
      out.last_counts[r] += wait_ns == 0 ? 1 : 0;
    }
  }
  for (double& wait : out.mean_wait_ms)
    wait /= static_cast<double>(std::max<std::size_t>(out.instance_count, 1));
  return out;
}

/// Ranks that are slower on the whole, and not often enough: chance, or a fault that began late.
void note_slow_stretches(const Context& context, const RankSeries& excess,
                         const std::vector<bool>& known, stats::OutlierTest options,
                         std::vector<std::string>& notes) {
  options.asks_blocks = false;
  for (const stats::Outlier& outlier : stats::find_outliers(excess, known, options))
    notes.push_back(
        fmt::format(words::kSlowStretch, context.job.ranks[outlier.member].rank, outlier.excess));
}

/// Most samples that find the rank asleep in its working time are in torch.distributed, sending and
/// receiving: no collective, and still a wait for another rank.
bool sleeps_in_communication(const Context& context, std::size_t rank) {
  std::size_t asleep = 0, in_communication = 0;
  for (const ThreadSample& sample : context.job.ranks[rank].samples) {
    const bool counts = sample.state == trace::SampleState::kSleeping &&
                        context.phases[rank].work.contains(sample.time_ns);
    const auto frames =
        counts ? frames_of(context.trace, sample.stack) : std::vector<trace::Frame>{};
    if (frames.empty()) continue;
    ++asleep;
    in_communication += is_communication(text_of(context.trace, frames.back().file)) ? 1 : 0;
  }
  return asleep >= kSamplesMin &&
         static_cast<double>(in_communication) > kMostShare * static_cast<double>(asleep);
}

void find_slow_ranks(const Context& context, const Options& options, std::vector<Finding>& findings,
                     std::vector<std::string>& notes) {
  const RankSeries excess = stats::excess_over_peers(work_without_kernel(context));
  const stats::OutlierTest test = excess_options(context, options);
  const double doubt_ms = fault_doubt_ms(context);
  std::vector<bool> known(context.job.ranks.size());
  std::vector<SlowRank> suspects = steady_suspects(excess, known, test);
  for (SlowRank& suspect : intermittent_suspects(excess, known, test))
    suspects.push_back(std::move(suspect));
  for (SlowRank& suspect : stall_suspects(context, excess, known))
    suspects.push_back(std::move(suspect));
  note_slow_stretches(context, excess, known, test, notes);
  std::stable_sort(suspects.begin(), suspects.end(), [](const SlowRank& a, const SlowRank& b) {
    return a.outlier.excess > b.outlier.excess;
  });
  std::vector<bool> slower(context.job.ranks.size());
  for (const SlowRank& suspect : suspects) {
    const std::size_t rank = suspect.outlier.member;
    if (suspect.outlier.excess < doubt_ms) {
      notes.push_back(fmt::format(words::kFaultsMayExplain, context.job.ranks[rank].rank,
                                  suspect.outlier.excess, doubt_ms));
      continue;
    }
    const Lateness lateness = measure_lateness(context, suspect.hot_steps);
    if (waits_least(lateness, rank, suspect.hot_excess_ms, slower)) {
      Finding finding = describe_suspect(context, suspect, lateness, options);
      if (sleeps(context, rank, suspect.outlier.excess) && sleeps_in_communication(context, rank)) {
        notes.push_back(fmt::format(words::kVictimInCommunication, context.job.ranks[rank].rank,
                                    suspect.outlier.excess, finding.function));
        continue;
      }
      slower[rank] = true;
      merge_into(findings, std::move(finding));
    } else {
      notes.push_back(fmt::format(words::kVictimOfCollectives, context.job.ranks[rank].rank,
                                  suspect.outlier.excess, lateness.mean_wait_ms[rank]));
    }
  }
}

void compare_ranks(const Context& context, const Options& options, std::vector<Finding>& findings,
                   std::vector<std::string>& notes) {
  if (context.has_steps()) {
    find_slow_ranks(context, options, findings, notes);
  } else {
    find_busy_ranks(context, options, findings, notes);
  }
  if (auto faults = find_page_faults(context, options)) findings.push_back(std::move(*faults));
  for (Finding& kernel : find_kernel_time(context, options))
    findings.push_back(std::move(kernel));
}

void find_causes(const Context& context, const Options& options, std::vector<Finding>& findings,
                 std::vector<std::string>& notes) {
  if (auto stolen = find_stolen(context)) findings.push_back(std::move(*stolen));
  find_lock_waits(context, findings);
  find_contention(context, options, findings, notes);
  if (context.has_steps()) find_common_input(context, options, findings);
  if (auto throttled = find_throttled(context, options)) {
    std::erase_if(findings, [&](const Finding& effect) {
      return verdict::explains(claim_of(*throttled), claim_of(effect), context.job.ranks.size());
    });
    findings.push_back(std::move(*throttled));
  }
  if (!context.has_steps()) return;
  // Load beside the job explains nothing of the ranks, nor do other machines on the same host.
  const bool is_open = std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == "cpu_contention" || finding.kind == "stolen";
  });
  if (is_open) note_common_waits(context, notes);
  // A rank that is slow for another reason answers late on its connections too.
  if (is_open) {
    if (auto link = find_slow_link(context, options)) findings.push_back(std::move(*link));
  }
}

}  // namespace kansoku::diagnose
