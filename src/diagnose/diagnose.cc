// SPDX-License-Identifier: Apache-2.0
#include "diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "common/time.h"
#include "diagnose/internal/causes/context.h"
#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/causes/kernel_time.h"
#include "diagnose/internal/causes/localise.h"
#include "diagnose/internal/causes/page_faults.h"
#include "diagnose/internal/causes/past.h"
#include "diagnose/internal/causes/uneven_time.h"
#include "diagnose/internal/order.h"
#include "diagnose/internal/profile/recorded_patterns.h"
#include "diagnose/internal/stages/stage_findings.h"
#include "diagnose/internal/stages/stages.h"
#include "diagnose/internal/standstill/hang.h"
#include "diagnose/internal/standstill/recorded_calls.h"
#include "diagnose/internal/standstill/standstill.h"
#include "diagnose/internal/steps/collectives.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/steps.h"
#include "diagnose/internal/timeline/step_graph.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "diagnose/what_if.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kSpansMax = 2000;  // of one rank in the worst step
constexpr std::size_t kFunctionRowsMax = 20;
constexpr std::size_t kPatternRowsMax = 40;
constexpr std::uint32_t kResamplesMax = 1'000'000;

Result<void> check_options(const Options& o) {
  const bool counts = o.resample_count >= 1 && o.resample_count <= kResamplesMax &&
                      o.function_resample_count >= 1 &&
                      o.function_resample_count <= kResamplesMax && o.period_tokens_max >= 1 &&
                      o.heat_column_count_max >= 1;
  if (counts) return {};
  return Error{Code::kUnsupported, "diagnose: an option is out of range", "counts are at least 1"};
}

// Duration of each step: the median over ranks, which differ by the skew of their last events.
std::vector<double> step_durations(const std::vector<StepTimes>& times) {
  std::vector<double> durations;
  std::vector<double> ranks(times.size());
  for (std::size_t s = 0; s < times.front().step_ms.size(); ++s) {
    for (std::size_t r = 0; r < times.size(); ++r)
      ranks[r] = times[r].step_ms[s];
    durations.push_back(stats::median(ranks));
  }
  return durations;
}

std::vector<RankSummary> summarise_ranks(const JobData& job, const std::vector<StepTimes>& times) {
  std::vector<RankSummary> ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    RankSummary summary;
    summary.rank = job.ranks[r].rank;
    summary.pid = job.ranks[r].pid;
    for (std::size_t p = 0; p < kPhaseCount; ++p)
      summary.phase_ms[p] = stats::mean(times[r].phase_ms[p]);
    summary.step_ms = stats::mean(times[r].step_ms);
    summary.work_ms = stats::mean(times[r].work_ms);
    ranks.push_back(summary);
  }
  return ranks;
}

bool is_rank_excess(const Finding& finding) {
  static constexpr std::array<std::string_view, 7> kKinds{
      "asymmetry",    "interpreter_lock", "blocked",   "uneven_work",
      "system_calls", "reclaim",          "interrupts"};
  return finding.kind.starts_with("slow_") ||
         std::find(kKinds.begin(), kKinds.end(), finding.kind) != kKinds.end();
}

// Mean over steps of the greatest minus the median work over ranks.
double loss_ms(const RankSeries& work) {
  std::vector<double> losses;
  std::vector<double> ranks(work.size());
  for (std::size_t s = 0; s < work.front().size(); ++s) {
    for (std::size_t r = 0; r < work.size(); ++r)
      ranks[r] = work[r][s];
    losses.push_back(*std::max_element(ranks.begin(), ranks.end()) - stats::median(ranks));
  }
  return stats::mean(losses);
}

void measure_loss(const JobData& job, RankSeries work, Diagnosis& out) {
  out.loss_ms_per_step = loss_ms(work);
  const RankSeries excess = stats::excess_over_peers(work);
  for (std::size_t r = 0; r < work.size(); ++r) {
    const bool is_explained =
        std::any_of(out.findings.begin(), out.findings.end(), [&](const Finding& finding) {
          return is_rank_excess(finding) && std::find(finding.ranks.begin(), finding.ranks.end(),
                                                      job.ranks[r].rank) != finding.ranks.end();
        });
    for (std::size_t s = 0; is_explained && s < work[r].size(); ++s)
      work[r][s] -= std::max(0.0, excess[r][s]);
  }
  out.not_explained_share =
      out.loss_ms_per_step > 0 ? std::clamp(loss_ms(work) / out.loss_ms_per_step, 0.0, 1.0) : 0;
}

