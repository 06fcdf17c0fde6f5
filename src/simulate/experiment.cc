// SPDX-License-Identifier: Apache-2.0
#include "simulate/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "simulate/internal/config.h"
#include "simulate/internal/seconds.h"
#include "simulate/placement/policy.h"
#include "simulate/schedule/policy.h"

namespace kansoku::simulate {
namespace {

using Names = std::vector<std::string>;

constexpr std::array<std::string_view, 3> kLostWork{"all", "none", "since_checkpoint"};
constexpr std::array<std::string_view, 7> kTaskKinds{"custom",   "preprocess", "train", "evaluate",
                                                     "compress", "harden",     "deploy"};
constexpr std::array<std::string_view, 5> kDrifts{"none", "gradual", "sudden", "recurring",
                                                  "replayed"};
constexpr std::array<std::string_view, 7> kTriggers{
    "never", "periodic", "threshold", "cumulative", "cost_aware", "staleness", "oracle"};
constexpr std::array<std::string_view, 7> kArrivals{"constant", "poisson", "hourly", "renewal",
                                                    "trace",    "model",   "fit"};
constexpr std::int64_t kCountMax = 10'000'000;
constexpr std::size_t kNodesMax = 1'000'000, kTasksMax = 10'000;

/// Reads the tables of one experiment; mistakes go to `mistakes`.
class Reader {
 public:
  Reader(Mistakes& mistakes, Loader& loader) : mistakes_(mistakes), loader_(loader) {}
  [[nodiscard]] Experiment read(Config root);

 private:
  [[nodiscard]] ClusterSpec cluster(const std::string& name, Config config);
  void nodes(ClusterSpec& cluster, Config& config);
  [[nodiscard]] StoreSpec store(const std::string& name, Config config);
  [[nodiscard]] PipelineSpec pipeline(const std::string& name, Config config);
  void job_pipeline(PipelineSpec& pipeline, Config& config);
  [[nodiscard]] TaskSpec task(Config& config, std::size_t index);
  void demand(TaskSpec& task, Config& config);
  void effects(TaskSpec& task, Config& config);
  void names_differ(const PipelineSpec& pipeline, const Names& paths);
  void order(PipelineSpec& pipeline, const std::vector<Names>& after, const Names& paths);
  [[nodiscard]] std::optional<ArrivalModel> arrivals(Config config);
  [[nodiscard]] std::optional<ArrivalModel> recorded(Config& config, std::string_view kind);
  [[nodiscard]] ModelsSpec models(const std::string& name, Config config);
  [[nodiscard]] DriftSpec drift(Config config);
  void trigger(ModelsSpec& models, Config& config);
  /// The index of the name among `names`; a mistake otherwise.
  [[nodiscard]] std::uint32_t index_of(Config& config, std::string_view key, const Names& names,
                                       std::string_view what);

