// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulate_replay.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "simulate/graphs.h"
#include "simulate/run.h"
#include "stats/summary.h"

namespace kansoku::cli {

namespace sim = simulate;

namespace {

constexpr double kOverheadMaxS = 86'400;

}  // namespace

void declare_replay_options(CLI::App& app, ReplayOptions& options) {
  app.add_option("trace", options.paths, "trace, or task graphs (docs/formats/workload.md)")
      ->required();
  app.add_option("--format", options.format, "force the trace's format");
  app.add_option("--slots", options.slots, "cluster: number of GPUs in one pool")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{INT32_MAX}));
  app.add_option("--nodes", options.nodes, "cluster: file with a list of nodes (openb's CSV)");
  app.add_option("--scheduler", options.scheduler,
                 "fifo, priority, shortest, fair_share, backfill, improvement [fifo]");
  app.add_option(
      "--placement", options.placement,
      "with --nodes: random, dot_prod, gpu_clustering, gpu_packing, best_fit, fgd, first_fit");
  app.add_option("--from", options.from, "skip jobs before this date or time: 2017-09-25, or 22d");
  app.add_option("--span", options.span, "replay only this length of the trace, e.g. 42d");
  app.add_option("--duration-cap", options.duration_cap,
                 "cut longer jobs to this duration, e.g. 7d");
  app.add_flag("--clamp-oversized", options.clamp,
               "reduce jobs that request more than the cluster has");
  app.add_option("--cores", options.cores,
                 "task graphs: cores of the machine [as recorded, else 1]")
      ->check(CLI::Range(1, INT32_MAX));
  app.add_option("--task-overhead", options.task_overhead_s,
                 "task graphs: seconds that the workflow engine adds to each task");
}

Result<sim::Workload> read_replayed(const ReplayOptions& options, const std::string& path,
                                    FileLoader& loader) {
  if (!options.format.empty()) {
    const auto forced = sim::import::format_from_name(options.format);
    if (!forced) return Error{Code::kNotFound, "format \"" + options.format + "\": unknown"};
    loader.force_format(*forced);
  }
  return loader.workload(path);
}