void add_spans(const IntervalSet& set, Phase phase, const Interval& step, std::int64_t origin_ns,
               std::vector<Span>& spans) {
  const IntervalSet inside = set.intersect(IntervalSet::of({step}));
  for (const Interval& part : inside.items()) {
    spans.push_back({.phase = phase,
                     .start_ms = static_cast<double>(part.begin_ns - origin_ns) / kNsPerMs,
                     .duration_ms = static_cast<double>(part.end_ns - part.begin_ns) / kNsPerMs});
  }
}

std::vector<Span> spans_of(const RankPhases& phases, const Interval& step, std::int64_t origin_ns) {
  std::vector<Span> spans;
  for (std::size_t p = 0; p < kPhaseCount; ++p)
    add_spans(phases.sets[p], static_cast<Phase>(p), step, origin_ns, spans);
  add_spans(phases.unknown, Phase::kOther, step, origin_ns, spans);
  if (spans.size() > kSpansMax) {  // keep the longest
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.duration_ms > b.duration_ms; });
    spans.resize(kSpansMax);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start_ms < b.start_ms; });
  return spans;
}

void add_worst_step(const Context& context, const std::vector<double>& durations, ViewData& view) {
  const auto worst = std::max_element(durations.begin(), durations.end());
  view.worst_step = static_cast<std::size_t>(worst - durations.begin());
  std::int64_t origin_ns = kTimeMaxNs;
  for (const auto& rank : context.steps.ranks)
    origin_ns = std::min(origin_ns, rank[view.worst_step].begin_ns);
  for (std::size_t r = 0; r < context.phases.size(); ++r) {
    view.worst_spans.push_back(
        spans_of(context.phases[r], context.steps.ranks[r][view.worst_step], origin_ns));
  }
}

// The rank that the function table is about: the first culprit, if there is one.
std::optional<std::size_t> shown_rank(const Context& context,
                                      const std::vector<Finding>& findings) {
  const auto& ranks = context.job.ranks;
  for (const Finding& finding : findings) {
    if (finding.ranks.empty() || finding.ranks.size() == ranks.size()) continue;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].rank == finding.ranks.front()) return r;
    }
  }
  return std::nullopt;
}

void fill_step_view(const Context& context, const std::vector<double>& durations, Diagnosis& out) {
  for (const StepTimes& times : context.times) {
    out.view.work_ms.push_back(times.work_ms);
    out.view.wait_ms.push_back(times.phase_ms[static_cast<std::size_t>(Phase::kWait)]);
  }
  add_worst_step(context, durations, out.view);
  const auto shown = shown_rank(context, out.findings);
  if (shown) out.view.function_rank = context.job.ranks[*shown].rank;
  out.view.functions = CallTree::of_main_threads(context).rows(shown, kFunctionRowsMax);
}

/// `value_of(blocks)` over resamples of the steps: the same ones in the same order at each call.
template <class ValueOf>
std::vector<double> over_resamples(std::size_t step_count, const Options& options,
                                   ValueOf value_of) {
  stats::BlockBootstrap bootstrap(step_count, stats::default_block_length(step_count),
                                  options.seed);
  std::vector<double> out;
  for (std::uint32_t i = 0; i < options.resample_count; ++i)
    out.push_back(value_of(bootstrap.draw()));
  return out;
}

/// S and M: each step is the work of every rank and then one communication of all. Ideal is the
/// mean of that work over ranks and steps; a finding is fixed by giving its ranks the mean of the
/// others in each step.
class WhatIf {
 public:
  /// Nothing without two ranks and a step. `work` is borrowed.
  static std::optional<WhatIf> of(const Context& context, const RankSeries& work) {
    WhatIf out(work, context.steps.count());
    const StepGraph::Node compute = out.graph_.add(), meet = out.graph_.add();
    out.graph_.depend(meet, compute);
    out.graph_.communicate(std::array{meet}, true);
    if (work.size() < 2 || out.step_count_ == 0 || !out.graph_.finish()) return std::nullopt;
    std::vector<double> transfers;
    for (const StepTimes& times : context.times) {
      const auto& transfer = times.phase_ms[static_cast<std::size_t>(Phase::kTransfer)];
      transfers.insert(transfers.end(), transfer.begin(), transfer.end());
    }
    out.transfer_ms_ = stats::median(transfers);
    for (const auto& series : work)
      out.mean_work_ms_ += stats::mean(series) / static_cast<double>(work.size());
    return out;
  }