  Mistakes& mistakes_;
  Loader& loader_;
  Experiment out_;
  Names cluster_names_, store_names_, pipeline_names_;
};

std::uint32_t Reader::index_of(Config& config, std::string_view key, const Names& names,
                               std::string_view what) {
  const std::string name = config.required_text(key);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::uint32_t>(found - names.begin());
  if (!name.empty())
    config.wrong(key, fmt::format("there is no {} \"{}\"; there are: {}", what, name,
                                  fmt::join(names, ", ")));
  return 0;
}

void Reader::nodes(ClusterSpec& cluster, Config& config) {
  const auto add = [&](NodeSpec node, double speed) {
    const auto& models = cluster.gpu_models;
    if (std::find(models.begin(), models.end(), node.gpu_model) == models.end())
      cluster.gpu_models.push_back(node.gpu_model);
    if (node.gpus > placement::kGpusPerNodeMax)
      config.wrong("nodes", fmt::format("at most {} GPUs a node", placement::kGpusPerNodeMax));
    node.gpus = std::min(node.gpus, std::int32_t{placement::kGpusPerNodeMax});
    cluster.nodes.push_back(std::move(node));
    cluster.speeds.push_back(speed);
  };
  if (const std::string file = config.text("nodes_file", ""); !file.empty()) {
    auto read = loader_.nodes(file);
    if (!read) config.wrong("nodes_file", read.error().what);
    for (NodeSpec& node : std::move(read).value_or(std::vector<NodeSpec>{}))
      add(std::move(node), 1);
  }
  for (Config& group : config.tables("nodes")) {
    NodeSpec node;
    const std::string prefix = group.text("name", cluster.name);
    const std::int64_t count = group.integer("count", 1, 1, kCountMax);
    node.gpus = static_cast<std::int32_t>(group.integer("gpus", 0, 0, placement::kGpusPerNodeMax));
    node.gpu_model = group.text("gpu_model", "");
    node.cpu_milli = std::llround(group.number("cpus", 0, Config::kNotNegative) * 1000);
    node.memory_mib = std::llround(group.bytes("memory", 0) / 1048576);
    const double speed = group.number("speed", 1, {1e-3, 1e3});
    group.finish();
    if (cluster.nodes.size() + static_cast<std::size_t>(count) > kNodesMax) {
      config.wrong("nodes", fmt::format("more than {} nodes", kNodesMax));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      node.name = fmt::format("{}-{:05}", prefix, cluster.nodes.size());
      add(node, speed);
    }
  }
  if (cluster.gpu_models.size() > 63) config.wrong("nodes", "more than 63 GPU models");
}

ClusterSpec Reader::cluster(const std::string& name, Config config) {
  ClusterSpec cluster;
  cluster.name = name;
  cluster.slots = config.integer("slots", 0, 1, INT32_MAX);
  nodes(cluster, config);
  if ((cluster.slots > 0) == !cluster.nodes.empty())
    config.wrong("slots", "a cluster has either slots or nodes");
  cluster.scheduler = config.text("scheduler", "fifo");
  if (const auto made = schedule::make_policy(cluster.scheduler); !made)
    config.wrong("scheduler", made.error().what + "; " + made.error().hint);
  cluster.placement = config.text("placement", "first_fit");
  if (const auto made = placement::make_policy(cluster.placement, {}); !made)
    config.wrong("placement", made.error().what + "; " + made.error().hint);
  cluster.preemptive = config.flag("preemptive", false);
  cluster.lost_work = static_cast<LostWork>(config.choice("lost_work", kLostWork, 0));
  cluster.checkpoint_s = config.duration_s("checkpoint", 0);
  if (cluster.lost_work == LostWork::kSinceCheckpoint && cluster.checkpoint_s <= 0)
    config.wrong("checkpoint",
                 "lost_work = \"since_checkpoint\" needs the time between checkpoints");
  cluster.mtbf_s = config.duration_s("mtbf", 0);
  cluster.mttr_s = config.duration_s("mttr", 0);
  if (cluster.mtbf_s > 0 && cluster.slots > 0)
    config.wrong("mtbf", "slots do not fail; give the cluster nodes");
  if (cluster.mtbf_s > 0 && cluster.mtbf_s < 1) config.wrong("mtbf", "must be at least 1 s");
  cluster.retries_max = static_cast<int>(config.integer("retries_max", 3, 0, 1'000'000));
  cluster.cost_per_unit_hour = config.number("cost_per_unit_hour", 0, Config::kNotNegative);
  Config quotas = config.table("quotas");
  for (const std::string& group : quotas.json().keys())
    cluster.quotas[group] = quotas.integer(group, 0, 0, INT64_MAX / 2);
  config.finish();
  return cluster;
}

StoreSpec Reader::store(const std::string& name, Config config) {
  StoreSpec store;
  store.name = name;
  store.read_bytes_per_s = config.bytes("read_bandwidth", 0);
  store.write_bytes_per_s = config.bytes("write_bandwidth", store.read_bytes_per_s);
  if (store.read_bytes_per_s < 1)
    config.wrong("read_bandwidth", "must be bytes per second, at least 1");
  if (store.write_bytes_per_s < 1)
    config.wrong("write_bandwidth", "must be bytes per second, at least 1");
  store.streams = config.integer("streams", 0, 0, INT32_MAX);
  config.finish();
  return store;
}

std::optional<ArrivalModel> Reader::recorded(Config& config, std::string_view kind) {
  const std::string file = config.required_text("file");
  if (file.empty()) return std::nullopt;
  if (kind == "model") {
    const auto json = loader_.json(file);
    if (!json) {
      config.wrong("file", json.error().what);
      return std::nullopt;
    }
    auto model = ArrivalModel::from_json(json->contains("arrivals") ? json->at("arrivals") : *json);
    if (!model) config.wrong("file", model.error().what);
    return model ? std::optional(std::move(model).value()) : std::nullopt;
  }
  auto workload = loader_.workload(file);
  if (!workload) {
    config.wrong("file", workload.error().what);
    return std::nullopt;
  }
  // A part of the trace: from a date or an offset, so long.
  Nanos from{0};
  if (config.has("from") && config.raw("from").is_string()) {
    const auto at = offset_of(*workload, config.text("from", ""));
    if (!at) config.wrong("from", at.error().what);
    from = at.value_or(from);
  } else {
    from = nanos(config.duration_s("from", 0));
  }
  const Nanos span = nanos(config.duration_s("span", 100 * 365 * 86400.0));
  const auto& jobs = workload->jobs;
  const auto before = [](const Job& job, Nanos at) { return job.submit < at; };
  const auto first = std::lower_bound(jobs.begin(), jobs.end(), from, before);
  const auto last = std::lower_bound(first, jobs.end(), from + span, before);
  ArrivalModel::Kind fitted = ArrivalModel::Kind::kReplay;
  ArrivalFitOptions options;
  if (kind == "fit") {
    const std::string name = config.text("fit", "sessions");
    const auto known = kind_from_name(name);
    if (!known) config.wrong("fit", "\"" + name + "\" is not a kind of arrivals");
    fitted = known.value_or(fitted);
    options.session_gap_s = config.duration_s("session_gap", options.session_gap_s);
  }
  auto model = fit_arrivals(fitted, *workload, static_cast<std::size_t>(first - jobs.begin()),
                            static_cast<std::size_t>(last - jobs.begin()), options);
  if (!model) config.wrong("file", model.error().what);
  return model ? std::optional(std::move(model).value()) : std::nullopt;
}

std::optional<ArrivalModel> Reader::arrivals(Config config) {
  const std::string_view kind = kArrivals[config.choice("kind", kArrivals, 3)];
  std::optional<ArrivalModel> model = ArrivalModel{};
  if (kind == "constant") {
    model->kind = ArrivalModel::Kind::kConstant;
    model->gap = stats::Distribution::constant(config.required_duration_s("every"));
    if (model->gap.mean() <= 0) config.wrong("every", "must be above 0");
  } else if (kind == "poisson") {
    const double rate = config.required_number("per_hour", {1e-9, 1e12});
    model->gap = stats::Distribution::exponential(3600 / rate);
  } else if (kind == "hourly") {
    model->kind = ArrivalModel::Kind::kHourOfWeekPoisson;
    const std::vector<double> rates = config.numbers("per_hour");
    if (rates.size() != 24 && rates.size() != std::size_t{kHoursOfWeek})
      config.wrong("per_hour", "must be 24 rates (of a day) or 168 (of a week, from Monday 0:00)");
    double sum = 0;
    for (std::size_t hour = 0; hour < std::size_t{kHoursOfWeek}; ++hour) {
      model->rates.push_back(rates.empty() ? 1 : rates[hour % rates.size()]);
      sum += model->rates.back();
      if (!(model->rates.back() >= 0 && model->rates.back() < 1e9))
        config.wrong("per_hour", "has a rate that is negative or above 1e9");
    }
    if (sum <= 0) config.wrong("per_hour", "has no rate above 0");
  } else if (kind == "renewal") {
    if (!config.has("interarrival")) config.wrong("interarrival", "is missing");
    model->gap = config.distribution("interarrival", 60);
    if (!std::isfinite(model->gap.mean()) || model->gap.mean() <= 0)
      config.wrong("interarrival", "needs a finite mean above 0; give it a cap");
  } else {
    model = recorded(config, kind);
  }
  const double intensity = config.number("intensity", 1, {1e-6, 1e6});
  if (model) model->intensity *= intensity;
  config.finish();
  return model;
}

void Reader::demand(TaskSpec& task, Config& config) {
  task.slots = config.integer("slots", 1, 1, INT32_MAX);
  task.pods = static_cast<std::int32_t>(config.integer("pods", 1, 1, 100'000));
  const double gpus = config.number("gpus", 0, {0, placement::kGpusPerNodeMax});
  if (gpus > 0 && gpus < 1) {
    task.pod.gpus = 1;
    task.pod.gpu_milli = static_cast<std::int32_t>(std::lround(gpus * 1000));
  } else {
    task.pod.gpus = static_cast<std::int32_t>(gpus);
    task.pod.gpu_milli = gpus > 0 ? placement::kWholeGpu : 0;
    if (task.pod.gpus != gpus) config.wrong("gpus", "above 1 only whole GPUs");
  }
  task.pod.cpu_milli = std::llround(config.number("cpus", 0, Config::kNotNegative) * 1000);
  task.pod.memory_mib = std::llround(config.bytes("memory", 0) / 1048576);
  if (task.cluster >= out_.clusters.size()) return;
  const ClusterSpec& cluster = out_.clusters[task.cluster];
  for (const std::string& model : config.texts("gpu_models")) {
    const auto found = std::find(cluster.gpu_models.begin(), cluster.gpu_models.end(), model);
    if (found == cluster.gpu_models.end())
      config.wrong("gpu_models", fmt::format("cluster {} has no \"{}\"", cluster.name, model));
    else
      task.pod.gpu_types |= std::uint64_t{1} << (found - cluster.gpu_models.begin());
  }
  const placement::Request& pod = task.pod;
  const auto takes = [&](const NodeSpec& node) {
    const auto model =
        std::find(cluster.gpu_models.begin(), cluster.gpu_models.end(), node.gpu_model);
    const bool allowed =
        pod.gpu_types == 0 || ((pod.gpu_types >> (model - cluster.gpu_models.begin())) & 1U) != 0;
    return allowed && node.gpus >= pod.gpus && node.cpu_milli >= pod.cpu_milli &&
           node.memory_mib >= pod.memory_mib;
  };
  if (cluster.slots == 0 && !cluster.nodes.empty() &&
      std::none_of(cluster.nodes.begin(), cluster.nodes.end(), takes))
    config.wrong("gpus", fmt::format("no node of {} has the gpus, cpus and memory of one pod",
                                     cluster.name));
  if (cluster.slots > 0 && task.slots > cluster.slots)
    config.wrong("slots", fmt::format("cluster {} has {}", cluster.name, cluster.slots));
  if (cluster.slots == 0 && cluster.counts_gpus() && task.pod.gpus == 0 && task.pod.cpu_milli == 0)
    config.wrong("gpus",
                 fmt::format("a task on the nodes of {} asks for gpus or cpus", cluster.name));
}

void Reader::effects(TaskSpec& task, Config& config) {
  switch (task.kind) {
    case TaskKind::kTrain:
      task.performance = config.distribution("performance", 0);
      task.robustness = config.distribution("robustness", 0);
      task.fairness = config.distribution("fairness", 0);
      task.size_bytes = config.byte_distribution("size_bytes");
      task.inference_s = config.distribution("inference", 0);
      break;
    case TaskKind::kEvaluate:
      task.measurement_noise = config.number("noise", 0, Config::kShare);
      task.gate = config.number("gate", 0, Config::kShare);
      break;
    case TaskKind::kCompress: {
      task.pruned = config.distribution("pruned", 0);
      const Json rows = config.raw("table");
      double before = -1;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Json row = rows.at(i);
        CompressionRow read{row.at(std::size_t{0}).as_double(-1), row.at(1).as_double(),
                            row.at(2).as_double(-1), row.at(3).as_double(-1)};
        if (row.size() != 4 || read.pruned <= before || read.size < 0 || read.inference < 0)
          config.wrong("table",
                       "rows are [pruned share, performance added, size factor, "
                       "inference factor], by rising share");
        before = read.pruned;
        task.compression.push_back(read);
      }
      break;
    }
    case TaskKind::kHarden:
      task.harden_robustness = config.number("robustness", 0, {-1, 1});
      task.harden_performance = config.number("performance", 0, {-1, 1});
      break;
    default:
      break;
  }
}

TaskSpec Reader::task(Config& config, std::size_t index) {
  TaskSpec task;
  task.kind = static_cast<TaskKind>(config.choice("kind", kTaskKinds, 0));
  task.name =
      config.text("name", task.kind == TaskKind::kCustom
                              ? fmt::format("task{}", index)
                              : std::string(kTaskKinds[static_cast<std::size_t>(task.kind)]));
  task.cluster = index_of(config, "cluster", cluster_names_, "cluster");
  demand(task, config);
  task.probability = config.number("probability", 1, Config::kShare);
  task.priority = config.integer("priority", 0, -1'000'000, 1'000'000);
  if (config.has("curve")) {
    Config curve = config.table("curve");
    task.has_curve = true;
    task.curve_a = curve.required_number("a", Config::kNotNegative);
    task.curve_b = curve.required_number("b", {1e-9, 1e3});
    task.curve_c = curve.number("c", 0, Config::kNotNegative);
    task.duration = curve.distribution("noise", 0);
    curve.finish();
    if (config.has("duration")) config.wrong("duration", "either a duration or a curve");
  } else {
    if (!config.has("duration")) config.wrong("duration", "is missing (or a curve)");
    task.duration = config.distribution("duration", 0);
  }
  if (!std::isfinite(task.duration.mean()))
    config.wrong("duration", "has no finite mean: one draw would decide the load; give it a cap");
  if (config.has("store"))
    task.store = static_cast<std::int32_t>(index_of(config, "store", store_names_, "store"));
  if (config.has("reads") && config.raw("reads").is_string() && config.text("reads", "") == "asset")
    task.read_bytes = -1;
  else
    task.read_bytes = config.bytes("reads", 0);
  task.write_bytes = config.bytes("writes", 0);
  if (task.store < 0 && (task.read_bytes != 0 || task.write_bytes != 0))
    config.wrong("store", "is missing: the task reads or writes");
  effects(task, config);
  return task;
}

/// Draws and figures go by the tasks' names.
void Reader::names_differ(const PipelineSpec& pipeline, const Names& paths) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < pipeline.tasks.size(); ++i)
    if (!seen.insert(pipeline.tasks[i].name).second)
      mistakes_.add(paths[i] + ".name", "there are two tasks \"" + pipeline.tasks[i].name + "\"");
}

/// Sets `after` as indices and puts the tasks in an order that respects them.
void Reader::order(PipelineSpec& pipeline, const std::vector<Names>& after, const Names& paths) {
  const std::size_t count = pipeline.tasks.size();
  names_differ(pipeline, paths);
  std::map<std::string, std::uint32_t> by_name;
  for (std::uint32_t i = 0; i < count; ++i)
    by_name.emplace(pipeline.tasks[i].name, i);
  std::vector<std::vector<std::uint32_t>> parents(count);
  for (std::uint32_t i = 0; i < count; ++i)
    for (const std::string& name : after[i]) {
      const auto found = by_name.find(name);
      if (found == by_name.end())
        mistakes_.add(paths[i] + ".after", "there is no task \"" + name + "\" in this pipeline");
      else
        parents[i].push_back(found->second);
    }
  // Repeatedly the first task whose parents are all placed.
  std::vector<std::uint32_t> placed_at(count, UINT32_MAX), sequence;
  for (bool progress = true; progress;) {
    progress = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool ready = placed_at[i] == UINT32_MAX &&
                         std::all_of(parents[i].begin(), parents[i].end(),
                                     [&](std::uint32_t p) { return placed_at[p] != UINT32_MAX; });
      if (!ready) continue;
      placed_at[i] = static_cast<std::uint32_t>(sequence.size());
      sequence.push_back(i);
      progress = true;
    }
  }
  if (sequence.size() != count) {
    for (std::uint32_t i = 0; i < count; ++i)
      if (placed_at[i] == UINT32_MAX)
        mistakes_.add(paths[i] + ".after",
                      "the task waits for itself, through the tasks before it");
    return;
  }
  std::vector<TaskSpec> tasks;
  for (const std::uint32_t i : sequence) {
    TaskSpec task = pipeline.tasks[i];
    for (const std::uint32_t parent : parents[i])
      task.after.push_back(placed_at[parent]);
    tasks.push_back(std::move(task));
  }
  pipeline.tasks = std::move(tasks);
}

