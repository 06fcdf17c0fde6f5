// SPDX-License-Identifier: Apache-2.0
#include "simulate/graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

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

double overhead_per_task_s(const Workload& workload, std::size_t graph) {
  double total_s = 0;
  std::size_t tasks = 0;
  for (const Job& job : workload.jobs) {
    if (job.graph != graph + 1 || job.duration < Nanos{0}) continue;
    total_s += static_cast<double>(job.duration.count()) / 1e9;
    ++tasks;
  }
  const double makespan_s = workload.graphs[graph].makespan_s;
  if (tasks == 0 || makespan_s < 0) return std::numeric_limits<double>::quiet_NaN();
  return (makespan_s - total_s) / static_cast<double>(tasks);
}

}  // namespace kansoku::simulate
