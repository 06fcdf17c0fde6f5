// SPDX-License-Identifier: Apache-2.0
#include "diagnose/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/rng.h"
#include "diagnose/internal/timeline/pipeline_graph.h"
#include "diagnose/internal/timeline/pipeline_ops.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kCellsMax = std::size_t{1} << 28;  // operations of all steps and ranks

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// The job as recorded and as it would be, and the questions to both.
class Analysis {
 public:
  Analysis(const PipelineOps& ops, const PipelineGraph& graph, const WhatIfOptions& options)
      : ops_(ops), graph_(graph), options_(options), ideal_(graph.durations_s) {}

  WhatIf run();

 private:
  using Cells = std::vector<double>;
  /// Chooses cells by node and lane.
  template <class Wanted>
  [[nodiscard]] Cells mixed(const Cells& base, const Cells& other, Wanted wanted) const {
    Cells out = base;
    const std::size_t lanes = graph_.lane_count;
    for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (wanted(graph_.nodes[node], lane)) out[node * lanes + lane] = other[node * lanes + lane];
      }
    }
    return out;
  }
  [[nodiscard]] std::vector<double> steps_of(const Cells& cells) const {
    return graph_.graph.simulate(cells, graph_.lane_count, graph_.lanes_per_step);
  }
  [[nodiscard]] std::int32_t data_rank_of(std::size_t lane) const {
    return static_cast<std::int32_t>(lane % graph_.lanes_per_step);
  }
  template <class Wanted>
  [[nodiscard]] std::vector<double> steps_with_only(Wanted wanted) const;
  void decompose(WhatIf& out);
  void idealise();
  void balance(Cells& stage_even, Cells& data_even) const;
  void add_suspects(WhatIf& out);
  void add_pictures(WhatIf& out) const;
  void add_suspect(WhatIf& out, Suspect suspect, const Cells& fixed);
  [[nodiscard]] double support_of_worker(std::size_t worker,
                                         const std::vector<std::vector<double>>& by_rank,
                                         const std::vector<std::vector<double>>& by_stage) const;
  [[nodiscard]] double correlation() const;

  const PipelineOps& ops_;
  const PipelineGraph& graph_;
  const WhatIfOptions& options_;
  Cells ideal_;
  std::vector<double> original_steps_, ideal_steps_;
  // Step times with only one data rank, or only one stage, as it was: [rank or stage][step].
  std::vector<std::vector<double>> steps_by_data_rank_, steps_by_stage_;
};

/// Every operation at the mean (compute) or median (transfer) of its type over all ranks and steps.
void Analysis::idealise() {
  const std::size_t lanes = graph_.lane_count;
  std::array<std::vector<double>, kOpTypeCount> values;
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    auto& of_type = values[static_cast<std::size_t>(graph_.nodes[node].type)];
    const auto row = graph_.durations_s.begin() + static_cast<std::ptrdiff_t>(node * lanes);
    of_type.insert(of_type.end(), row, row + static_cast<std::ptrdiff_t>(lanes));
  }
  std::array<double, kOpTypeCount> typical{};
  for (std::size_t type = 0; type < kOpTypeCount; ++type) {
    typical[type] = is_transfer(static_cast<OpType>(type)) ? stats::median(values[type])
                                                           : mean_of(values[type]);
  }
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const double value = typical[static_cast<std::size_t>(graph_.nodes[node].type)];
    std::fill_n(ideal_.begin() + static_cast<std::ptrdiff_t>(node * lanes), lanes, value);
  }
}

/// `stage_even`: compute scaled so that every stage has the same mean, variation within stages
/// kept. `data_even`: the variation within each worker removed, the workers' means kept.
void Analysis::balance(Cells& stage_even, Cells& data_even) const {
  struct Sum {
    double total{0};
    std::size_t count{0};
    void add(double value) {
      total += value;
      ++count;
    }
    [[nodiscard]] double mean() const { return total / static_cast<double>(count); }
  };
  const std::size_t lanes = graph_.lane_count;
  std::map<std::tuple<OpType, std::int32_t, std::int32_t>, Sum> of_worker;  // type, stage, data
  std::map<std::pair<OpType, std::int32_t>, Sum> of_stage;
  std::array<Sum, kOpTypeCount> of_type;
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const GraphNode& at = graph_.nodes[node];
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double value = graph_.durations_s[node * lanes + lane];
      of_worker[{at.type, at.stage, data_rank_of(lane)}].add(value);
      of_stage[{at.type, at.stage}].add(value);
      of_type[static_cast<std::size_t>(at.type)].add(value);
    }
  }
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const GraphNode& at = graph_.nodes[node];
    if (at.type != OpType::kForward && at.type != OpType::kBackward) continue;
    const double mean = of_stage[{at.type, at.stage}].mean();
    const double scale = mean > 0 ? of_type[static_cast<std::size_t>(at.type)].mean() / mean : 1;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t cell = node * lanes + lane;
      stage_even[cell] *= scale;
      data_even[cell] = of_worker[{at.type, at.stage, data_rank_of(lane)}].mean();
    }
  }
}

