// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/stages/stage_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/python_code.h"
#include "diagnose/internal/causes/findings.h"
#include "diagnose/internal/causes/kernel_time.h"
#include "diagnose/internal/stages/stage_replay.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

// The part of a job that runs one stage.
struct StageJob {
  JobData job;
  Collectives collectives;
  StepTable steps;
  std::vector<RankPhases> phases;
  std::vector<StepTimes> times;
};

StageJob part_of(const Context& context, const std::vector<std::size_t>& ranks) {
  StageJob out;
  out.job.name = context.job.name;
  out.job.pids = context.job.pids;
  out.job.op_names = context.job.op_names;
  out.job.end_ns = context.job.end_ns;
  out.steps = context.steps;
  out.steps.ranks.clear();
  for (const std::size_t r : ranks) {
    out.job.ranks.push_back(context.job.ranks[r]);
    out.steps.ranks.push_back(context.steps.ranks[r]);
    out.phases.push_back(context.phases[r]);
    out.times.push_back(context.times[r]);
  }
  for (const Instance& whole : context.collectives.instances) {
    const bool is_theirs =
        std::all_of(ranks.begin(), ranks.end(), [&](std::size_t r) { return whole.is_member[r]; });
    if (!whole.is_complete || !is_theirs) continue;
    Instance part{.op = whole.op, .bytes = whole.bytes, .ranks = {}, .is_member = {}};
    part.is_complete = part.is_of_all = true;
    part.is_member.assign(ranks.size(), true);
    part.first_ns = kTimeMaxNs;
    for (const std::size_t r : ranks) {
      part.ranks.push_back(whole.ranks[r]);
      part.first_ns = std::min(part.first_ns, whole.ranks[r].arrive_ns);
      part.last_ns = std::max(part.last_ns, whole.ranks[r].arrive_ns);
    }
    out.collectives.instances.push_back(std::move(part));
  }
  return out;
}

using Function = std::pair<trace::StringId, trace::StringId>;  // its name, its file

// Samples of a rank's work that are in a function or below it.
struct Samples {
  std::size_t count{0}, asleep{0};
  std::size_t depth{0};  // of the function, in the first of them
  std::map<trace::StackId, std::size_t> stacks;
};

struct SampledRank {
  std::map<Function, Samples> functions;  // of the job's own
  std::size_t count{0};
  double ms_each{0};  // of a step
};

SampledRank sample_rank(const Context& context, std::size_t r) {
  SampledRank out;
  const RankPhases& phases = context.phases[r];
  for (const ThreadSample& sample : context.job.ranks[r].samples) {
    if (!phases.work.contains(sample.time_ns)) continue;
    ++out.count;
    const auto frames = frames_of(context.trace, sample.stack);
    std::set<Function> seen;
    for (std::size_t depth = 0; depth < frames.size(); ++depth) {
      const Function function{frames[depth].function, frames[depth].file};
      if (!is_own_python_file(text_of(context.trace, function.second)) ||
          text_of(context.trace, function.first) == "<module>" || !seen.insert(function).second)
        continue;
      Samples& samples = out.functions[function];
      if (samples.count++ == 0) samples.depth = depth;
      samples.asleep += sample.state == trace::SampleState::kSleeping ? 1 : 0;
      ++samples.stacks[sample.stack];
    }
  }
  if (out.count > 0)
    out.ms_each = stats::mean(context.times[r].work_ms) / static_cast<double>(out.count);
  return out;
}

struct OwnFunction {
  Function function;
  const Samples* samples{nullptr};
  double ms{0};
};

bool is_of_model(const trace::Trace& trace, const Function& function) {
  return classify_frame(text_of(trace, function.first), text_of(trace, function.second)) ==
         FrameRole::kForward;
}

// Functions in which each other rank spends hardly any time.
std::map<Function, OwnFunction> run_alone(const std::vector<SampledRank>& ranks, std::size_t r) {
  std::map<Function, OwnFunction> out;
  for (const auto& [function, samples] : ranks[r].functions) {
    const double ms = static_cast<double>(samples.count) * ranks[r].ms_each;
    const bool is_alone = std::all_of(ranks.begin(), ranks.end(), [&](const SampledRank& other) {
      const auto found = other.functions.find(function);
      return &other == &ranks[r] || found == other.functions.end() ||
             static_cast<double>(found->second.count) * other.ms_each < (1 - kNearlyAllShare) * ms;
    });
    if (is_alone && samples.count >= kSamplesMin) out[function] = {function, &samples, ms};
  }
  return out;
}

