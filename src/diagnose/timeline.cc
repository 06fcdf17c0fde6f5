// SPDX-License-Identifier: Apache-2.0
#include "diagnose/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "diagnose/internal/timeline/pipeline_ops.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kPartsShownMax = 3;

const Suspect* find_suspect(const WhatIf& what_if, std::string_view kind) {
  for (const Suspect& suspect : what_if.suspects) {
    if (suspect.kind == kind) return &suspect;
  }
  return nullptr;
}

/// "backward-compute alone makes steps 1.58 times as long, forward-compute 1.37"
std::string operations_line(const WhatIf& what_if) {
  std::string line = words::kAloneAgainstIdeal;
  for (std::size_t i = 0; i < std::min(kPartsShownMax, what_if.by_operation.size()); ++i) {
    line += fmt::format("{}{} x {:.3f}", i == 0 ? "" : ", ", what_if.by_operation[i].name,
                        what_if.by_operation[i].slowdown);
  }
  return line;
}

std::string steps_line(const WhatIf& what_if) {
  return fmt::format(words::kMeanAndIdealStep, what_if.original_s, what_if.ideal_s);
}

Finding finding_of(const WhatIf& what_if, const Suspect& suspect, std::string kind) {
  Finding finding;
  finding.kind = std::move(kind);
  finding.ranks = suspect.ranks;
  const double cost_s = what_if.original_s - suspect.fixed_s;
  finding.cost_ms_per_step = cost_s * 1e3;
  finding.share = what_if.original_s > 0 ? cost_s / what_if.original_s : 0;
  finding.explained = suspect.explained;
  finding.evidence.push_back(steps_line(what_if));
  finding.evidence.push_back(
      fmt::format(words::kFixedStep, suspect.fixed_s, suspect.label, suspect.explained * 100));
  return finding;
}

/// Ranks of the stage that slows the job most.
Finding stage_finding(const WhatIf& what_if, const PipelineOps& ops, const Suspect& suspect) {
  Finding finding = finding_of(what_if, suspect, "stage_imbalance");
  const PartSlowdown& worst = what_if.by_stage.front();
  for (const PipelineWorker& worker : ops.workers) {
    if (std::to_string(worker.stage) == worst.name) finding.ranks.push_back(worker.rank);
  }
  finding.evidence.push_back(fmt::format(words::kStageTakesLonger, worst.name, worst.slowdown));
  finding.evidence.push_back(words::kAdviceStages);
  return finding;
}

void add_findings(const WhatIf& what_if, const PipelineOps& ops, Diagnosis& out) {
  if (!(what_if.slowdown >= kSlowdownMin)) return;
  const Suspect* worker = find_suspect(what_if, "worker");
  const Suspect* stage = find_suspect(what_if, "stage_balance");
  const Suspect* data = find_suspect(what_if, "data_balance");
  const std::string operations = operations_line(what_if);
  const auto take = [&](Finding finding, std::optional<double> confidence) {
    // A part of the slow-down that goes with a suspect is a sum.
    finding.basis = confidence ? Basis::kTest : Basis::kObservation;
    finding.confidence = finding.rank_confidence = confidence.value_or(0);
    if (!what_if.by_operation.empty()) finding.function = what_if.by_operation.front().name;
    finding.evidence.push_back(operations);
    out.findings.push_back(std::move(finding));
  };
  const bool one_is_slow = worker != nullptr && ops.workers.size() > 1 &&
                           worker->explained >= kMostShare && worker->support >= kConfidenceMin;
  if (one_is_slow) {
    Finding finding = finding_of(what_if, *worker, "slow_worker");
    finding.evidence.push_back(
        fmt::format(words::kLeadsInSamples, worker->support * 100, what_if.step_count));
    finding.evidence.push_back(words::kAdviceHost);
    take(std::move(finding), worker->support);
    return;
  }
  // The rest is in the work itself: its split over stages, or differences of the data.
  if (stage != nullptr && stage->explained >= kPartExplainedMin)
    take(stage_finding(what_if, ops, *stage), std::nullopt);
  const bool data_varies = data != nullptr && data->explained >= kPartExplainedMin &&
                           what_if.forward_backward_correlation >= kDataCorrelationMin;
  if (data_varies) {
    Finding finding = finding_of(what_if, *data, "data_imbalance");
    finding.evidence.push_back(
        fmt::format(words::kDurationsCorrelate, what_if.forward_backward_correlation));
    finding.evidence.push_back(words::kAdviceSequences);
    take(std::move(finding), std::nullopt);
  }
  verdict::put_in_order(out.findings);
}