/// Step times with only the wanted operations as they were.
template <class Wanted>
std::vector<double> Analysis::steps_with_only(Wanted wanted) const {
  return steps_of(mixed(ideal_, graph_.durations_s, wanted));
}

void Analysis::decompose(WhatIf& out) {
  const double ideal_s = mean_of(ideal_steps_);
  const auto take = [&](std::vector<PartSlowdown>& parts, std::string name,
                        const std::vector<double>& steps) {
    parts.push_back({.name = std::move(name), .slowdown = mean_of(steps) / ideal_s});
  };
  for (std::int32_t rank = 0; rank < ops_.data_rank_count; ++rank) {
    steps_by_data_rank_.push_back(steps_with_only(
        [&](const GraphNode&, std::size_t lane) { return data_rank_of(lane) == rank; }));
    take(out.by_data_rank, std::to_string(rank), steps_by_data_rank_.back());
  }
  for (std::int32_t stage = 0; stage < ops_.stage_count; ++stage) {
    steps_by_stage_.push_back(
        steps_with_only([&](const GraphNode& node, std::size_t) { return node.stage == stage; }));
    take(out.by_stage, std::to_string(stage), steps_by_stage_.back());
  }
  std::set<std::string_view> groups;
  for (const GraphNode& node : graph_.nodes)
    groups.insert(op_group_name(node.type));
  for (const std::string_view group : groups) {
    take(out.by_operation, std::string(group),
         steps_with_only([&](const GraphNode& node, std::size_t) {
           return op_group_name(node.type) == group;
         }));
  }
  for (auto* parts : {&out.by_operation, &out.by_data_rank, &out.by_stage}) {
    std::stable_sort(
        parts->begin(), parts->end(),
        [](const PartSlowdown& x, const PartSlowdown& y) { return x.slowdown > y.slowdown; });
  }
}

/// Pearson correlation between forward and backward durations of the same micro-batch, each taken
/// relative to the mean of its worker: near 1 where the data, not the machine, makes the
/// difference.
double Analysis::correlation() const {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Pair {
    std::size_t forward{kNone}, backward{kNone};
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Pair> pairs;  // by stage and sequence number
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const GraphNode& at = graph_.nodes[node];
    if (at.type == OpType::kForward) pairs[{at.stage, at.seq}].forward = node;
    if (at.type == OpType::kBackward) pairs[{at.stage, at.seq}].backward = node;
  }
  const std::size_t lanes = graph_.lane_count;
  const auto each = [&](auto take) {
    for (const auto& [key, pair] : pairs) {
      if (pair.forward == kNone || pair.backward == kNone) continue;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        take(std::pair(key.first, data_rank_of(lane)),
             graph_.durations_s[pair.forward * lanes + lane],
             graph_.durations_s[pair.backward * lanes + lane]);
      }
    }
  };
  struct Means {
    double forward{0}, backward{0}, count{0};
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Means> means;  // by worker
  each([&](std::pair<std::int32_t, std::int32_t> worker, double forward, double backward) {
    Means& mean = means[worker];
    mean.forward += forward;
    mean.backward += backward;
    mean.count += 1;
  });
  double both = 0, forwards = 0, backwards = 0;
  each([&](std::pair<std::int32_t, std::int32_t> worker, double forward, double backward) {
    const Means& mean = means[worker];
    const double a = forward - mean.forward / mean.count;
    const double b = backward - mean.backward / mean.count;
    both += a * b;
    forwards += a * a;
    backwards += b * b;
  });
  const double scale = std::sqrt(forwards * backwards);
  return scale > 0 ? both / scale : 0;
}

void Analysis::add_suspect(WhatIf& out, Suspect suspect, const Cells& fixed) {
  suspect.fixed_s = mean_of(steps_of(fixed));
  suspect.explained = explained_share(out.original_s, suspect.fixed_s, out.ideal_s);
  out.suspects.push_back(std::move(suspect));
}