// The greatest function that only rank `r` runs; of those that are nearly as great, the innermost.
// A module that it alone has, and what that calls, is its part of the model: no fault.
std::optional<OwnFunction> runs_alone(const trace::Trace& trace,
                                      const std::vector<SampledRank>& ranks, std::size_t r) {
  std::map<Function, OwnFunction> alone = run_alone(ranks, r);
  const auto is_part_of_model = [&](const OwnFunction& one) {
    for (const trace::Frame& frame : most_frequent(trace, one.samples->stacks)) {
      const Function outer{frame.function, frame.file};
      if (alone.contains(outer) && is_of_model(trace, outer)) return true;
      if (outer == one.function) return false;
    }
    return false;
  };
  std::vector<OwnFunction> left;
  double greatest_ms = 0;
  for (const auto& [function, one] : alone) {
    if (is_part_of_model(one)) continue;
    left.push_back(one);
    greatest_ms = std::max(greatest_ms, one.ms);
  }
  std::optional<OwnFunction> best;
  for (const OwnFunction& one : left) {
    if (one.ms < kDescendShareMin * greatest_ms) continue;
    if (!best ||
        std::tuple(one.samples->depth, one.ms) > std::tuple(best->samples->depth, best->ms))
      best = one;
  }
  return best;
}

// How much more a rank works in each step than the mean of the other stages' ranks.
std::vector<double> above_other_stages(const Context& context, const Stages& stages,
                                       std::size_t r) {
  std::vector<double> out(context.steps.count());
  for (std::size_t s = 0; s < out.size(); ++s) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t other = 0; other < stages.stage.size(); ++other) {
      if (stages.stage[other] == stages.stage[r]) continue;
      sum += context.times[other].work_ms[s];
      ++count;
    }
    out[s] = context.times[r].work_ms[s] - sum / static_cast<double>(count);
  }
  return out;
}

double share_of_resamples(const std::vector<double>& values, double least, const Options& options) {
  stats::BlockBootstrap bootstrap(values.size(), stats::default_block_length(values.size()),
                                  options.seed);
  const stats::PrefixSums sums(values);
  std::size_t hits = 0;
  for (std::uint32_t i = 0; i < options.resample_count; ++i)
    hits += sums.mean(bootstrap.draw()) >= least ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(options.resample_count);
}

std::string_view phase_of_samples(const Context& context, const Samples& samples) {
  std::map<Phase, std::size_t> counts;
  for (const auto& [stack, count] : samples.stacks)
    counts[phase_of_stack(context.trace, stack)] += count;
  return phase_name(
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first);
}

std::optional<Finding> find_function_alone(const Context& context, const Stages& stages,
                                           const Options& options,
                                           const std::vector<SampledRank>& sampled, std::size_t r) {
  const auto alone = runs_alone(context.trace, sampled, r);
  const double least_ms = std::max(kExcessMinMs, kExcessShareMin * context.median_step_ms);
  if (!alone || alone->ms < least_ms) return std::nullopt;
  const std::vector<double> above = above_other_stages(context, stages, r);
  // It holds the others up by what it takes longer than they do, most of it in that function.
  const double held_up_ms = std::max(least_ms, kMostShare * alone->ms);
  const double confidence = share_of_resamples(above, held_up_ms, options);
  if (confidence < kConfidenceMin) return std::nullopt;
  Finding finding;
  finding.phase = phase_of_samples(context, *alone->samples);
  finding.kind = "slow_" + finding.phase;
  finding.ranks = {context.job.ranks[r].rank};
  finding.cost_ms_per_step = alone->ms;
  finding.share = std::min(alone->ms / context.mean_step_ms, 1.0);
  finding.confidence = finding.rank_confidence =
      context.steps.is_short ? std::min(confidence, kShortTraceConfidenceMax) : confidence;
  auto frames = most_frequent(context.trace, alone->samples->stacks);
  while (!frames.empty() && Function(frames.back().function, frames.back().file) != alone->function)
    frames.pop_back();
  set_place(context.trace, frames, finding);
  finding.evidence.push_back(fmt::format(words::kRunsAlone, finding.ranks.front(), finding.function,
                                         alone->ms, stats::mean(context.times[r].work_ms)));
  finding.evidence.push_back(fmt::format(words::kAboveOtherStages, stages.stage[r],
                                         stages.ranks.size(), stats::mean(above)));
  finding.evidence.push_back(
      fmt::format(words::kAsleepThere, 100.0 * static_cast<double>(alone->samples->asleep) /
                                           static_cast<double>(alone->samples->count)));
  return finding;
}

