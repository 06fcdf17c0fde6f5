// SPDX-License-Identifier: Apache-2.0
#include "simulate/experiments_for_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kansoku::simulate {

Result<Workload> MapLoader::workload(const std::string& path) {
  const auto found = workloads.find(path);
  if (found == workloads.end()) return Error{Code::kNotFound, "open " + path + ": no such file"};
  return found->second;
}
Result<std::vector<NodeSpec>> MapLoader::nodes(const std::string& path) {
  return Error{Code::kNotFound, "open " + path + ": no such file"};
}
Result<Json> MapLoader::json(const std::string& path) {
  return Error{Code::kNotFound, "open " + path + ": no such file"};
}

Experiment parsed(std::string_view toml, const Overrides& overrides) {
  MapLoader loader;
  auto experiment = parse_experiment(toml, "t.toml", overrides, loader);
  if (!experiment) ADD_FAILURE() << experiment.error().what;
  return std::move(experiment).value();
}

Workload workload_of(const std::vector<TestJob>& jobs) {
  Workload out;
  std::map<std::string, std::uint32_t> numbers{{"", 0}};
  for (const TestJob& job : jobs) {
    Job made;
    made.submit = Nanos{std::llround(job.submit_s * 1e9)};
    made.duration = Nanos{std::llround(job.duration_s * 1e9)};
    made.gpus = job.gpus;
    made.gpu_milli = 1000;
    const auto [found, added] =
        numbers.emplace(job.group, static_cast<std::uint32_t>(out.groups.size()));
    if (added) out.groups.push_back(job.group);
    made.group = found->second;
    out.jobs.push_back(made);
  }
  return out;
}

Replication simulated(const Experiment& experiment, int index) {
  RunControl control;
  RunOptions options;
  options.records = true;
  auto run = run_replication(experiment, index, options, control);
  if (!run) ADD_FAILURE() << run.error().what;
  return std::move(run).value();
}

double metric(const Replication& replication, std::string_view name) {
  for (const Metric& metric : replication.metrics)
    if (metric.name == name) return metric.value;
  ADD_FAILURE() << "no metric " << name;
  return NAN;
}

std::string timeline(const Experiment& experiment, const Replication& replication) {
  std::string out;
  const auto seconds = [](Nanos time) { return static_cast<double>(time.count()) / 1e9; };
  for (std::uint64_t i = 0; i < replication.records->size(); ++i) {
    const TaskRecord& record = (*replication.records)[i];
    const auto& task = experiment.pipelines[record.pipeline].tasks[record.task];
    out += fmt::format("{}{}{}@{:g}+{:g}..{:g}", out.empty() ? "" : " ", task.name, record.run,
                       seconds(record.queued), seconds(record.started - record.queued),
                       seconds(record.ended));
    if (record.restarts > 0) out += fmt::format("!{}", record.restarts);
    if (record.end == TaskEnd::kFailed) out += " failed";
    if (record.end == TaskEnd::kRefused) out += " refused";
  }
  return out;
}

}  // namespace kansoku::simulate