Result<sim::Experiment> replay_experiment(const ReplayOptions& options, const sim::Overrides& set,
                                          FileLoader& loader) {
  if ((options.slots > 0) == !options.nodes.empty())
    return Error{Code::kCorrupt, "replay: the cluster is missing or given twice",
                 "give --slots GPUS, or --nodes FILE"};
  const std::string& path = options.paths.front();
  // Through the same door as an experiment file: one set of checks.
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  TRY(const sim::Workload workload, loader.workload(path));
  if (workload.jobs.empty()) return Error{Code::kCorrupt, path + ": no jobs"};
  const Nanos first = workload.jobs.front().submit;
  Nanos begin = first, to = workload.jobs.back().submit;
  if (!options.from.empty()) {
    TRY(begin, sim::offset_of(workload, options.from));
  }
  if (!options.span.empty()) {
    const auto span = sim::parse_span(options.span);
    if (!span) return Error{Code::kCorrupt, "--span " + options.span + ": not a duration"};
    to = std::min(to, begin + *span);
  }
  const Nanos from = std::max(first, begin);
  if (to < from) return Error{Code::kNotFound, path + ": no jobs after " + options.from};
  const double last_s = static_cast<double>((to - from).count()) / 1e9;
  std::string text = fmt::format(
      "name = {}\nhorizon = {}\ndrain = true\n[clusters.gpu]\nscheduler = {}\nplacement = {}\n",
      quoted("replay of " + path), std::ceil(last_s) + 1, quoted(options.scheduler),
      quoted(options.placement));
  text += options.slots > 0 ? fmt::format("slots = {}\n", options.slots)
                            : fmt::format("nodes_file = {}\n", quoted(options.nodes));
  text += fmt::format("[pipelines.trace]\njobs = true\ncluster = \"gpu\"\nclamp_oversized = {}\n",
                      options.clamp);
  if (!options.duration_cap.empty())
    text += fmt::format("duration_cap = {}\n", quoted(options.duration_cap));
  text += fmt::format("[pipelines.trace.arrivals]\nkind = \"trace\"\nfile = {}\n", quoted(path));
  // Without --from a span counts from the first job, not from the trace's epoch.
  if (!options.from.empty())
    text += fmt::format("from = {}\n", quoted(options.from));
  else if (!options.span.empty() && first > Nanos{0})
    text += fmt::format("from = \"{}.{:09}\"\n", first.count() / 1'000'000'000,
                        first.count() % 1'000'000'000);
  if (!options.span.empty()) text += fmt::format("span = {}\n", quoted(options.span));
  TRY(auto experiment, sim::parse_experiment(text, "replay", set, loader));
  experiment.source = path;
  const auto unknown = std::count_if(workload.jobs.begin(), workload.jobs.end(),
                                     [](const sim::Job& job) { return job.duration < Nanos{0}; });
  if (unknown > 0 && experiment.pipelines.front().tasks.front().duration.mean() <= 0)
    fmt::print(stderr,
               "kansoku: {}: {} of {} jobs have no duration and take no time; give them one with "
               "--set pipelines.trace.duration=...\n",
               path, unknown, workload.jobs.size());
  return experiment;
}

namespace {

/// One task graph of a file.
struct OneGraph {
  const sim::Workload* workload{nullptr};
  std::size_t index{0};
  [[nodiscard]] const sim::Graph& graph() const { return workload->graphs[index]; }
  std::optional<double> overhead_s{};  // by its own makespan
};

/// Median overhead a task of all graphs but one: the knowledge of it beforehand. Nothing if no
/// other has one.
std::optional<double> learnt_overhead_s(const std::vector<OneGraph>& graphs, std::size_t without) {
  std::vector<double> overheads;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    if (i != without && graphs[i].overhead_s) overheads.push_back(*graphs[i].overhead_s);
  }
  if (overheads.empty()) return std::nullopt;
  return stats::median(overheads);
}

std::string error_text(double simulated, double recorded) {
  return recorded > 0 ? fmt::format("{:+.1f} %", 100 * (simulated / recorded - 1)) : "-";
}

/// Learning looks at every other graph, so only for as many as people look at.
constexpr std::size_t kLearningGraphsMax = 1000;

}  // namespace

Result<int> replay_graphs(const ReplayOptions& options, const std::vector<sim::Workload>& workloads,
                          bool json) {
  const double given = options.task_overhead_s;
  if (given != -1 && !(given >= 0 && given <= kOverheadMaxS))
    return Error{Code::kCorrupt, fmt::format("--task-overhead {}: not from 0 to {} seconds",
                                             options.task_overhead_s, kOverheadMaxS)};
  std::vector<OneGraph> graphs;
  for (const sim::Workload& workload : workloads) {
    if (workload.graphs.empty())
      return Error{Code::kUnsupported, workload.source + ": no task graphs",
                   "only task graphs can be replayed from several files"};
    for (std::size_t i = 0; i < workload.graphs.size(); ++i)
      graphs.push_back({&workload, i});
  }
  if (graphs.size() <= kLearningGraphsMax) {
    for (OneGraph& one : graphs) {
      TRY(one.overhead_s, sim::overhead_per_task_s(*one.workload, one.index, options.cores));
    }
  }
  const bool learns = options.task_overhead_s < 0 && learnt_overhead_s(graphs, 0).has_value();
  Json rows = Json::array();
  if (!json)
    fmt::print("{:<28} {:>6} {:>12} {:>12} {:>9}{}\n", "graph", "tasks", "recorded s",
               "simulated s", "error",
               learns ? "   with overhead learnt from the other graphs" : "");
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const OneGraph& one = graphs[i];
    const auto makespan_s = [&](double overhead_s) {
      return sim::graph_makespan_s(*one.workload, one.index, options.cores, overhead_s);
    };
    TRY(const double plain_s, makespan_s(std::max(options.task_overhead_s, 0.0)));
    const auto& jobs = one.workload->jobs;
    const auto tasks = static_cast<std::uint64_t>(std::count_if(
        jobs.begin(), jobs.end(), [&](const sim::Job& job) { return job.graph == one.index + 1; }));
    const double recorded = one.graph().makespan_s;
    Json row = Json::object();
    row.set("graph", one.graph().name).set("tasks", tasks);
    row.set("recorded_s", recorded >= 0 ? Json(recorded) : Json()).set("simulated_s", plain_s);
    row.set("overhead_per_task_s", one.overhead_s ? Json(*one.overhead_s) : Json());
    std::string learnt_text;
    if (const auto overhead = learns ? learnt_overhead_s(graphs, i) : std::nullopt) {
      TRY(const double learnt_s, makespan_s(*overhead));
      row.set("learnt_overhead_per_task_s", *overhead).set("simulated_with_learnt_s", learnt_s);
      learnt_text = fmt::format("   {:>12.1f} {:>9} ({:.2f} s a task)", learnt_s,
                                error_text(learnt_s, recorded), *overhead);
    }
    rows.push(std::move(row));
    if (json) continue;
    fmt::print("{:<28} {:>6} {:>12} {:>12.1f} {:>9}{}\n", one.graph().name, tasks,
               recorded >= 0 ? fmt::format("{:.1f}", recorded) : "-", plain_s,
               error_text(plain_s, recorded), learnt_text);
  }
  if (json)
    fmt::print("{}\n", Json::object()
                           .set("schema", "kansoku.graph_replay/1")
                           .set("graphs", std::move(rows))
                           .dump(2));
  return kExitOk;
}