  /// Each step as long as `work_of(rank, step)` makes it.
  template <class WorkOf>
  [[nodiscard]] std::vector<double> steps_ms(WorkOf work_of) const {
    const std::size_t lanes = work_.size() * step_count_;
    std::vector<double> durations(2 * lanes, transfer_ms_);
    for (std::size_t s = 0; s < step_count_; ++s) {
      for (std::size_t r = 0; r < work_.size(); ++r)
        durations[s * work_.size() + r] = work_of(r, s);
    }
    return graph_.simulate(durations, lanes, work_.size());
  }
  /// As they were, and with the mean of all ranks and steps.
  [[nodiscard]] std::vector<double> originals_ms() const {
    return steps_ms([&](std::size_t r, std::size_t s) { return work_[r][s]; });
  }
  [[nodiscard]] double ideal_ms() const {
    return stats::mean(steps_ms([&](std::size_t, std::size_t) { return mean_work_ms_; }));
  }
  /// With the mean of all ranks in each step.
  [[nodiscard]] std::vector<double> evened_ms() const {
    return steps_ms([&](std::size_t, std::size_t s) {
      double sum = 0;
      for (const auto& series : work_)
        sum += series[s];
      return sum / static_cast<double>(work_.size());
    });
  }
  /// Mean step with the `suspects` (a flag a rank) as fast as the mean of the others.
  [[nodiscard]] double fixed_ms(const std::vector<bool>& suspects) const {
    return stats::mean(steps_ms([&](std::size_t r, std::size_t s) {
      if (!suspects[r]) return work_[r][s];
      double sum = 0;
      std::size_t peers = 0;
      for (std::size_t other = 0; other < work_.size(); ++other) {
        if (suspects[other]) continue;
        sum += work_[other][s];
        ++peers;
      }
      return peers > 0 ? sum / static_cast<double>(peers) : mean_work_ms_;
    }));
  }

 private:
  WhatIf(const RankSeries& work, std::size_t step_count) : work_(work), step_count_(step_count) {}
  const RankSeries& work_;
  std::size_t step_count_;
  StepGraph graph_;
  double transfer_ms_{0}, mean_work_ms_{0};
};

/// How much longer steps take than if nobody were slower.
struct SlowDown {
  double original_ms{0}, ideal_ms{0};  // mean step
  std::vector<double> drawn;           // ratio() over resamples
  [[nodiscard]] double ratio() const { return original_ms / ideal_ms; }
  /// Lower end of the interval of ratio().
  [[nodiscard]] double low() const { return stats::quantile(drawn, stats::kTail); }
};
std::optional<SlowDown> slow_down_of(const WhatIf& what_if, const Options& options) {
  const std::vector<double> originals = what_if.originals_ms();
  SlowDown out{.original_ms = stats::mean(originals), .ideal_ms = what_if.ideal_ms(), .drawn = {}};
  if (!(out.ideal_ms > 0)) return std::nullopt;
  const stats::PrefixSums original(originals), evened(what_if.evened_ms());
  out.drawn = over_resamples(originals.size(), options, [&](std::span<const stats::Block> blocks) {
    return original.mean(blocks) / evened.mean(blocks);
  });
  return out;
}

void add_what_if(const Context& context, const Options& options, Diagnosis& out) {
  const RankSeries work = work_series(context);
  const auto what_if = WhatIf::of(context, work);
  const auto slow_down = what_if ? slow_down_of(*what_if, options) : std::nullopt;
  if (!slow_down) return;
  out.slowdown = slow_down->ratio();
  out.slowdown_low = slow_down->low();
  for (Finding& finding : out.findings) {
    if (!is_rank_excess(finding) || !(slow_down->ratio() > 1)) continue;
    std::vector<bool> suspects;
    for (const RankData& rank : context.job.ranks)
      suspects.push_back(std::find(finding.ranks.begin(), finding.ranks.end(), rank.rank) !=
                         finding.ranks.end());
    finding.explained =
        explained_share(slow_down->original_ms, what_if->fixed_ms(suspects), slow_down->ideal_ms);
  }
}