void Reader::job_pipeline(PipelineSpec& pipeline, Config& config) {
  TaskSpec task;
  task.name = "job";
  task.cluster = index_of(config, "cluster", cluster_names_, "cluster");
  task.priority = config.integer("priority", 0, -1'000'000, 1'000'000);
  task.duration = config.distribution("duration", 0);
  pipeline.duration_cap_s = config.duration_s("duration_cap", 0);
  pipeline.oversized_jobs_clamped = config.flag("clamp_oversized", false);
  pipeline.gpus_per_pod_max =
      static_cast<std::int32_t>(config.integer("gpus_per_pod", 0, 0, placement::kGpusPerNodeMax));
  pipeline.tasks.push_back(std::move(task));
  if (!pipeline.arrivals)
    config.wrong("arrivals", "a pipeline of jobs needs arrivals that bring jobs");
  else if (pipeline.arrivals->jobs.empty() && !config.has("duration"))
    config.wrong("duration", "is missing: these arrivals bring no jobs");
}

PipelineSpec Reader::pipeline(const std::string& name, Config config) {
  PipelineSpec pipeline;
  pipeline.name = name;
  pipeline.group = config.text("group", "");
  pipeline.jobs = config.flag("jobs", false);
  pipeline.asset_bytes = config.byte_distribution("asset_bytes");
  if (config.has("arrivals")) pipeline.arrivals = arrivals(config.table("arrivals"));
  if (pipeline.jobs) {
    job_pipeline(pipeline, config);
    config.finish();
    return pipeline;
  }
  std::vector<Names> after;
  Names paths;
  for (Config& table : config.tables("tasks")) {
    pipeline.tasks.push_back(task(table, pipeline.tasks.size()));
    if (table.has("after")) pipeline.chain = false;
    after.push_back(table.texts("after"));
    paths.push_back(table.path("")), paths.back().pop_back();
    table.finish();
  }
  if (pipeline.tasks.empty()) config.wrong("tasks", "a pipeline has at least one task");
  if (pipeline.tasks.size() > kTasksMax)
    config.wrong("tasks", fmt::format("more than {} tasks", kTasksMax));
  if (pipeline.chain)
    names_differ(pipeline, paths);
  else
    order(pipeline, after, paths);
  config.finish();
  return pipeline;
}

