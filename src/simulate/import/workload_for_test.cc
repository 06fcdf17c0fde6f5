// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/workload_for_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace kansoku::simulate::import {

std::string text_of(const Workload& workload, bool with_graphs) {
  std::string out = fmt::format("epoch {} {}\n", workload.epoch, workload.epoch_in_week_s);
  for (const Job& job : workload.jobs) {
    out += fmt::format(
        "{} +{} @{} {} of {} in {} {}x{} {} cpu {} mib {} bytes {} {} tokens {} {} x{}{}\n",
        job.submit.count(), job.duration.count(), job.scheduled.count(), workload.names[job.name],
        workload.groups[job.group], job.graph == 0 ? "-" : workload.graphs[job.graph - 1].name,
        job.gpus, job.gpu_milli, workload.gpu_types[job.gpu_type], job.cpu_milli, job.memory_mib,
        job.read_bytes, job.written_bytes, job.tokens_in, job.tokens_out, job.instances,
        job.censored ? " censored" : "");
  }
  for (const Edge& edge : workload.edges)
    out += fmt::format("{} -> {}\n", edge.parent, edge.child);
  if (!with_graphs) return out;
  std::vector<std::string> graphs;
  for (const Graph& graph : workload.graphs) {
    graphs.push_back(fmt::format("graph {}: {} s, {} cores\n", graph.name, graph.makespan_s,
                                 graph.machine_cores));
  }
  std::sort(graphs.begin(), graphs.end());  // their order is the one of the source
  for (const std::string& graph : graphs)
    out += graph;
  return out;
}

}  // namespace kansoku::simulate::import