/// The slowest rank of each step (an index), and how much longer it worked than the mean.
struct StepLoss {
  std::size_t slowest{0};
  double ms{0}, mean_ms{0};
};
std::vector<StepLoss> step_losses(const RankSeries& work) {
  std::vector<StepLoss> losses(work.front().size());
  for (std::size_t s = 0; s < losses.size(); ++s) {
    StepLoss& loss = losses[s];
    for (std::size_t r = 0; r < work.size(); ++r) {
      loss.mean_ms += work[r][s] / static_cast<double>(work.size());
      if (work[r][s] > work[loss.slowest][s]) loss.slowest = r;
    }
    loss.ms = work[loss.slowest][s] - loss.mean_ms;
  }
  return losses;
}

/// Greatest share of the steps in which one and the same rank is slowest.
double most_often_slowest(const std::vector<StepLoss>& losses, std::size_t rank_count) {
  std::vector<std::size_t> counts(rank_count);
  for (const StepLoss& loss : losses)
    ++counts[loss.slowest];
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) /
         static_cast<double>(losses.size());
}

/// The steps that carry half of the loss, if these are few; else all.
struct Carriers {
  std::vector<StepLoss> losses;
  bool are_few{false};
};
Carriers carriers_of(std::vector<StepLoss> losses) {
  std::stable_sort(losses.begin(), losses.end(),
                   [](const StepLoss& a, const StepLoss& b) { return a.ms > b.ms; });
  double all = 0, carried = 0;
  for (const StepLoss& loss : losses)
    all += loss.ms;
  std::size_t few = 0;
  while (few < losses.size() && carried < kMostShare * all)
    carried += losses[few++].ms;
  const bool are_few = static_cast<double>(few) <=
                       std::max(1.0, kFewStepsShare * static_cast<double>(losses.size()));
  if (are_few) losses.resize(few);
  return {std::move(losses), are_few};
}

/// Name of the worker that is slowest most often in them.
std::string who_is_slowest(const Context& context, const Carriers& carriers) {
  const std::size_t count = carriers.losses.size();
  std::vector<std::size_t> counts(context.job.ranks.size());
  for (const StepLoss& loss : carriers.losses)
    ++counts[loss.slowest];
  const auto most = std::max_element(counts.begin(), counts.end());
  const std::int32_t rank = context.job.ranks[static_cast<std::size_t>(most - counts.begin())].rank;
  if (carriers.are_few) {
    return fmt::format(words::kFewStepsCarry, count, context.steps.count(), rank, *most, count);
  }
  return fmt::format(words::kSlowestMoves, rank,
                     100 * static_cast<double>(*most) / static_cast<double>(count));
}

/// The part of the loss that the slowest ranks spent on a processor, if that is known.
std::optional<double> share_on_processor(const Context& context,
                                         const std::vector<StepLoss>& losses) {
  const auto& ranks = context.job.ranks;
  if (!std::all_of(ranks.begin(), ranks.end(),
                   [](const RankData& rank) { return rank.main.is_known; }))
    return std::nullopt;
  double all_ms = 0, running_ms = 0;
  for (std::size_t s = 0; s < losses.size(); ++s) {
    all_ms += losses[s].ms;
    running_ms += context.times[losses[s].slowest].running_ms[s];
    for (const StepTimes& times : context.times)
      running_ms -= times.running_ms[s] / static_cast<double>(context.times.size());
  }
  return all_ms > 0 ? std::clamp(running_ms / all_ms, 0.0, 1.0) : 0;
}

/// Time of all ranks: its mean over some steps, and what is lost to the slowest rank of each.
class Varying {
 public:
  explicit Varying(const RankSeries& values) : Varying(step_losses(values)) {}
  [[nodiscard]] double mean_ms(std::span<const stats::Block> steps) const {
    return means_.mean(steps);
  }
  [[nodiscard]] double loss_ms(std::span<const stats::Block> steps) const {
    return losses_.mean(steps);
  }
  [[nodiscard]] double share(std::span<const stats::Block> steps) const {
    return mean_ms(steps) > 0 ? loss_ms(steps) / mean_ms(steps) : 0;
  }

 private:
  explicit Varying(const std::vector<StepLoss>& steps)
      : means_(of(steps, &StepLoss::mean_ms)), losses_(of(steps, &StepLoss::ms)) {}
  static std::vector<double> of(const std::vector<StepLoss>& steps, double StepLoss::*value) {
    std::vector<double> out;
    for (const StepLoss& step : steps)
      out.push_back(step.*value);
    return out;
  }
  stats::PrefixSums means_, losses_;
};