DriftSpec Reader::drift(Config config) {
  DriftSpec drift;
  drift.kind = static_cast<DriftKind>(config.choice("kind", kDrifts, 0));
  switch (drift.kind) {
    case DriftKind::kGradual:
      drift.floor = config.required_number("floor", Config::kShare);
      drift.rate_per_s = config.required_number("rate_per_day", {1e-9, 1e6}) / 86400;
      drift.inflection_s = config.duration_s("inflection", 0);
      drift.shape = config.number("shape", 1, {1e-3, 1e3});
      drift.q = config.number("q", 1, {1e-9, 1e9});
      break;
    case DriftKind::kSudden:
      drift.jump_gap_s = config.required_duration_s("every");
      drift.jump = config.distribution("jump", 0.05);
      if (drift.jump_gap_s < 1) config.wrong("every", "must be at least 1 s");
      break;
    case DriftKind::kRecurring:
      drift.amplitude = config.required_number("amplitude", Config::kShare);
      drift.period_s = config.required_duration_s("period");
      if (drift.period_s < 1) config.wrong("period", "must be at least 1 s");
      break;
    case DriftKind::kReplayed: {
      const Json points = config.raw("points");
      for (std::size_t i = 0; i < points.size(); ++i) {
        const double age = points.at(i).at(std::size_t{0}).as_double(-1) * 86400;
        const double loss = points.at(i).at(1).as_double(NAN);
        if (age < 0 || !std::isfinite(loss) ||
            (!drift.points.empty() && age <= drift.points.back().first))
          config.wrong("points", "are [age in days, loss], by rising age");
        drift.points.emplace_back(age, loss);
      }
      if (drift.points.empty()) config.wrong("points", "are missing: [[age in days, loss], ...]");
      break;
    }
    default:
      break;
  }
  config.finish();
  return drift;
}