bool is_told(const std::vector<Finding>& findings, const Finding& next) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& one) {
    return std::any_of(next.ranks.begin(), next.ranks.end(), [&](std::int32_t rank) {
      return std::count(one.ranks.begin(), one.ranks.end(), rank) > 0;
    });
  });
}

void compare_in_stage(const Context& context, const std::vector<std::size_t>& ranks,
                      const Options& options, std::vector<Finding>& findings,
                      std::vector<std::string>& notes) {
  const StageJob part = part_of(context, ranks);
  Context in_stage{context.trace, part.job,   part.collectives,       part.steps,
                   part.phases,   part.times, context.median_step_ms, context.mean_step_ms};
  in_stage.others = words::kOfItsStage;
  in_stage.kernel = read_kernel_use(context.trace, part.job, part.steps, context.mean_step_ms);
  std::vector<Finding> found;
  compare_ranks(in_stage, options, found, notes);
  for (Finding& finding : found)
    if (!is_told(findings, finding)) findings.push_back(std::move(finding));
}

PipelineSummary summarise(const Context& context, const Stages& stages, const StageTimes& times) {
  PipelineSummary out;
  for (const std::vector<std::size_t>& ranks : stages.ranks) {
    PipelineSummary::Stage& stage = out.stages.emplace_back();
    for (const std::size_t r : ranks) {
      stage.ranks.push_back(context.job.ranks[r].rank);
      stage.work_ms += times.work_ms[r] / static_cast<double>(ranks.size());
    }
  }
  out.micro_batches = stages.micro_batches;
  out.passes_ms = times.passes_ms;
  out.equal_ms = times.equal_ms;
  out.bubble_share = times.bubble_share;
  out.uneven_share = times.uneven_share;
  return out;
}

void note_uneven(const Context& context, const PipelineSummary& pipeline,
                 const std::vector<Finding>& findings, std::vector<std::string>& notes) {
  std::vector<double> works_ms;
  for (const PipelineSummary::Stage& stage : pipeline.stages)
    works_ms.push_back(stage.work_ms);
  const auto most = static_cast<std::size_t>(std::max_element(works_ms.begin(), works_ms.end()) -
                                             works_ms.begin());
  const double others_ms = mean_of_others(works_ms, most);
  if (!(others_ms > 0) || works_ms[most] < kUnevenStageMin * others_ms) return;
  const std::vector<std::int32_t>& ranks = pipeline.stages[most].ranks;
  const bool is_blamed = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.ranks.size() < context.job.ranks.size() &&
           std::find_first_of(ranks.begin(), ranks.end(), finding.ranks.begin(),
                              finding.ranks.end()) != ranks.end();
  });
  if (is_blamed) return;
  notes.push_back(fmt::format(words::kUnevenStages, most, works_ms[most] / others_ms,
                              works_ms[most], others_ms, pipeline.passes_ms - pipeline.equal_ms,
                              pipeline.passes_ms));
}

}  // namespace

std::optional<PipelineSummary> find_stage_causes(const Context& context, const Stages& stages,
                                                 const Options& options,
                                                 std::vector<Finding>& findings,
                                                 std::vector<std::string>& notes) {
  std::vector<SampledRank> sampled;
  for (std::size_t r = 0; r < stages.stage.size(); ++r)
    sampled.push_back(sample_rank(context, r));
  for (std::size_t r = 0; r < sampled.size(); ++r)
    if (auto alone = find_function_alone(context, stages, options, sampled, r))
      findings.push_back(std::move(*alone));
  for (const std::vector<std::size_t>& ranks : stages.ranks)
    if (ranks.size() > 1) compare_in_stage(context, ranks, options, findings, notes);
  const auto times = replay_stages(context, stages);
  if (!times) return std::nullopt;
  const PipelineSummary out = summarise(context, stages, *times);
  notes.push_back(
      fmt::format(words::kPipeline, out.stages.size(),
                  out.micro_batches > 0 ? fmt::format(words::kMicroBatches, out.micro_batches) : "",
                  100 * out.bubble_share, 100 * out.uneven_share));
  note_uneven(context, out, findings, notes);
  return out;
}

}  // namespace kansoku::diagnose