/// The optimizer does the same on all ranks in every step: a part of its time that it loses to the
/// slowest rank is the processors' doing, and about as great a part of the rest may be.
class OptimizerVaries {
 public:
  OptimizerVaries(const Context& context, const RankSeries& work)
      : OptimizerVaries(work, phase_series(context, Phase::kOptimizer)) {}
  /// How many times the rest's part. 0 without an optimizer that takes a while, or if most of the
  /// loss is its own.
  [[nodiscard]] double times(std::span<const stats::Block> steps) const {
    if (optimizer_.mean_ms(steps) < kExcessMinMs || !(rest_.share(steps) > 0) ||
        optimizer_.loss_ms(steps) > rest_.loss_ms(steps))
      return 0;
    return optimizer_.share(steps) / rest_.share(steps);
  }

 private:
  OptimizerVaries(const RankSeries& work, const RankSeries& optimizer)
      : optimizer_(optimizer), rest_(stats::without(work, optimizer)) {}
  Varying optimizer_, rest_;
};

/// True if a rank works much less than another: a parameter server beside its workers.
bool have_other_duties(const RankSeries& work) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const std::vector<double>& rank : work) {
    least = std::min(least, stats::mean(rank));
    most = std::max(most, stats::mean(rank));
  }
  return least < kPeerWorkShareMin * most;
}

/// Time is lost to whoever is slowest in each step, and no finding says who: it is somebody else
/// each time, or too seldom to tell. The kernel's work does not count.
std::optional<Finding> find_moving_imbalance(const Context& context, const Options& options,
                                             const Diagnosis& diagnosis,
                                             std::vector<std::string>& notes) {
  const bool is_told = std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                                   [](const Finding& f) { return is_rank_excess(f); });
  if (is_told) return std::nullopt;
  const RankSeries work = work_without_kernel(context);
  const auto what_if = WhatIf::of(context, work);
  const auto slow_down = what_if ? slow_down_of(*what_if, options) : std::nullopt;
  if (!slow_down ||
      (slow_down->ratio() < kSeldomSlowdownMin && slow_down->low() < kMovingSlowdownMin))
    return std::nullopt;
  const std::vector<StepLoss> losses = step_losses(work);
  if (have_other_duties(work)) {
    notes.emplace_back(words::kOtherDuties);
    return std::nullopt;
  }
  // Always the same one, which was not blamed: a note says what it waits for.
  if (most_often_slowest(losses, context.job.ranks.size()) > kNearlyAllShare) return std::nullopt;
  Finding finding;
  finding.kind = "moving_imbalance";
  finding.share = 1 - 1 / slow_down->ratio();
  finding.cost_ms_per_step = finding.share * context.mean_step_ms;
  if (finding.cost_ms_per_step < std::max(kExcessMinMs, fault_doubt_ms(context)))
    return std::nullopt;
  const Carriers carriers = carriers_of(losses);
  std::vector<double> varies(slow_down->drawn.size());
  if (!carriers.are_few) {  // few steps that carry the loss are no noise
    const OptimizerVaries optimizer(context, work);
    varies = over_resamples(losses.size(), options, [&](std::span<const stats::Block> steps) {
      return optimizer.times(steps);
    });
    if (stats::quantile(varies, 1 - stats::kTail) >= kOptimizerVariesMin) {
      notes.push_back(fmt::format(words::kOptimizerVaries, finding.cost_ms_per_step,
                                  stats::quantile(varies, stats::kTail),
                                  stats::quantile(varies, 1 - stats::kTail)));
      return std::nullopt;
    }
  }
  std::size_t hits = 0;
  for (std::size_t i = 0; i < varies.size(); ++i)
    hits += slow_down->drawn[i] >= kMovingSlowdownMin && varies[i] < kOptimizerVariesMin ? 1U : 0U;
  finding.confidence = finding.rank_confidence =
      static_cast<double>(hits) / static_cast<double>(varies.size());
  finding.evidence.push_back(who_is_slowest(context, carriers));
  if (const auto share = share_on_processor(context, losses))
    finding.evidence.push_back(fmt::format(words::kTimeThatMoves, 100 * *share));
  finding.evidence.emplace_back(words::kAdviceEqualWork);
  return finding;
}