void Reader::trigger(ModelsSpec& models, Config& config) {
  models.trigger = static_cast<TriggerKind>(config.choice("trigger", kTriggers, 0));
  models.period_s = config.duration_s("period", 0);
  models.loss = config.number("loss", 0, Config::kShare);
  models.loss_hours = config.number("loss_hours", 0, Config::kNotNegative);
  models.cooldown_s = config.duration_s("cooldown", 0);
  models.monitor_interval_s = config.duration_s("monitor_interval", 0);
  models.promotion_margin = config.number("promotion_margin", -1, {-1, 1});
  models.rollback = config.flag("rollback", false);
  models.rollback_after_s = config.duration_s("rollback_after", 86400);
  models.value_per_loss_hour = config.number("value_per_loss_hour", 0, Config::kNotNegative);
  models.retrain_cost = config.number("retrain_cost", 0, Config::kNotNegative);
  using enum TriggerKind;
  const TriggerKind kind = models.trigger;
  if ((kind == kPeriodic || kind == kStaleness) && models.period_s < 1)
    config.wrong("period", "this trigger needs a period of at least 1 s");
  if (kind == kThreshold && models.loss <= 0)
    config.wrong("loss", "this trigger needs a loss above 0");
  if (kind == kCumulative && models.loss_hours <= 0)
    config.wrong("loss_hours", "this trigger needs loss hours above 0");
  if ((kind == kCostAware || kind == kOracle) && models.value_per_loss_hour <= 0)
    config.wrong("value_per_loss_hour", "this trigger needs the cost of an hour at loss 1");
}