/// How often the worker has the greatest score when the steps are drawn anew.
double Analysis::support_of_worker(std::size_t worker,
                                   const std::vector<std::vector<double>>& by_rank,
                                   const std::vector<std::vector<double>>& by_stage) const {
  Rng rng(options_.seed, 0x77);
  const std::size_t step_count = ideal_steps_.size();
  std::uint32_t leads = 0;
  std::vector<std::size_t> drawn(step_count);
  for (std::uint32_t i = 0; i < options_.resample_count; ++i) {
    for (std::size_t& step : drawn)
      step = rng.below(static_cast<std::uint32_t>(step_count));
    const auto sums_of = [&](const std::vector<std::vector<double>>& table) {
      std::vector<double> sums(table.size(), 0);
      for (std::size_t row = 0; row < table.size(); ++row) {
        for (const std::size_t step : drawn)
          sums[row] += table[row][step];
      }
      return sums;
    };
    const std::vector<double> ranks = sums_of(by_rank), stages = sums_of(by_stage);
    double best = -1;
    std::size_t leader = 0;
    for (std::size_t w = 0; w < ops_.workers.size(); ++w) {
      const double score = std::min(ranks[static_cast<std::size_t>(ops_.workers[w].data_rank)],
                                    stages[static_cast<std::size_t>(ops_.workers[w].stage)]);
      if (score > best) {
        best = score;
        leader = w;
      }
    }
    leads += leader == worker ? 1 : 0;
  }
  return options_.resample_count == 0 ? 0 : static_cast<double>(leads) / options_.resample_count;
}

void Analysis::add_suspects(WhatIf& out) {
  // The slowest workers: the score of a worker is the lesser of its data rank's and its stage's.
  std::vector<double> rank_score, stage_score;
  for (const auto& steps : steps_by_data_rank_)
    rank_score.push_back(mean_of(steps));
  for (const auto& steps : steps_by_stage_)
    stage_score.push_back(mean_of(steps));
  std::vector<std::pair<double, std::size_t>> order;  // least first: (-score, worker)
  for (std::size_t w = 0; w < ops_.workers.size(); ++w) {
    order.emplace_back(-std::min(rank_score[static_cast<std::size_t>(ops_.workers[w].data_rank)],
                                 stage_score[static_cast<std::size_t>(ops_.workers[w].stage)]),
                       w);
  }
  std::sort(order.begin(), order.end());
  const auto count =
      static_cast<std::size_t>(std::ceil(kWorkerShare * static_cast<double>(order.size())));
  Suspect slowest{.kind = "worker"};
  std::map<std::pair<std::int32_t, std::int32_t>, bool> is_slowest;
  for (std::size_t i = 0; i < std::clamp<std::size_t>(count, 1, order.size()); ++i) {
    const PipelineWorker& worker = ops_.workers[order[i].second];
    slowest.ranks.push_back(worker.rank);
    is_slowest[{worker.data_rank, worker.stage}] = true;
    if (i == 0) {
      slowest.label = fmt::format(words::kWorkerLabel, worker.data_rank, worker.stage);
    }
  }
  slowest.support = support_of_worker(order[0].second, steps_by_data_rank_, steps_by_stage_);
  add_suspect(out, std::move(slowest),
              mixed(graph_.durations_s, ideal_, [&](const GraphNode& node, std::size_t lane) {
                return is_slowest.contains({data_rank_of(lane), node.stage});
              }));
  if (ops_.stage_count > 1) {
    Suspect last{.kind = "last_stage", .label = fmt::format("stage {}", ops_.stage_count - 1)};
    for (const PipelineWorker& worker : ops_.workers) {
      if (worker.stage == ops_.stage_count - 1) last.ranks.push_back(worker.rank);
    }
    add_suspect(out, std::move(last),
                mixed(graph_.durations_s, ideal_, [&](const GraphNode& node, std::size_t) {
                  return node.stage == ops_.stage_count - 1;
                }));
  }
  Cells stage_even = graph_.durations_s, data_even = graph_.durations_s;
  balance(stage_even, data_even);
  if (ops_.stage_count > 1)
    add_suspect(out, {.kind = "stage_balance", .label = words::kStagesUnequal}, stage_even);
  add_suspect(out, {.kind = "data_balance", .label = words::kBatchesUnequal}, data_even);
}