void add_patterns(const Context& context, Diagnosis& out) {
  std::int64_t begin_ns = kTimeMaxNs, end_ns = 0;
  for (const auto& rank : context.steps.ranks) {
    begin_ns = std::min(begin_ns, rank.front().begin_ns);
    end_ns = std::max(end_ns, rank.back().end_ns);
  }
  RecordedPatterns recorded = recorded_patterns(context.trace, context.job, begin_ns, end_ns);
  for (Pattern& pattern : recorded.ranks) {
    NamedPattern named{.pattern = std::move(pattern), .names = {}};
    auto& rows = named.pattern.rows;
    if (rows.size() > kPatternRowsMax) rows.resize(kPatternRowsMax);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      named.names.push_back(recorded.names[rows[i].function]);
      rows[i].function = static_cast<std::uint32_t>(i);
    }
    out.patterns.push_back(std::move(named));
  }
}

// A job without steps: its ranks are compared in windows of time.
void diagnose_windows(const trace::Trace& trace, const Options& options, JobData& job,
                      const Collectives& collectives, Diagnosis& out) {
  const StepTable windows = time_windows(trace, job);
  if (windows.count() == 0) return;
  const auto phases = cut_phases(trace, job, collectives, windows);
  const auto times = measure_steps(job, phases, windows);
  const double window_ms = stats::mean(times.front().step_ms);
  out.steps.found_by = windows.found_by;
  const Context context{trace, job, collectives, windows, phases, times, window_ms, window_ms};
  compare_ranks(context, options, out.findings, job.notes);
  find_causes(context, options, out.findings, job.notes);
  verdict::put_in_order(out.findings);
}

// A job of which nothing was seen to begin or end: its stacks may tell who waits for whom.
void diagnose_standstill(const trace::Trace& trace, JobData& job, Diagnosis& out) {
  Standstill standstill = find_standstill(trace, job);
  out.moves = standstill.all_move;
  out.places = std::move(standstill.places);
  out.standstill_note = standstill.note;
  if (!standstill.note.empty()) job.notes.push_back(std::move(standstill.note));
  if (!standstill.hang) return;
  out.findings.push_back(std::move(standstill.hang->finding));
  out.view.hang_groups = std::move(standstill.hang->groups);
}

// That steps have become longer stands with the finding that says in which phase, or why.
void add_slowed(Finding slowed, std::vector<Finding>& findings) {
  const auto with = std::find_if(findings.begin(), findings.end(), [&](const Finding& one) {
    return (!one.phase.empty() && one.phase == slowed.phase) ||
           verdict::explains(claim_of(one), claim_of(slowed), 1);
  });
  if (with == findings.end())
    findings.push_back(std::move(slowed));
  else
    with->evidence.push_back(std::move(slowed.evidence.front()));
}

// Time lost because stages are not equal, and the part of it that no rank's finding costs.
void measure_uneven_stages(Diagnosis& out) {
  out.loss_ms_per_step = std::max(0.0, out.pipeline->passes_ms - out.pipeline->equal_ms);
  double explained_ms = 0;
  for (const Finding& finding : out.findings)
    explained_ms += is_rank_excess(finding) ? finding.cost_ms_per_step : 0;
  if (out.loss_ms_per_step > 0)
    out.not_explained_share = std::clamp(1 - explained_ms / out.loss_ms_per_step, 0.0, 1.0);
}

// Time lost because ranks that do the same differ.
void compare_whole_steps(const Context& context, const Options& options, JobData& job,
                         Diagnosis& out) {
  measure_loss(job, work_series(context), out);
  add_what_if(context, options, out);
  if (auto moving = find_moving_imbalance(context, options, out, job.notes)) {
    out.findings.push_back(std::move(*moving));
    verdict::put_in_order(out.findings);
  }
}

