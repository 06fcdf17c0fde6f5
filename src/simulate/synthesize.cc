// SPDX-License-Identifier: Apache-2.0
#include "simulate/synthesize.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "simulate/internal/draws.h"

namespace kansoku::simulate {
namespace {

constexpr std::uint32_t kSkipped = UINT32_MAX;

/// Appends the runs of one pipeline.
class PipelineWriter {
 public:
  PipelineWriter(const Experiment& experiment, const PipelineSpec& spec, Workload& out)
      : experiment_(experiment),
        spec_(spec),
        out_(out),
        seed_(replication_seed(experiment, 0)),
        assets_(asset_blocks(seed_, spec)) {
    for (const TaskSpec& task : spec.tasks) {
      blocks_.push_back(task_blocks(seed_, spec, task));
      names_.push_back(static_cast<std::uint32_t>(out.names.size()));
      out.names.push_back(task.name);
    }
    if (spec.group.empty()) return;
    group_ = static_cast<std::uint32_t>(out.groups.size());
    out.groups.push_back(spec.group);
  }

  void write_run(std::uint64_t number, Nanos at) {
    const double bytes = spec_.asset_bytes.draw(RandomBlocks::uniform(assets_.at(number)[0]));
    out_.graphs.push_back({fmt::format("{}-{}", spec_.name, number), -1, -1});
    std::vector<std::uint32_t> job_of(spec_.tasks.size(), kSkipped);
    std::vector<std::vector<std::uint32_t>> waits_for(spec_.tasks.size());
    for (std::size_t t = 0; t < spec_.tasks.size(); ++t) {
      for (const std::uint32_t parent : parents(t)) {
        // Through a task that does not take place, to those before it.
        if (job_of[parent] != kSkipped)
          waits_for[t].push_back(job_of[parent]);
        else
          waits_for[t].insert(waits_for[t].end(), waits_for[parent].begin(),
                              waits_for[parent].end());
      }
      const auto block = blocks_[t].at(number);
      if (!is_drawn(spec_.tasks[t], block)) continue;
      job_of[t] = static_cast<std::uint32_t>(out_.jobs.size());
      for (const std::uint32_t parent : waits_for[t])
        out_.edges.push_back({parent, job_of[t]});
      out_.jobs.push_back(job(t, at, bytes, block));
    }
  }

 private:
  [[nodiscard]] std::vector<std::uint32_t> parents(std::size_t task) const {
    if (!spec_.chain) return spec_.tasks[task].after;
    if (task == 0) return {};
    return {static_cast<std::uint32_t>(task - 1)};
  }
  [[nodiscard]] Job job(std::size_t t, Nanos at, double asset_bytes,
                        const RandomBlocks::Block& block) const {
    const TaskSpec& task = spec_.tasks[t];
    const ClusterSpec& cluster = experiment_.clusters[task.cluster];
    Job job;
    job.submit = at;
    job.duration = Nanos{std::llround(drawn_duration_s(task, asset_bytes, block) * 1e9)};
    job.name = names_[t];
    job.group = group_;
    job.graph = static_cast<std::uint32_t>(out_.graphs.size());
    if (cluster.slots == 0) {
      job.gpus = task.pod.gpus * task.pods;
      job.gpu_milli = task.pod.gpu_milli;
      job.cpu_milli = task.pod.cpu_milli * task.pods;
      job.memory_mib = task.pod.memory_mib * task.pods;
    }
    if (task.store >= 0) {
      const double read = task.read_bytes < 0 ? asset_bytes : task.read_bytes;
      job.read_bytes = std::llround(read);
      job.written_bytes = std::llround(task.write_bytes);
    }
    return job;
  }

  const Experiment& experiment_;
  const PipelineSpec& spec_;
  Workload& out_;
  std::uint64_t seed_;
  RandomBlocks assets_;
  std::vector<RandomBlocks> blocks_;
  std::vector<std::uint32_t> names_;
  std::uint32_t group_{0};
};

}  // namespace

Result<Workload> synthesize_pipelines(const Experiment& experiment) {
  Workload out;
  out.source = "drawn from " + experiment.source;
  out.epoch_in_week_s = experiment.start_in_week_s;
  for (const PipelineSpec& spec : experiment.pipelines) {
    if (!spec.arrivals || spec.jobs) continue;
    PipelineWriter writer(experiment, spec, out);
    const auto arrivals = start_arrivals(*spec.arrivals, experiment.start_in_week_s,
                                         arrival_stream(replication_seed(experiment, 0), spec));
    std::uint64_t number = 0;
    while (const auto arrival = arrivals->next()) {
      if (arrival->at >= experiment.horizon) break;
      if (out.jobs.size() + spec.tasks.size() > kSynthesizedTasksMax)
        return Error{
            Code::kLimit,
            fmt::format("synthesize {}: more than {} tasks", spec.name, kSynthesizedTasksMax),
            "a shorter horizon"};
      writer.write_run(number++, arrival->at);
    }
  }
  sort_jobs(out);
  return out;
}

}  // namespace kansoku::simulate