Phase phase_of(std::size_t type) {
  const auto op = static_cast<OpType>(type);
  if (op == OpType::kForward) return Phase::kForward;
  if (op == OpType::kBackward) return Phase::kBackward;
  if (op == OpType::kOptimizer) return Phase::kOptimizer;
  return is_transfer(op) ? Phase::kTransfer : Phase::kOther;
}

/// Rows by rank: where the step goes, own work by step, the longest step.
void fill_timeline_view(const WhatIf& what_if, const PipelineOps& ops, Diagnosis& out) {
  std::vector<std::size_t> order(ops.workers.size());
  for (std::size_t w = 0; w < order.size(); ++w)
    order[w] = w;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ops.workers[a].rank < ops.workers[b].rank;
  });
  std::vector<PhaseMs> phases(ops.workers.size());
  const auto index_of = [&](const PipelineOp& op) {
    const auto found = std::find_if(ops.workers.begin(), ops.workers.end(), [&](const auto& w) {
      return w.stage == op.stage && w.data_rank == op.data_rank;
    });
    return static_cast<std::size_t>(found - ops.workers.begin());
  };
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> known;
  for (const PipelineOp& op : ops.ops) {
    const auto [at, is_new] = known.try_emplace({op.stage, op.data_rank}, 0);
    if (is_new) at->second = index_of(op);
    phases[at->second][static_cast<std::size_t>(phase_of(static_cast<std::size_t>(op.type)))] +=
        static_cast<double>(op.duration_ns) * 1e-6 / static_cast<double>(what_if.step_count);
  }
  for (const std::size_t w : order) {
    RankSummary rank;
    rank.rank = ops.workers[w].rank;
    rank.step_ms = what_if.original_s * 1e3;
    rank.phase_ms = phases[w];
    double busy_ms = 0;
    for (const double ms : phases[w])
      busy_ms += ms;
    rank.phase_ms[static_cast<std::size_t>(Phase::kWait)] = std::max(0.0, rank.step_ms - busy_ms);
    rank.work_ms = stats::mean(what_if.compute_ms[w]);
    out.ranks.push_back(rank);
    out.view.work_ms.push_back(what_if.compute_ms[w]);
    std::vector<double> waits;
    for (std::size_t s = 0; s < what_if.step_s.size(); ++s)
      waits.push_back(std::max(0.0, what_if.step_s[s] * 1e3 - what_if.compute_ms[w][s]));
    out.view.wait_ms.push_back(std::move(waits));
    auto& spans = out.view.worst_spans.emplace_back();
    for (const WhatIf::Operation& op : what_if.worst_operations[w]) {
      spans.push_back({.phase = phase_of(op.type),
                       .start_ms = op.start_s * 1e3,
                       .duration_ms = op.duration_s * 1e3,
                       .is_critical = op.is_critical,
                       .name = op.name});
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.start_ms < b.start_ms; });
  }
  out.view.worst_step = what_if.worst_step;
  out.view.worker_scores = what_if.worker_scores;
}

}  // namespace

Result<std::optional<Diagnosis>> diagnose_timeline(const trace::Trace& trace,
                                                   const Options& options) {
  TRY(auto what_if_result, what_if(trace, {.seed = options.seed}));
  if (!what_if_result) return std::optional<Diagnosis>{};
  TRY(const auto ops, read_pipeline_ops(trace));
  const WhatIf& w = *what_if_result;
  Diagnosis out;
  out.slowdown = w.slowdown;
  out.steps.count = w.step_count;
  out.steps.found_by = "timeline";
  for (const double seconds : w.step_s)
    out.steps.durations_ms.push_back(seconds * 1e3);
  out.steps.median_ms = stats::median(w.step_s) * 1e3;
  out.steps.p95_ms = stats::quantile(w.step_s, 0.95) * 1e3;
  out.steps.mean_ms = w.original_s * 1e3;
  fill_timeline_view(w, *ops, out);
  add_findings(w, *ops, out);
  out.loss_ms_per_step = (w.original_s - w.ideal_s) * 1e3;
  double explained = 0;
  for (const Finding& finding : out.findings)
    explained = std::max(explained, finding.explained.value_or(0));
  out.not_explained_share = w.slowdown > 1 ? std::clamp(1 - explained, 0.0, 1.0) : 0;
  for (const auto& [name, loss] : trace.losses) {
    if (loss.count > 0) out.losses.push_back(loss);
  }
  out.notes = w.notes;
  out.what_if = std::move(*what_if_result);
  return std::optional<Diagnosis>{std::move(out)};
}

}  // namespace kansoku::diagnose
