// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/past.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::uint64_t kPastStream = 0xd1b54a32d192ed03;
constexpr std::size_t kRunsMax = 4096;

/// The greatest rise of the mean, weighted by the steps on either side.
struct Rise {
  std::size_t step{0};
  double score{0};
};

Rise greatest_rise(std::span<const double> values, std::size_t least) {
  const auto n = static_cast<double>(values.size());
  const double all = std::accumulate(values.begin(), values.end(), 0.0);
  Rise best;
  double before = 0;
  for (std::size_t k = 1; k < values.size(); ++k) {
    before += values[k - 1];
    if (k < least || values.size() - k < least) continue;
    const auto count = static_cast<double>(k);
    const double rise = (all - before) / (n - count) - before / count;
    const double score = rise * std::sqrt(count * (n - count) / n);
    if (score > best.score) best = {k, score};
  }
  return best;
}

/// The process twice: as it was, and as it is, each with the steps next to the change.
JobData past_and_present(const JobData& job) {
  JobData out = job;
  out.is_single = false;
  out.ranks = {job.ranks.front(), job.ranks.front()};
  out.ranks[0].rank = 0;
  out.ranks[1].rank = 1;
  out.notes.clear();
  return out;
}

StepTable around(const StepTable& steps, std::size_t change) {
  StepTable out;
  out.found_by = steps.found_by;
  out.word = steps.word;
  const std::vector<Interval>& all = steps.ranks.front();
  const auto count = static_cast<std::ptrdiff_t>(std::min(change, all.size() - change));
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(change);
  out.ranks = {{at - count, at}, {at, at + count}};
  return out;
}

}  // namespace

std::optional<Change> find_change(std::span<const double> steps_ms, std::size_t least,
                                  const Options& options) {
  if (steps_ms.size() < 2 * least || least == 0) return std::nullopt;
  const std::vector<double> all(steps_ms.begin(), steps_ms.end());
  const double low = stats::quantile(all, kClipShare);
  const double high = stats::quantile(all, 1 - kClipShare);
  // Means of runs of steps, so that long recordings cost no more.
  const std::size_t run = (steps_ms.size() + kRunsMax - 1) / kRunsMax;
  std::vector<double> values;
  for (std::size_t s = 0; s + run <= steps_ms.size(); s += run) {
    double sum = 0;
    for (std::size_t k = s; k < s + run; ++k)
      sum += std::clamp(steps_ms[k], low, high);
    values.push_back(sum / static_cast<double>(run));
  }
  const std::size_t least_runs = (least + run - 1) / run;
  const Rise rise = greatest_rise(values, least_runs);
  if (rise.step == 0) return std::nullopt;
  stats::BlockBootstrap bootstrap(values.size(), stats::default_block_length(values.size()),
                                  options.seed ^ kPastStream);
  std::size_t as_much = 0;
  std::vector<double> resampled;
  for (std::uint32_t i = 0; i < options.resample_count; ++i) {
    resampled.clear();
    for (const stats::Block& block : bootstrap.draw()) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(block.begin);
      resampled.insert(resampled.end(), begin, begin + static_cast<std::ptrdiff_t>(block.count));
    }
    as_much += greatest_rise(resampled, least_runs).score >= rise.score ? 1 : 0;
  }
  const auto mean = [&](std::size_t begin, std::size_t end) {
    return stats::mean(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                           values.begin() + static_cast<std::ptrdiff_t>(end)));
  };
  return Change{.step = rise.step * run,
                .before_ms = mean(0, rise.step),
                .after_ms = mean(rise.step, values.size()),
                .confidence = 1 - static_cast<double>(as_much) / options.resample_count};
}

std::optional<Finding> find_slowed(const Context& context, const Options& options) {
  const std::vector<double>& steps_ms = context.times.front().step_ms;
  const auto change = find_change(steps_ms, kSlowedStepCountMin, options);
  if (!change || change->confidence < kStrictConfidenceMin ||
      change->after_ms < kLongerRatioMin * change->before_ms)
    return std::nullopt;
  JobData twice = past_and_present(context.job);
  const StepTable steps = around(context.steps, change->step);
  const Collectives collectives = match_collectives(twice);
  const auto phases = cut_phases(context.trace, twice, collectives, steps);
  const auto times = measure_steps(twice, phases, steps);
  std::vector<double> both = times[0].step_ms;
  both.insert(both.end(), times[1].step_ms.begin(), times[1].step_ms.end());
  const Collectives none;  // it does not wait for itself
  const Context compared{.trace = context.trace,
                         .job = twice,
                         .collectives = none,
                         .steps = steps,
                         .phases = phases,
                         .times = times,
                         .median_step_ms = stats::median(both),
                         .mean_step_ms = stats::mean(both),
                         .others = "before"};
  std::vector<Finding> findings;
  std::vector<std::string> notes;
  find_slow_ranks(compared, options, findings, notes);
  Finding* const slower = finding_of(findings, 1);
  if (slower == nullptr) return std::nullopt;
  Finding finding = std::move(*slower);
  finding.kind = "slowed";
  finding.ranks = {context.job.ranks.front().rank};
  finding.share = std::min(finding.cost_ms_per_step / change->after_ms, 1.0);
  finding.rank_confidence = std::min(finding.rank_confidence, change->confidence);
  finding.confidence = std::min(finding.confidence, change->confidence);
  const Interval& first = context.steps.ranks.front()[change->step];
  finding.evidence.insert(
      finding.evidence.begin(),
      fmt::format(
          words::kSlowed, change->step + 1, steps_ms.size(),
          (static_cast<double>(first.begin_ns) - static_cast<double>(context.trace.begin_ns)) / 1e9,
          change->after_ms, change->before_ms));
  return finding;
}

}  // namespace kansoku::diagnose