ModelsSpec Reader::models(const std::string& name, Config config) {
  ModelsSpec models;
  models.name = name;
  models.count = static_cast<std::uint32_t>(config.integer("count", 1, 1, 1'000'000));
  models.pipeline = index_of(config, "pipeline", pipeline_names_, "pipeline");
  models.performance = config.distribution("performance", 1);
  models.age = config.distribution("age", 0);
  models.drift = drift(config.table("drift"));
  trigger(models, config);
  config.finish();
  return models;
}

Experiment Reader::read(Config root) {
  out_.name = root.text("name", "experiment");
  out_.seed = static_cast<std::uint64_t>(root.integer("seed", 1, 0, INT64_MAX));
  out_.horizon = nanos(root.required_duration_s("horizon"));
  out_.warmup = nanos(root.duration_s("warmup", 0));
  if (out_.horizon <= Nanos{0}) root.wrong("horizon", "must be above 0");
  if (out_.warmup >= out_.horizon && out_.horizon > Nanos{0})
    root.wrong("warmup", "must end before the horizon");
  out_.start_in_week_s = root.integer("start_hour_of_week", 0, 0, kHoursOfWeek - 1) * 3600;
  out_.replications = static_cast<int>(root.integer("replications", 1, 1, 100'000));
  out_.drain = root.flag("drain", false);
  out_.records_max = static_cast<std::uint64_t>(
      root.integer("records_max", static_cast<std::int64_t>(out_.records_max), 0, INT32_MAX));
  for (auto& [name, config] : root.named_tables("clusters")) {
    out_.clusters.push_back(cluster(name, std::move(config)));
    cluster_names_.push_back(name);
  }
  for (auto& [name, config] : root.named_tables("stores")) {
    out_.stores.push_back(store(name, std::move(config)));
    store_names_.push_back(name);
  }
  for (auto& [name, config] : root.named_tables("pipelines")) {
    out_.pipelines.push_back(pipeline(name, std::move(config)));
    pipeline_names_.push_back(name);
  }
  for (auto& [name, config] : root.named_tables("models"))
    out_.models.push_back(models(name, std::move(config)));
  if (out_.clusters.empty()) root.wrong("clusters", "there is none");
  if (out_.pipelines.empty()) root.wrong("pipelines", "there is none");
  root.finish();
  return std::move(out_);
}

}  // namespace

bool ClusterSpec::counts_gpus() const {
  return slots == 0 && std::any_of(nodes.begin(), nodes.end(),
                                   [](const NodeSpec& node) { return node.gpus > 0; });
}

Result<Experiment> parse_experiment(std::string_view untrusted_toml, std::string_view file_name,
                                    const Overrides& overrides, Loader& loader) {
  TomlLines lines;
  TRY(Json document, Json::parse_toml(untrusted_toml, file_name, &lines));
  TRY(document, with_overrides(std::move(document), overrides));
  Mistakes mistakes{std::string(file_name), lines};
  Reader reader(mistakes, loader);
  Experiment experiment = reader.read(Config(std::move(document), "", mistakes));
  experiment.source = std::string(file_name);
  if (!mistakes.empty()) return mistakes.error();
  return experiment;
}

}  // namespace kansoku::simulate