void print_duration_fit(const Json& duration) {
  if (duration.is_null()) {
    fmt::print("durations: no job has one, so the model draws arrivals alone\n");
    return;
  }
  const Json families = duration.at("families");
  fmt::print("{:<24} {:>12} {:>8} {:>18} {:>20}\n", "durations", "AIC", "KS", "KS unseen, random",
             "KS unseen, later");
  for (std::size_t i = 0; i < families.size(); ++i) {
    const Json row = families.at(i);
    fmt::print("{:<24} {:>12.0f} {:>8.4f} {:>18.4f} {:>20.4f}{}\n", row.at("family").as_string(),
               row.at("aic").as_double(), row.at("ks").as_double(),
               row.at("ks_held_out").as_double(), row.at("ks_held_out_temporal").as_double(),
               i == 0                              ? "  chosen"
               : row.at("mean_infinite").as_bool() ? "  infinite mean"
                                                   : "");
  }
  if (duration.contains("ks_between_parts"))
    fmt::print("the first and the last part of the trace differ from each other by KS {:.3f}\n",
               duration.at("ks_between_parts").as_double());
  if (const double censored = duration.at("censored_share").as_double(); censored > 0)
    fmt::print("{:.0f} % of the durations are cut off at the end of the trace\n", 100 * censored);
}

void print_fit(const Json& report) {
  fmt::print("{}: {} jobs\n\n", report.at("source").as_string(), report.at("jobs").as_int());
  print_duration_fit(report.at("duration"));
  const Json statistics = report.at("arrivals").at("statistics");
  fmt::print("\n{:<36} {:>12} {:>12}\n",
             "arrivals: " + report.at("arrivals").at("kind").as_string(), "recorded", "model");
  for (const std::string& name : statistics.keys()) {
    const Json row = statistics.at(name);
    fmt::print("{:<36} {:>12.4g} {:>12.4g}{}\n", name, row.at("source").as_double(),
               row.at("synthetic").as_double(), row.at("kept").as_bool(true) ? "" : "  not kept");
  }
}

void print_asset_fit(const Json& report) {
  fmt::print("{} data sets, mixture of {} on the logarithms\n", report.at("assets").as_int(),
             report.at("components").as_int());
  const Json margins = report.at("margins"), pairs = report.at("log_correlations");
  for (std::size_t i = 0; i < margins.size(); ++i)
    fmt::print("  {:<16} KS {:.3f}   median {:.4g} recorded, {:.4g} model\n",
               margins.at(i).at("name").as_string(), margins.at(i).at("ks").as_double(),
               margins.at(i).at("median").at("source").as_double(),
               margins.at(i).at("median").at("model").as_double());
  for (std::size_t i = 0; i < pairs.size(); ++i)
    fmt::print("  {:<16} log correlation {:+.3f} recorded, {:+.3f} model\n",
               pairs.at(i).at("pair").as_string(), pairs.at(i).at("source").as_double(),
               pairs.at(i).at("model").as_double());
}

}  // namespace kansoku::cli
