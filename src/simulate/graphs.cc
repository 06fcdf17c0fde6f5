// SPDX-License-Identifier: Apache-2.0
#include "simulate/graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "simulate/run.h"

namespace kansoku::simulate {

Result<Experiment> graph_experiment(const Workload& workload, std::size_t graph, int cores,
                                    double overhead_s) {
  if (graph >= workload.graphs.size())
    return Error{Code::kNotFound,
                 fmt::format("graph {}: the workload has {}", graph, workload.graphs.size())};
  const Graph& recorded = workload.graphs[graph];
  Experiment out;
  out.name = recorded.name;
  out.source = workload.source;
  out.drain = true;
  ClusterSpec machine;
  machine.name = "machine";
  machine.slots = cores > 0 ? cores : std::max(recorded.machine_cores, 1);
  PipelineSpec pipeline;
  pipeline.name = "graph";
  pipeline.chain = false;
  ArrivalModel once;
  once.kind = ArrivalModel::Kind::kReplay;
  once.jobs.emplace_back();
  pipeline.arrivals = std::move(once);
  std::vector<std::uint32_t> task_of(workload.jobs.size(), UINT32_MAX);
  double total_s = 0;
  for (std::uint32_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    if (job.graph != graph + 1) continue;
    const std::string& name = workload.names[job.name];
    if (job.duration < Nanos{0})
      return Error{Code::kCorrupt,
                   "graph " + recorded.name + ": task " + name + " has no duration"};
    TaskSpec task;
    task.name = name;
    const double duration_s = static_cast<double>(job.duration.count()) / 1e9 + overhead_s;
    task.duration = stats::Distribution::constant(duration_s);
    total_s += duration_s;
    task_of[i] = static_cast<std::uint32_t>(pipeline.tasks.size());
    pipeline.tasks.push_back(std::move(task));
  }
  for (const Edge& edge : workload.edges)
    if (task_of[edge.child] != UINT32_MAX && task_of[edge.parent] != UINT32_MAX)
      pipeline.tasks[task_of[edge.child]].after.push_back(task_of[edge.parent]);
  if (pipeline.tasks.empty()) return Error{Code::kCorrupt, "graph " + recorded.name + ": no tasks"};
  out.horizon = Nanos{std::llround((total_s + 1) * 1e9)};
  out.clusters.push_back(std::move(machine));
  out.pipelines.push_back(std::move(pipeline));
  return out;
}

Result<double> graph_makespan_s(const Workload& workload, std::size_t graph, int cores,
                                double overhead_s) {
  TRY(const auto experiment, graph_experiment(workload, graph, cores, overhead_s));
  RunControl control;
  TRY(const auto run,
      run_replication(experiment, 0, {.records = false, .series_points = 0}, control));
  for (const Metric& metric : run.metrics) {
    if (metric.name == "pipeline.graph.sojourn_mean_s") return metric.value;
  }
  return Error{Code::kInternal, "simulate graph: no makespan"};
}

Result<std::optional<double>> overhead_per_task_s(const Workload& workload, std::size_t graph,
                                                  int cores) {
  constexpr double kNear = 1e-6;  // of the makespan
  constexpr int kStepsMax = 60;
  TRY(double low_makespan_s, graph_makespan_s(workload, graph, cores, 0));
  const double wanted_s = workload.graphs[graph].makespan_s;
  if (!(wanted_s >= 0)) return std::optional<double>();
  if (low_makespan_s > wanted_s * (1 + kNear)) return std::optional<double>();
  if (low_makespan_s >= wanted_s * (1 - kNear)) return std::optional<double>(0);
  // At least one task is on the way, so that as much overhead is too much.
  double low_s = 0, high_s = wanted_s - low_makespan_s;
  TRY(double high_makespan_s, graph_makespan_s(workload, graph, cores, high_s));
  for (int step = 0; step < kStepsMax && high_s - low_s > kNear * high_s; ++step) {
    // A line through both ends, or the middle where that does not help.
    const double rise = high_makespan_s - low_makespan_s;
    const bool is_line = rise > 0 && step % 3 != 2;
    const double at_s = is_line ? low_s + (wanted_s - low_makespan_s) / rise * (high_s - low_s)
                                : (low_s + high_s) / 2;
    TRY(const double makespan_s, graph_makespan_s(workload, graph, cores, at_s));
    if (std::abs(makespan_s - wanted_s) <= kNear * wanted_s) return std::optional<double>(at_s);
    if (makespan_s < wanted_s) {
      low_s = at_s;
      low_makespan_s = makespan_s;
    } else {
      high_s = at_s;
      high_makespan_s = makespan_s;
    }
  }
  return std::optional<double>((low_s + high_s) / 2);
}

}  // namespace kansoku::simulate