/// Adds the drawings of the report: scores of workers, the longest step with its critical path, own
/// work.
void Analysis::add_pictures(WhatIf& out) const {
  const double ideal_s = mean_of(ideal_steps_);
  for (const auto& of_stage : steps_by_stage_) {
    auto& row = out.worker_scores.emplace_back();
    for (const auto& of_rank : steps_by_data_rank_)
      row.push_back(std::min(mean_of(of_stage), mean_of(of_rank)) / ideal_s);
  }
  const auto worst = std::max_element(original_steps_.begin(), original_steps_.end());
  out.worst_step = static_cast<std::size_t>(worst - original_steps_.begin());
  const std::size_t per_step = graph_.lanes_per_step;
  const auto times =
      graph_.graph.schedule(graph_.durations_s, graph_.lane_count, per_step, out.worst_step);
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> index;
  for (std::size_t w = 0; w < ops_.workers.size(); ++w)
    index[{ops_.workers[w].stage, ops_.workers[w].data_rank}] = w;
  out.worst_operations.resize(ops_.workers.size());
  out.compute_ms.assign(ops_.workers.size(), std::vector<double>(original_steps_.size(), 0));
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const GraphNode& at = graph_.nodes[node];
    for (std::size_t lane = 0; lane < graph_.lane_count; ++lane) {
      const std::size_t worker = index.at({at.stage, data_rank_of(lane)});
      const double seconds = graph_.durations_s[node * graph_.lane_count + lane];
      if (!is_transfer(at.type)) out.compute_ms[worker][lane / per_step] += seconds * 1e3;
      if (lane / per_step != out.worst_step) continue;
      const StepGraph::Times& time = times[node * per_step + lane % per_step];
      out.worst_operations[worker].push_back(
          {.name = fmt::format("{} {}", op_name(at.type), at.seq),
           .type = static_cast<std::size_t>(at.type),
           .start_s = time.end_s - seconds,
           .duration_s = seconds,
           .is_critical = time.is_critical});
    }
  }
}

WhatIf Analysis::run() {
  WhatIf out;
  out.step_count = ops_.steps.size();
  out.worker_count = ops_.workers.size();
  out.operation_count = ops_.ops.size();
  out.recorded_s = mean_of(graph_.recorded_step_s);
  idealise();
  original_steps_ = steps_of(graph_.durations_s);
  ideal_steps_ = steps_of(ideal_);
  out.step_s = original_steps_;
  out.original_s = mean_of(original_steps_);
  out.ideal_s = mean_of(ideal_steps_);
  if (!(out.ideal_s > 0)) {
    out.notes.emplace_back(words::kNoDurations);
    return out;
  }
  out.slowdown = out.original_s / out.ideal_s;
  decompose(out);
  add_suspects(out);
  add_pictures(out);
  out.forward_backward_correlation = correlation();
  return out;
}

Json parts_json(const std::vector<PartSlowdown>& parts) {
  Json out = Json::object();
  for (const PartSlowdown& part : parts)
    out.set(part.name, part.slowdown);
  return out;
}

}  // namespace

double explained_share(double original, double fixed, double ideal) {
  return original > ideal ? std::clamp((original - fixed) / (original - ideal), 0.0, 1.0) : 0;
}

Result<std::optional<WhatIf>> what_if(const trace::Trace& trace, const WhatIfOptions& options) {
  TRY(const auto ops, read_pipeline_ops(trace));
  if (!ops) return std::optional<WhatIf>{};
  TRY(const auto graph, build_pipeline_graph(*ops, kCellsMax));
  WhatIf out = Analysis(*ops, graph, options).run();
  for (const std::string& note : graph.notes)
    out.notes.push_back(note);
  if (ops->left_out > 0) {
    out.notes.push_back(fmt::format(words::kOperationsLeftOut, ops->left_out));
  }
  return std::optional<WhatIf>{std::move(out)};
}

Json to_json(const WhatIf& what_if) {
  Json out = Json::object();
  out.set("steps", static_cast<std::uint64_t>(what_if.step_count))
      .set("workers", static_cast<std::uint64_t>(what_if.worker_count))
      .set("recorded_step_ms", what_if.recorded_s * 1e3)
      .set("original_step_ms", what_if.original_s * 1e3)
      .set("ideal_step_ms", what_if.ideal_s * 1e3)
      .set("slowdown", what_if.slowdown)
      .set("by_operation", parts_json(what_if.by_operation))
      .set("by_data_rank", parts_json(what_if.by_data_rank))
      .set("by_stage", parts_json(what_if.by_stage))
      .set("forward_backward_correlation", what_if.forward_backward_correlation);
  Json suspects = Json::array();
  for (const Suspect& suspect : what_if.suspects) {
    Json ranks = Json::array();
    for (const std::int32_t rank : suspect.ranks)
      ranks.push(rank);
    suspects.push(Json::object()
                      .set("kind", suspect.kind)
                      .set("label", suspect.label)
                      .set("ranks", std::move(ranks))
                      .set("fixed_step_ms", suspect.fixed_s * 1e3)
                      .set("explained", suspect.explained)
                      .set("support", suspect.support));
  }
  return out.set("suspects", std::move(suspects));
}

}  // namespace kansoku::diagnose
