// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/platform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "simulate/internal/draws.h"
#include "simulate/internal/seconds.h"
#include "simulate/workload/arrivals.h"

namespace kansoku::simulate {
namespace {

constexpr std::uint64_t kTriggeredRuns = std::uint64_t{1} << 63;  // random indices of retrainings
constexpr int kProgressSteps = 200;
constexpr int kStepsMax = (1 + kDrainHorizonsMax) * kProgressSteps;

Nanos bounded_nanos(double seconds) {
  constexpr double kMost = 9e18;
  const double ns = seconds * 1e9;
  return Nanos{ns >= kMost ? static_cast<std::int64_t>(kMost) : std::llround(std::max(ns, 0.0))};
}
/// Waits, executions and their tails.
struct Spans {
  std::uint64_t count{0};
  double sum_s{0};
  stats::LogSketch sketch;
  void add(double value_s) {
    ++count;
    sum_s += value_s;
    sketch.add(value_s);
  }
  [[nodiscard]] double mean() const { return count == 0 ? 0 : sum_s / static_cast<double>(count); }
};

/// GPUs of one pod at most: as the experiment says, else what the largest node has.
std::int32_t gpus_per_pod(const PipelineSpec& pipeline, const ClusterSpec& cluster) {
  if (pipeline.gpus_per_pod_max > 0) return pipeline.gpus_per_pod_max;
  std::int32_t most = 1;
  for (const NodeSpec& node : cluster.nodes)
    most = std::max(most, node.gpus);
  return most;
}

/// A recorded job as a gang of equal pods.
std::pair<placement::Request, std::int32_t> pods_of(const Job& job, std::int32_t per_pod) {
  const std::int32_t pods = job.gpus <= per_pod ? 1 : (job.gpus + per_pod - 1) / per_pod;
  placement::Request pod;
  pod.gpus = std::min(job.gpus, per_pod);
  pod.gpu_milli = job.gpus == 0 ? 0 : job.gpu_milli > 0 ? job.gpu_milli : placement::kWholeGpu;
  if (job.cpu_milli >= 0) pod.cpu_milli = job.cpu_milli / pods;
  if (job.memory_mib >= 0) pod.memory_mib = job.memory_mib / pods;
  return {pod, pods};
}

double interpolate(const std::vector<CompressionRow>& table, double pruned,
                   double CompressionRow::*what) {
  if (pruned <= table.front().pruned) return table.front().*what;
  for (std::size_t i = 1; i < table.size(); ++i) {
    if (pruned > table[i].pruned) continue;
    const double part = (pruned - table[i - 1].pruned) / (table[i].pruned - table[i - 1].pruned);
    return table[i - 1].*what + part * (table[i].*what - table[i - 1].*what);
  }
  return table.back().*what;
}

}  // namespace

struct Platform::Task {
  explicit Task(RandomBlocks its_blocks) : blocks(its_blocks) {}
  const TaskSpec* spec{nullptr};
  Cluster* cluster{nullptr};
  Storage* store{nullptr};
  RandomBlocks blocks;
  bool draws{false};  // anything random about it
  std::vector<std::uint32_t> children;
  std::uint32_t parents{0};
  std::uint32_t group{0};
  /// Weight of one unit in the cost of a retraining: GPUs if the pipeline uses any, otherwise
  /// slots.
  double unit_weight{1};
  Spans wait, execution;
  std::uint64_t restarts{0}, failed{0};
};

/// How far a task has come over its attempts.
struct Platform::Attempts {
  Nanos left{0};
  int failures{0};  // of nodes
  TaskRecord record;
};

struct Platform::Storage {
  Storage(des::Environment& env, const StoreSpec& its_spec)
      : spec(its_spec), streams(env, std::max<std::int64_t>(its_spec.streams, 1), its_spec.name) {}
  const StoreSpec& spec;
  des::Resource streams;
  double bytes_read{0}, bytes_written{0};
};

struct Platform::Pipeline {
  Pipeline(const PipelineSpec& its_spec, RandomBlocks its_assets)
      : spec(its_spec), assets(its_assets) {}
  const PipelineSpec& spec;
  RandomBlocks assets;
  std::vector<Task> tasks;
  std::unique_ptr<ArrivalProcess> arrivals;
  std::int32_t gpus_per_pod{1};           // of recorded jobs
  std::vector<std::uint32_t> job_groups;  // of the cluster, by Job::group
  std::uint64_t arrived{0}, finished{0}, failed{0}, refused{0}, dropped{0};
  double offered_unit_seconds{0};
  Spans sojourn;
};

Platform::Platform(const Experiment& experiment, int index, const RunOptions& options)
    : experiment_(experiment),
      options_(options),
      index_(index),
      seed_(replication_seed(experiment, index)) {
  if (options.records) records_ = std::make_shared<Records>(experiment.records_max);
}

Platform::~Platform() = default;

Result<std::unique_ptr<Platform>> Platform::make(const Experiment& experiment, int index,
                                                 const RunOptions& options) {
  std::unique_ptr<Platform> platform(
      new Platform(experiment, index, options));  // NOLINT: private constructor
  TRY_VOID(platform->build());
  return platform;
}

Result<void> Platform::build() {
  std::vector<placement::Request> pods;
  for (const PipelineSpec& pipeline : experiment_.pipelines) {
    for (const TaskSpec& task : pipeline.tasks)
      if (!pipeline.jobs)
        pods.insert(pods.end(), static_cast<std::size_t>(std::min(task.pods, 64)), task.pod);
    if (!pipeline.jobs || !pipeline.arrivals) continue;
    const std::int32_t per_pod =
        gpus_per_pod(pipeline, experiment_.clusters[pipeline.tasks.front().cluster]);
    for (const Job& job : pipeline.arrivals->jobs)
      pods.push_back(pods_of(job, per_pod).first);
  }
  typical_ = placement::typical_pods(pods);
  const Context context{experiment_.warmup, experiment_.horizon, options_.series_points, seed_,
                        typical_,           &breaches_};
  for (const ClusterSpec& spec : experiment_.clusters) {
    TRY(auto cluster, Cluster::make(env_, spec, context));
    clusters_.push_back(std::move(cluster));
  }
  for (const StoreSpec& spec : experiment_.stores)
    stores_.push_back(std::make_unique<Storage>(env_, spec));
  for (const PipelineSpec& spec : experiment_.pipelines)
    TRY_VOID(build_pipeline(spec));
  fleet_ = std::make_unique<Fleet>(env_, experiment_, seed_, *this);
  return {};
}

Result<void> Platform::build_pipeline(const PipelineSpec& spec) {
  pipelines_.push_back(std::make_unique<Pipeline>(spec, asset_blocks(seed_, spec)));
  Pipeline& pipeline = *pipelines_.back();
  for (const TaskSpec& task : spec.tasks) {
    Task built(task_blocks(seed_, spec, task));
    built.spec = &task;
    built.cluster = clusters_[task.cluster].get();
    built.store = task.store < 0 ? nullptr : stores_[static_cast<std::size_t>(task.store)].get();
    built.draws = task.probability < 1 || task.duration.family() != stats::Family::kConstant ||
                  task.kind != TaskKind::kCustom;
    built.parents = static_cast<std::uint32_t>(task.after.size());
    built.group = built.cluster->group(spec.group);
    pipeline.tasks.push_back(std::move(built));
  }
  for (std::uint32_t child = 0; child < spec.tasks.size(); ++child)
    for (const std::uint32_t parent : spec.tasks[child].after)
      pipeline.tasks[parent].children.push_back(child);
  pipeline.gpus_per_pod = gpus_per_pod(spec, pipeline.tasks.front().cluster->spec());
  const auto counts_gpus = [](const Task& task) { return task.cluster->spec().counts_gpus(); };
  const bool any = std::any_of(pipeline.tasks.begin(), pipeline.tasks.end(), counts_gpus);
  for (Task& task : pipeline.tasks)
    task.unit_weight = counts_gpus(task) ? 1e-3 : any ? 0 : 1;
  if (!spec.arrivals) return {};
  pipeline.arrivals =
      start_arrivals(*spec.arrivals, experiment_.start_in_week_s, arrival_stream(seed_, spec));
  for (const std::string& group : spec.arrivals->groups)
    pipeline.job_groups.push_back(pipeline.tasks.front().cluster->group(group));
  return {};
}

PipelineRun& Platform::new_run(std::uint32_t pipeline, std::uint64_t random_index) {
  if (free_runs_.empty()) {
    all_runs_.push_back(std::make_unique<PipelineRun>());
    free_runs_.push_back(all_runs_.back().get());
  }
  PipelineRun& run = *free_runs_.back();
  free_runs_.pop_back();
  std::vector<std::uint32_t> parents = std::move(run.parents_left);
  run = PipelineRun{};
  run.parents_left = std::move(parents);
  run.parents_left.clear();
  run.pipeline = pipeline;
  run.number = run_count_++;
  run.random_index = random_index;
  run.arrived = env_.now();
  const Pipeline& of = *pipelines_[pipeline];
  run.tasks_left = static_cast<std::uint32_t>(of.tasks.size());
  const stats::Distribution& bytes = of.spec.asset_bytes;
  run.asset_bytes = bytes.family() == stats::Family::kConstant
                        ? bytes.draw(0.5)
                        : bytes.draw(RandomBlocks::uniform(of.assets.at(random_index)[0]));
  if (!of.spec.chain)
    for (const Task& task : of.tasks)
      run.parents_left.push_back(task.parents);
  return run;
}

void Platform::begin(PipelineRun& run) {
  ++runs_in_system_;
  in_system_.change(env_.now(), 1);
  arrivals_sum_ += run.arrived.count();
  const Pipeline& pipeline = *pipelines_[run.pipeline];
  if (pipeline.spec.chain) {
    env_.start(work(env_, run, 0));
    return;
  }
  // The roots; the run may end before all have been started.
  std::vector<std::uint32_t> roots;
  for (std::uint32_t task = 0; task < pipeline.tasks.size(); ++task)
    if (pipeline.tasks[task].parents == 0) roots.push_back(task);
  for (const std::uint32_t root : roots)
    env_.start(work(env_, run, root));
}

des::Process Platform::arrive(des::Environment& env, std::uint32_t index) {
  Pipeline& pipeline = *pipelines_[index];
  std::uint64_t number = 0;
  for (;;) {
    const std::optional<Arrival> arrival = pipeline.arrivals->next();
    if (!arrival || arrival->at >= experiment_.horizon) co_return;
    if (arrival->at > env.now()) co_await env.timeout(arrival->at - env.now());
    PipelineRun& run = new_run(index, number++);
    run.job = pipeline.spec.jobs ? arrival->job : nullptr;
    const bool counted = env.now() >= experiment_.warmup;
    if (counted) ++pipeline.arrived;
    if (pipeline.spec.jobs) {
      const Task& task = pipeline.tasks.front();
      const Demand demand = demand_of(run, pipeline, task);
      if (!task.cluster->could_ever_take(demand)) {
        if (counted) ++pipeline.dropped;
        free_runs_.push_back(&run);
        continue;
      }
      if (counted)
        pipeline.offered_unit_seconds +=
            seconds(demand.waiting.estimate) * static_cast<double>(task.cluster->units_of(demand));
    }
    begin(run);
  }
}

void Platform::start_retraining(DeployedModel& model, std::uint32_t pipeline, Made& made,
                                des::Event& ended) {
  // Draws of a model's n-th retraining, whatever the policy that asked for it.
  const std::uint64_t draw = kTriggeredRuns | (std::uint64_t{model.family} << 52) |
                             (std::uint64_t{model.index} << 24) | model.runs_started;
  PipelineRun& run = new_run(pipeline, draw);
  run.model = &model;
  run.made = &made;
  run.ended = &ended;
  run.metrics = model.metrics;
  if (env_.now() >= experiment_.warmup) ++pipelines_[pipeline]->arrived;
  begin(run);
}

std::pair<double, double> Platform::expected_run(std::uint32_t pipeline) const {
  const Pipeline& of = *pipelines_[pipeline];
  constexpr int kSamples = 256;
  double total = 0, unit_seconds = 0;
  PipelineRun run;
  run.pipeline = pipeline;
  for (int i = 0; i < kSamples; ++i) {
    const double u = (i + 0.5) / kSamples;
    run.asset_bytes = of.spec.asset_bytes.draw(u);
    std::vector<double> end(of.tasks.size(), 0);
    double longest = 0;
    for (std::size_t t = 0; t < of.tasks.size(); ++t) {
      const Task& task = of.tasks[t];
      const auto number = static_cast<std::uint64_t>(u * 0x1.0p53) << 11;
      const double duration = task.spec->probability * duration_of(run, task, {number, number});
      double begin = t > 0 && of.spec.chain ? end[t - 1] : 0;
      for (const std::uint32_t parent : task.spec->after)
        begin = std::max(begin, end[parent]);
      end[t] = begin + duration;
      longest = std::max(longest, end[t]);
      const double units = static_cast<double>(task.cluster->units_of(demand_of(run, of, task)));
      unit_seconds += duration * units * task.unit_weight;
    }
    total += longest;
  }
  return {total / kSamples, unit_seconds / kSamples / 3600};
}

double Platform::duration_of(const PipelineRun& run, const Task& task,
                             const RandomBlocks::Block& block) const {
  const TaskSpec& spec = *task.spec;
  if (run.job != nullptr && run.job->duration >= Nanos{0}) {
    const double duration = seconds(run.job->duration);
    const double cap = pipelines_[run.pipeline]->spec.duration_cap_s;
    return cap > 0 ? std::min(duration, cap) : duration;
  }
  return drawn_duration_s(spec, run.asset_bytes, block);
}

double Platform::bytes_to_read(const PipelineRun& run, const Task& task) {
  if (task.store == nullptr) return 0;
  return task.spec->read_bytes < 0 ? run.asset_bytes : task.spec->read_bytes;
}

Demand Platform::demand_of(const PipelineRun& run, const Pipeline& pipeline,
                           const Task& task) const {
  const TaskSpec& spec = *task.spec;
  Demand demand;
  demand.pods = spec.pods;
  demand.pod = spec.pod;
  demand.waiting.units = spec.slots;
  demand.waiting.priority = spec.priority;
  demand.waiting.group = task.group;
  if (run.model != nullptr) {
    demand.waiting.potential = run.model->loss(seconds(env_.now()));
    demand.waiting.trained = bounded_nanos(run.model->trained_s);
  }
  if (run.job == nullptr) return demand;
  const Job& job = *run.job;
  if (job.group < pipeline.job_groups.size()) demand.waiting.group = pipeline.job_groups[job.group];
  demand.waiting.estimate = bounded_nanos(duration_of(run, task, {}));
  const std::int64_t wanted = std::max(job.gpus, 1);
  demand.waiting.units = wanted;
  if (task.cluster->spec().slots > 0) {
    if (pipeline.spec.oversized_jobs_clamped)
      demand.waiting.units = std::min(wanted, task.cluster->capacity());
    return demand;
  }
  std::tie(demand.pod, demand.pods) = pods_of(job, pipeline.gpus_per_pod);
  return demand;
}

void Platform::apply_effects(PipelineRun& run, const Task& task, const RandomBlocks::Block& block) {
  const TaskSpec& spec = *task.spec;
  const double u2 = RandomBlocks::uniform(block[2]), u3 = RandomBlocks::uniform(block[3]);
  ModelMetrics& metrics = run.metrics;
  switch (spec.kind) {
    case TaskKind::kTrain: {
      const auto more = task.blocks.at(~run.random_index);
      metrics.performance = spec.performance.draw(u2);
      metrics.robustness = spec.robustness.draw(u3);
      metrics.fairness = spec.fairness.draw(RandomBlocks::uniform(more[0]));
      metrics.size_bytes = spec.size_bytes.draw(RandomBlocks::uniform(more[1]));
      metrics.inference_s = spec.inference_s.draw(RandomBlocks::uniform(more[2]));
      break;
    }
    case TaskKind::kEvaluate:
      run.measured = metrics.performance + spec.measurement_noise * stats::normal_quantile(u2);
      run.evaluated = true;
      if (run.measured < spec.gate) {
        run.stopped = true;
        run.end = TaskEnd::kRefused;
      }
      break;
    case TaskKind::kCompress: {
      if (spec.compression.empty()) break;
      const double pruned = spec.pruned.draw(u2);
      metrics.performance += interpolate(spec.compression, pruned, &CompressionRow::performance);
      metrics.size_bytes *= interpolate(spec.compression, pruned, &CompressionRow::size);
      metrics.inference_s *= interpolate(spec.compression, pruned, &CompressionRow::inference);
      break;
    }
    case TaskKind::kHarden:
      metrics.robustness = std::min(1.0, metrics.robustness + spec.harden_robustness);
      metrics.performance += spec.harden_performance;
      break;
    case TaskKind::kDeploy:
      run.deployed = true;
      break;
    default:
      break;
  }
  metrics.performance = std::max(metrics.performance, 0.0);
}

void Platform::note(const PipelineRun& run, std::uint32_t task, const TaskRecord& record,
                    Task& statistics) {
  if (record.queued >= experiment_.warmup) {
    statistics.wait.add(seconds(record.started - record.queued));
    statistics.execution.add(seconds(record.ended - record.started));
    statistics.restarts += record.restarts;
    if (record.end == TaskEnd::kFailed) ++statistics.failed;
  }
  if (records_ == nullptr) return;
  TaskRecord full = record;
  full.run = run.number;
  full.pipeline = static_cast<std::uint16_t>(run.pipeline);
  full.task = static_cast<std::uint16_t>(task);
  records_->add(full);
}

bool Platform::skips(const PipelineRun& run, const Task& task, const RandomBlocks::Block& block) {
  return run.stopped || !is_drawn(*task.spec, block);
}

/// Books what a task had done when its place was taken away. False if it may not try again.
bool Platform::take_setback(PipelineRun& run, const Claim& claim, const ClusterSpec& cluster,
                            double done_s, Attempts& attempts) {
  TaskRecord& record = attempts.record;
  if (record.restarts < UINT16_MAX) ++record.restarts;
  const Nanos kept =
      cluster.lost_work == LostWork::kNone ? bounded_nanos(done_s)
      : cluster.lost_work == LostWork::kSinceCheckpoint
          ? bounded_nanos(std::floor(done_s / cluster.checkpoint_s) * cluster.checkpoint_s)
          : Nanos{0};
  attempts.left -= std::min(attempts.left, kept);
  if (!claim.node_failed() || ++attempts.failures <= cluster.retries_max) return true;
  record.end = run.end = TaskEnd::kFailed;
  run.stopped = true;
  return false;
}

/// The task that this one's process goes on with, or UINT32_MAX; starts processes for the others
/// that are ready now.
std::uint32_t Platform::follow(PipelineRun& run, std::uint32_t index) {
  const Pipeline& pipeline = *pipelines_[run.pipeline];
  if (pipeline.spec.chain) return index + 1;
  std::uint32_t next = UINT32_MAX;
  std::vector<std::uint32_t> others;
  for (const std::uint32_t child : pipeline.tasks[index].children) {
    if (--run.parents_left[child] > 0) continue;
    if (next == UINT32_MAX)
      next = child;
    else
      others.push_back(child);
  }
  for (const std::uint32_t other : others)
    env_.start(work(env_, run, other));
  return next;
}

/// Executes a task, then what it makes ready: the first follower itself, the others as processes of
/// their own.
des::Process Platform::work(des::Environment& env, PipelineRun& run, std::uint32_t index) {
  Pipeline& pipeline = *pipelines_[run.pipeline];
  while (index != UINT32_MAX) {
    Task& task = pipeline.tasks[index];
    const RandomBlocks::Block block =
        task.draws ? task.blocks.at(run.random_index) : RandomBlocks::Block{};
    if (!skips(run, task, block)) {
      Storage* const store = task.store;
      if (const double bytes = bytes_to_read(run, task); bytes > 0) {
        des::Held stream;
        if (store->spec.streams > 0) stream = co_await store->streams.request();
        store->bytes_read += bytes;
        co_await env.timeout(bounded_nanos(bytes / store->spec.read_bytes_per_s));
      }
      Attempts attempts;
      attempts.left = bounded_nanos(duration_of(run, task, block));
      TaskRecord& record = attempts.record;
      record.queued = env.now();
      Demand demand = demand_of(run, pipeline, task);
      for (bool again = true; again;) {
        demand.waiting.estimate = attempts.left;
        Claim claim(*task.cluster, demand);
        co_await claim;
        record.started = env.now();
        record.units = static_cast<std::uint32_t>(task.cluster->units_of(demand));
        const double speed = claim.speed();
        const Nanos span =
            speed == 1 ? attempts.left : bounded_nanos(seconds(attempts.left) / speed);
        claim.expect_end(env.now() + span);
        if (claim.held()) co_await env.timeout(span);  // else taken away before it could begin
        const Nanos ran = env.now() - record.started;
        run.unit_seconds += seconds(ran) * record.units * task.unit_weight;
        again = !claim.held() &&
                take_setback(run, claim, task.cluster->spec(), seconds(ran) * speed, attempts);
        claim.release();
      }
      record.ended = env.now();
      if (const double bytes = task.spec->write_bytes; bytes > 0 && record.end == TaskEnd::kDone) {
        des::Held stream;
        if (store->spec.streams > 0) stream = co_await store->streams.request();
        store->bytes_written += bytes;
        co_await env.timeout(bounded_nanos(bytes / store->spec.write_bytes_per_s));
      }
      if (record.end == TaskEnd::kDone && task.spec->kind != TaskKind::kCustom)
        apply_effects(run, task, block);
      if (run.end == TaskEnd::kRefused && task.spec->kind == TaskKind::kEvaluate)
        record.end = TaskEnd::kRefused;
      note(run, index, record, task);
    }
    if (--run.tasks_left == 0) {
      finish(run);
      co_return;
    }
    index = follow(run, index);
  }
}

void Platform::finish(PipelineRun& run) {
  Pipeline& pipeline = *pipelines_[run.pipeline];
  in_system_.change(env_.now(), -1);
  --runs_in_system_;
  sojourns_ += (env_.now() - run.arrived).count();
  arrivals_sum_ -= run.arrived.count();
  if (run.arrived >= experiment_.warmup) {
    (run.end == TaskEnd::kFailed    ? pipeline.failed
     : run.end == TaskEnd::kRefused ? pipeline.refused
                                    : pipeline.finished)++;
    if (run.end == TaskEnd::kDone) pipeline.sojourn.add(seconds(env_.now() - run.arrived));
  }
  if (run.made != nullptr) {
    const bool has_deploy =
        std::any_of(pipeline.tasks.begin(), pipeline.tasks.end(),
                    [](const Task& task) { return task.spec->kind == TaskKind::kDeploy; });
    *run.made = {run.metrics, run.measured, run.evaluated,
                 run.end == TaskEnd::kDone && (run.deployed || !has_deploy),
                 run.unit_seconds / 3600};
  }
  des::Event* const ended = run.ended;
  free_runs_.push_back(&run);
  if (ended != nullptr) ended->trigger();
}

Result<void> Platform::run(RunControl& control) {
  for (std::uint32_t i = 0; i < pipelines_.size(); ++i)
    if (pipelines_[i]->arrivals != nullptr) env_.start(arrive(env_, i));
  for (const auto& cluster : clusters_)
    cluster->start_failures();
  fleet_->start();
  const Nanos step = std::max(Nanos{1}, experiment_.horizon / kProgressSteps);
  std::uint64_t events = 0;
  for (int i = 1;; ++i) {
    const bool past = i > kProgressSteps;
    if (past && (!experiment_.drain || runs_in_system_ == 0 || i > kStepsMax)) break;
    env_.run_until(i == kProgressSteps ? experiment_.horizon : i * step);
    control.events += env_.event_count() - events;
    events = env_.event_count();
    if (!past) control.permille += 1000 / kProgressSteps;
    if (!breaches_.first().empty()) break;
    if (control.stop) return Error{Code::kTimeout, "simulate: stopped"};
  }
  return check_invariants();
}

Result<void> Platform::check_invariants() {
  const Nanos now = env_.now();
  std::uint64_t active = 0;
  for (const auto& cluster : clusters_)
    active += cluster->waiting_count() + cluster->running_count();
  if (breaches_.first().empty() && runs_in_system_ != in_system_.level())
    breaches_.add("pipelines", fmt::format("{} runs are counted, {} are in the system",
                                           runs_in_system_, in_system_.level()));
  const std::size_t used = all_runs_.size() - free_runs_.size();
  if (breaches_.first().empty() && used != static_cast<std::size_t>(in_system_.level()))
    breaches_.add("pipelines",
                  fmt::format("{} runs are alive, {} are in the system", used, in_system_.level()));
  // Little's law, exactly: time in system of those that left and of those still there.
  const des::Wide there = static_cast<des::Wide>(in_system_.level()) * now.count() - arrivals_sum_;
  if (breaches_.first().empty() && in_system_.at(now) != sojourns_ + there)
    breaches_.add(
        "pipelines",
        "Little's law: the integral of runs in the system is not the sum of their sojourns");
  if (breaches_.first().empty() && in_system_.level() == 0 && active != 0)
    breaches_.add("clusters", fmt::format("{} tasks of no run", active));
  for (const auto& cluster : clusters_)
    if (breaches_.first().empty() && cluster->running_count() == 0 && cluster->busy().now() != 0)
      breaches_.add("cluster " + cluster->spec().name,
                    fmt::format("{} units in use by nobody", cluster->busy().now()));
  if (breaches_.first().empty()) return {};
  return Error{Code::kInternal, "simulate: invariant broken " + breaches_.first(),
               "please report it with the experiment and its seed"};
}

void Platform::report_clusters(Replication& out) {
  const Nanos end = std::min(env_.now(), experiment_.horizon);
  for (const auto& cluster : clusters_) {
    const std::string& name = cluster->spec().name;
    const auto add = [&](const char* what, double value) {
      out.metrics.push_back({fmt::format("cluster.{}.{}", name, what), value});
    };
    const auto capacity = static_cast<double>(cluster->capacity());
    const double busy = cluster->busy().mean(env_.now());
    const double hours = seconds(end - experiment_.warmup) / 3600;
    const double scale = cluster->spec().counts_gpus() ? 1000 : 1;
    add("utilisation", capacity > 0 ? busy / capacity : 0);
    add("queue_mean", cluster->queued().mean(env_.now()));
    add("unit_hours", busy / scale * hours);
    if (cluster->spec().cost_per_unit_hour > 0)
      add("cost", capacity / scale * hours * cluster->spec().cost_per_unit_hour);
    if (cluster->spec().preemptive) add("preemptions", static_cast<double>(cluster->preemptions()));
    if (cluster->spec().mtbf_s > 0) {
      add("node_failures", static_cast<double>(cluster->node_failures()));
      add("down_share", capacity > 0 ? cluster->down().mean(env_.now()) / capacity : 0);
    }
    if (options_.series_points <= 0) continue;
    Series utilisation{fmt::format("cluster.{}.utilisation", name),
                       cluster->busy().series(env_.now())};
    for (double& value : utilisation.values)
      value = capacity > 0 ? value / capacity : 0;
    out.series.push_back(std::move(utilisation));
    out.series.push_back(
        {fmt::format("cluster.{}.queue", name), cluster->queued().series(env_.now())});
  }
}

void Platform::report_pipelines(Replication& out) {
  const double counted = seconds(std::min(env_.now(), experiment_.horizon) - experiment_.warmup);
  const auto spans = [&](const std::string& prefix, const char* what, const Spans& values) {
    out.metrics.push_back({fmt::format("{}.{}_mean_s", prefix, what), values.mean()});
    for (const auto& [label, share] :
         {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)})
      out.metrics.push_back(
          {fmt::format("{}.{}_{}_s", prefix, what, label), values.sketch.quantile(share)});
  };
  for (const auto& pipeline : pipelines_) {
    const std::string prefix = "pipeline." + pipeline->spec.name;
    const auto add = [&](const char* what, double value) {
      out.metrics.push_back({prefix + "." + what, value});
    };
    add("arrived", static_cast<double>(pipeline->arrived));
    add("finished", static_cast<double>(pipeline->finished));
    add("failed", static_cast<double>(pipeline->failed));
    add("refused", static_cast<double>(pipeline->refused));
    add("dropped", static_cast<double>(pipeline->dropped));
    // Still in the system at the end: waiting or running.
    add("unfinished",
        static_cast<double>(pipeline->arrived - pipeline->finished - pipeline->failed -
                            pipeline->refused - pipeline->dropped));
    if (pipeline->spec.jobs && counted > 0)
      add("offered_load", pipeline->offered_unit_seconds / counted /
                              static_cast<double>(std::max<std::int64_t>(
                                  pipeline->tasks.front().cluster->capacity(), 1)));
    spans(prefix, "sojourn", pipeline->sojourn);
    for (const Task& task : pipeline->tasks) {
      const std::string of = fmt::format("task.{}.{}", pipeline->spec.name, task.spec->name);
      out.metrics.push_back({of + ".count", static_cast<double>(task.wait.count)});
      spans(of, "wait", task.wait);
      out.metrics.push_back({of + ".execution_mean_s", task.execution.mean()});
      out.metrics.push_back({of + ".restarts", static_cast<double>(task.restarts)});
      out.metrics.push_back({of + ".failed", static_cast<double>(task.failed)});
    }
  }
}

Replication Platform::report() {
  Replication out;
  out.index = index_;
  out.records = records_;
  out.events = env_.event_count();
  if (options_.series_points > 0)
    out.series_step_s = seconds(experiment_.horizon) / options_.series_points;
  report_clusters(out);
  report_pipelines(out);
  for (const auto& store : stores_) {
    out.metrics.push_back({"store." + store->spec.name + ".bytes_read", store->bytes_read});
    out.metrics.push_back({"store." + store->spec.name + ".bytes_written", store->bytes_written});
  }
  fleet_->report(env_.now(), options_.series_points, out.metrics, out.series);
  return out;
}

}  // namespace kansoku::simulate