void diagnose_steps(const trace::Trace& trace, const Options& options, JobData& job,
                    const Collectives& collectives, Diagnosis& out) {
  const StepTable steps = find_steps(trace, collectives, options, job);
  double mean_step_ms = 0;
  if (steps.count() > 0) {
    const auto phases = cut_phases(trace, job, collectives, steps);
    const auto times = measure_steps(job, phases, steps);
    const std::vector<double> durations = step_durations(times);
    mean_step_ms = stats::mean(durations);
    out.steps = {steps.count(), stats::median(durations), stats::quantile(durations, 0.95),
                 mean_step_ms,  steps.found_by,           steps.word,
                 durations};
    out.ranks = summarise_ranks(job, times);
    Context context{trace,  job,   collectives,         steps,
                    phases, times, out.steps.median_ms, mean_step_ms};
    context.kernel = read_kernel_use(trace, job, steps, mean_step_ms);
    const auto stages = find_stages(job, steps);
    if (stages)
      out.pipeline = find_stage_causes(context, *stages, options, out.findings, job.notes);
    else
      compare_ranks(context, options, out.findings, job.notes);
    find_causes(context, options, out.findings, job.notes);
    if (job.is_single) {
      if (auto slowed = find_slowed(context, options)) add_slowed(std::move(*slowed), out.findings);
    }
    verdict::put_in_order(out.findings);
    if (out.pipeline)
      measure_uneven_stages(out);
    else if (!stages)
      compare_whole_steps(context, options, job, out);
    add_patterns(context, out);
    fill_step_view(context, durations, out);
  }
  if (auto hang = find_hang(trace, job, collectives, mean_step_ms)) {
    out.findings.push_back(std::move(hang->finding));
    out.view.hang_groups = std::move(hang->groups);
    verdict::put_in_order(out.findings);
  } else if (steps.count() == 0) {
    diagnose_standstill(trace, job, out);
    if (out.findings.empty()) diagnose_windows(trace, options, job, collectives, out);
  }
  if (!out.has_windows()) out.victims = victims_of(out.rank_numbers, out.findings);
}

std::vector<trace::Loss> losses_of(const trace::Trace& trace) {
  std::vector<trace::Loss> losses;
  for (const auto& [name, loss] : trace.losses) {
    if (loss.count > 0) losses.push_back(loss);
  }
  return losses;
}

void add_job_notes(const trace::Trace& trace, const JobData& job, Diagnosis& out) {
  out.notes = job.notes;
  if (trace.is_lossy()) out.notes.emplace_back(words::kLostData);
  if (job.ranks.size() == 2 && !out.has_windows()) out.notes.emplace_back(words::kTwoRanks);
  if (job.is_single && out.verdict() == Verdict::kNothingFound) {
    out.notes.emplace_back(words::kNoPeers);
  }
}

std::vector<std::string> missing_of(const JobData& job, const Diagnosis& out) {
  std::vector<std::string> missing;
  if (job.ranks.empty()) {
    missing.emplace_back(words::kNoJob);
  } else if (job.ranks.size() == 1 && !job.is_single) {
    missing.emplace_back(words::kOneRank);
  }
  if (!job.ranks.empty() && out.steps.count == 0) {
    missing.push_back(fmt::format(words::kNoSteps, kRepeatCountFloor));
  }
  return missing;
}

Diagnosis diagnose_job(const trace::Trace& trace, const Options& options, JobData& job) {
  Diagnosis out;
  out.job = job.name;
  out.is_single = job.is_single;
  for (const RankData& rank : job.ranks) {
    out.rank_numbers.push_back(rank.rank);
    out.rank_pids.push_back({rank.pid});
  }
  out.pids.assign(job.pids.begin(), job.pids.end());
  out.heat_column_count_max = options.heat_column_count_max;
  out.losses = losses_of(trace);
  if (job.messages.size() + job.sends_alone + job.receives_alone > 0)
    out.messages = {job.messages.size(), job.sends_alone, job.receives_alone};
  if (!job.ranks.empty()) {
    const Collectives collectives = match_collectives(job);
    diagnose_steps(trace, options, job, collectives, out);
  }
  out.missing = missing_of(job, out);
  add_job_notes(trace, job, out);
  return out;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::array<std::string_view, 3> kNames{"findings", "nothing_found",
                                                          "not_enough_data"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

std::string_view phase_name(Phase phase) {
  static constexpr std::array<std::string_view, kPhaseCount> kNames{
      "input", "forward", "backward", "transfer", "wait", "optimizer", "runnable", "other"};
  return kNames[static_cast<std::size_t>(phase)];
}

Result<Diagnosis> diagnose(const trace::Trace& trace, const Options& options) {
  TRY_VOID(check_options(options));
  TRY(std::vector<JobData> jobs, read_jobs(trace));
  if (jobs.empty()) jobs.emplace_back();
  std::vector<Diagnosis> all;
  all.reserve(jobs.size());
  const auto recorded = trace::import::read_recorded_flight(trace);
  for (JobData& job : jobs) {
    all.push_back(diagnose_job(trace, options, job));
    join_recorded_calls(recorded, all.back());
  }
  return join_jobs(std::move(all));
}

}  // namespace kansoku::diagnose
