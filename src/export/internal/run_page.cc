// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "export/internal/chart.h"
#include "export/internal/metrics.h"
#include "export/internal/page.h"
#include "export/internal/pages.h"
#include "export/internal/tables.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kSeriesReadMax = 200, kSeriesPointsMax = 100'000;
constexpr std::size_t kWaitRowsMax = 12, kOtherRowsMax = 100;
constexpr std::size_t kRemarksMax = 12;

struct Series {
  std::string entity, figure;
  double step_s{0};
  std::vector<double> values;
};

struct Run {
  Metrics metrics;
  std::vector<Series> series;
  double horizon_s{0}, warmup_s{0};
  std::int64_t replications{0}, records_dropped{0};
  bool stopped{false};
  const Entity* busiest{nullptr};  // cluster, by utilisation
  const Entity* waits{nullptr};    // task, by the sum of its waits
};

Series series_from(const Json& json) {
  Series out;
  const std::string name = json.at("name").as_string();
  const std::size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string::npos || first == last) return out;
  out.entity = name.substr(first + 1, last - first - 1);
  out.figure = name.substr(0, first) + name.substr(last);
  out.step_s = number_in(json.at("step_s")).value_or(0);
  const Json values = json.at("values");
  if (!values.is_array()) return out;
  for (std::size_t i = 0; i < std::min(values.size(), kSeriesPointsMax); ++i)
    out.values.push_back(number_in(values.at(i)).value_or(NAN));
  return out;
}

const Entity* greatest(const std::vector<Entity>& entities, double (*of)(const Entity&)) {
  const Entity* out = nullptr;
  for (const Entity& entity : entities)
    if (out == nullptr || of(entity) > of(*out)) out = &entity;
  return out;
}

Run read_run(const Json& untrusted) {
  Run out;
  out.metrics = Metrics::from(untrusted.at("metrics"));
  const Json list = untrusted.at("series");
  if (list.is_array())
    for (std::size_t i = 0; i < std::min(list.size(), kSeriesReadMax); ++i) {
      Series series = series_from(list.at(i));
      if (!series.values.empty() && series.step_s > 0) out.series.push_back(std::move(series));
    }
  out.horizon_s = number_in(untrusted.at("horizon_s")).value_or(0);
  out.warmup_s = number_in(untrusted.at("warmup_s")).value_or(0);
  out.replications = untrusted.at("replications").as_int();
  out.records_dropped = untrusted.at("records_dropped").as_int();
  out.stopped = untrusted.at("stopped").as_bool();
  out.busiest = greatest(out.metrics.of("cluster"),
                         [](const Entity& cluster) { return cluster.mean("utilisation"); });
  out.waits = greatest(out.metrics.of("task"), [](const Entity& task) {
    return task.mean("count") * task.mean("wait_mean_s");
  });
  return out;
}

// "train" where all tasks are of one pipeline, "build.train" otherwise.
std::string task_name(const Run& run, const Entity& task) {
  const auto& pipelines = run.metrics.of("pipeline");
  if (pipelines.size() != 1 || !task.name.starts_with(pipelines[0].name + ".")) return task.name;
  return task.name.substr(pipelines[0].name.size() + 1);
}

bool somebody_waits(const Run& run) {
  return run.waits != nullptr && run.waits->mean("wait_mean_s") > 0;
}

std::string heading(const Run& run) {
  const bool has_wait = run.waits != nullptr && run.waits->figure("wait_mean_s").known;
  const bool has_use = run.busiest != nullptr && run.busiest->figure("utilisation").known;
  std::string use;
  if (has_use)
    use = fmt::format("{}cluster {} is used {}",
                      run.metrics.of("cluster").size() > 1 ? "the busiest " : "",
                      shortened(run.busiest->name, 60), shown(run.busiest->figure("utilisation")));
  std::string wait;
  if (has_wait && !somebody_waits(run)) {
    wait = "nobody waits";
  } else if (has_wait) {
    const std::string name = task_name(run, *run.waits);
    const std::string mean = shown(run.waits->figure("wait_mean_s"));
    wait = name == "job"
               ? fmt::format("jobs wait {} on average", mean)
               : fmt::format("tasks \u201c{}\u201d wait {} on average", shortened(name, 60), mean);
  }
  if (wait.empty() && use.empty()) return "A simulation without figures of clusters or tasks";
  return capitalised(wait + (wait.empty() || use.empty() ? "" : "; ") + use);
}

std::string with_interval(std::string_view what, const Figure& figure) {
  const std::string interval = interval_of(figure);
  return fmt::format("{} {}{}", what, shown(figure),
                     interval.empty() ? "" : " (95 % interval " + interval + ")");
}

std::vector<std::string> leads(const Run& run) {
  std::vector<std::string> out;
  std::string text;
  if (somebody_waits(run)) {
    text = run.metrics.of("task").size() > 1
               ? "The tasks whose waits add up to most: " +
                     with_interval("mean wait", run.waits->figure("wait_mean_s"))
               : capitalised(with_interval("mean wait", run.waits->figure("wait_mean_s")));
    const Figure& p90 = run.waits->figure("wait_p90_s");
    if (p90.known) text += ", " + with_interval("1 in 10 waits longer than", p90);
    text += ". ";
  }
  if (run.busiest != nullptr)
    text += capitalised(with_interval("utilisation", run.busiest->figure("utilisation"))) + ".";
  out.push_back(text);
  if (run.replications > 1)
    out.push_back(
        fmt::format("{} replications of {} with different chance. Small figures are 95 % "
                    "intervals of the mean over replications.",
                    run.replications, shown(run.horizon_s, Unit::kSeconds)));
  return out;
}

std::vector<Card> headline_cards(const Run& run) {
  std::vector<Card> out;
  const auto add = [&](const Entity& entity, std::string_view metric, const std::string& name) {
    if (entity.figure(metric).known) out.push_back(card_of(entity.figure(metric), name));
  };
  if (run.busiest != nullptr) add(*run.busiest, "utilisation", "use of " + run.busiest->name);
  if (run.waits != nullptr) {
    add(*run.waits, "wait_mean_s", "mean wait of " + task_name(run, *run.waits));
    add(*run.waits, "wait_p99_s", "1 in 100 waits longer");
  }
  const Entity* const pipeline =
      greatest(run.metrics.of("pipeline"), [](const Entity& each) { return each.mean("arrived"); });
  if (pipeline != nullptr) {
    add(*pipeline, "sojourn_mean_s", "mean time in the system, " + pipeline->name);
    if (pipeline->figure("finished").known && pipeline->figure("arrived").known)
      out.push_back({shown(std::round(pipeline->mean("finished"))),
                     "finished of " + shown(std::round(pipeline->mean("arrived"))) + " arrived, " +
                         pipeline->name,
                     ""});
  }
  const auto& models = run.metrics.of("models");
  if (!models.empty()) {
    add(models[0], "performance_mean", "mean performance of models " + models[0].name);
    add(models[0], "retrainings", "retrainings of " + models[0].name);
  }
  return out;
}

double mean_of(const std::vector<double>& values, double from, double to) {
  const auto size = static_cast<double>(values.size());
  double sum = 0, count = 0;
  for (auto i = static_cast<std::size_t>(from * size); i < static_cast<std::size_t>(to * size);
       ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

// A queue that is still growing when the simulation ends makes every mean a matter of its length.
void warn_of_growth(const Run& run, std::vector<std::string>& out) {
  for (const Series& series : run.series) {
    if (series.figure != "cluster.queue" || series.values.size() < 20) continue;
    const double middle = mean_of(series.values, 0.3, 0.5), last = mean_of(series.values, 0.8, 1);
    const double between = mean_of(series.values, 0.55, 0.75);
    const bool grows = last > 1.3 * between && between > 1.3 * middle && last > 5;
    if (grows && out.size() < 8)
      out.push_back(fmt::format(
          "The queue of {} is still growing at the end ({} waiting on average in the last fifth): "
          "it receives more work than it can do, so every wait here depends on the simulated time.",
          shortened(series.entity, 60), shown(last)));
  }
}

std::vector<std::string> run_remarks(const Run& run) {
  std::vector<std::string> out;
  if (run.replications == 1)
    out.emplace_back(
        "One replication shows no random variation, so there are no intervals. Run more with "
        "--replications 10.");
  if (run.stopped)
    out.push_back(
        fmt::format("The run was stopped early; {} replications were done.", run.replications));
  warn_of_growth(run, out);
  if (run.records_dropped > 0)
    out.push_back(fmt::format(
        "{} records of single tasks were dropped (records_max); the figures here count all tasks.",
        run.records_dropped));
  for (const Entity& pipeline : run.metrics.of("pipeline"))
    for (const std::string_view what : {"failed", "refused", "dropped"})
      if (pipeline.mean(what) > 0 && out.size() < kRemarksMax)
        out.push_back(fmt::format("Of {} runs of pipeline {}, {} {}{}.",
                                  shown(std::round(pipeline.mean("arrived"))),
                                  shortened(pipeline.name, 60), shown(pipeline.figure(what)),
                                  what == "failed" ? "" : "were ", what));
  if (run.metrics.left_out() > 0)
    out.push_back(fmt::format("{} metrics beyond the first {} were not read.",
                              run.metrics.left_out(), Metrics::kReadMax));
  return out;
}

struct TimeKind {
  std::string_view figure, title, more;
  Unit unit;
  bool from_zero;
  double top_least;
};

std::string time_plot(const Run& run, const TimeKind& kind) {
  TimeChart chart;
  chart.title = kind.title;
  chart.unit = kind.unit;
  chart.from_zero = kind.from_zero;
  chart.top_least = kind.top_least;
  chart.warmup_s = run.warmup_s;
  std::size_t count = 0;
  bool all_zero = true;
  for (const Series& series : run.series) {
    if (series.figure != kind.figure || ++count > kSeriesMax) continue;
    if (chart.lines.empty()) chart.step_s = series.step_s;
    chart.lines.push_back({series.entity, series.values});
    for (const double value : series.values)
      all_zero = all_zero && !(std::fabs(value) > 0);
  }
  if (count == 0) return {};
  if (all_zero && kind.figure == "cluster.queue")
    return "<figure class=\"plot\"><figcaption>Tasks waiting</figcaption>" +
           empty_note("No cluster has a queue at any time.") + "</figure>";
  return draw(chart) + (count > kSeriesMax ? left_out(count - kSeriesMax, "lines") : "");
}

std::string over_time(const Run& run) {
  constexpr std::array<TimeKind, 3> kKinds{{
      {"cluster.utilisation", "Utilisation of the clusters", "", Unit::kShare, true, 1},
      {"cluster.queue", "Tasks waiting", "", Unit::kPlain, true, 0},
      {"models.performance", "Performance of the models", "", Unit::kPlain, false, 0},
  }};
  std::string plots;
  for (const TimeKind& kind : kKinds)
    plots += time_plot(run, kind);
  if (plots.empty())
    return section("Over time", "", empty_note("The file has no series over time."));
  return section(
      "Over time",
      run.replications > 1 ? "Means over all replications: a single run swings more." : "",
      "<div class=\"plots\">" + plots + "</div>");
}

RowChart quantile_chart(const std::string& title, const std::vector<Entity>& entities,
                        const std::string& metric, std::vector<std::string>& names) {
  RowChart out;
  out.title = title;
  out.unit = Unit::kSeconds;
  out.from_zero = out.one_line = true;
  out.series = {"median", "mean", "90 % below", "99 % below"};
  const std::array<std::string, 4> figures{metric + "_p50_s", metric + "_mean_s", metric + "_p90_s",
                                           metric + "_p99_s"};
  for (std::size_t i = 0; i < entities.size() && out.rows.size() < kWaitRowsMax; ++i) {
    RowChart::Row row{names[i], {}};
    bool any = false;
    for (const std::string& figure : figures) {
      row.marks.push_back(entities[i].figure(figure));
      any = any || row.marks.back().mean > 0;
    }
    if (any) out.rows.push_back(std::move(row));
  }
  return out;
}

std::string waits(const Run& run) {
  constexpr std::array<Column, 8> kTask{{{"count", "runs"},
                                         {"wait_mean_s", "wait, mean"},
                                         {"wait_p50_s", "median"},
                                         {"wait_p90_s", "90 % below"},
                                         {"wait_p99_s", "99 % below"},
                                         {"execution_mean_s", "execution, mean"},
                                         {"restarts", "restarts", true},
                                         {"failed", "failed", true}}};
  constexpr std::array<Column, 10> kPipeline{{{"arrived", "arrived"},
                                              {"finished", "finished"},
                                              {"failed", "failed", true},
                                              {"refused", "refused", true},
                                              {"dropped", "dropped", true},
                                              {"offered_load", "offered load"},
                                              {"sojourn_mean_s", "time in the system, mean"},
                                              {"sojourn_p50_s", "median"},
                                              {"sojourn_p90_s", "90 % below"},
                                              {"sojourn_p99_s", "99 % below"}}};
  const auto& tasks = run.metrics.of("task");
  const auto& pipelines = run.metrics.of("pipeline");
  if (tasks.empty() && pipelines.empty())
    return section("Waiting", "", empty_note("The file has no figures of tasks or pipelines."));
  std::vector<std::string> task_names, pipeline_names;
  for (const Entity& task : tasks)
    task_names.push_back(task_name(run, task));
  for (const Entity& pipeline : pipelines)
    pipeline_names.push_back(pipeline.name);
  std::string plots;
  for (const RowChart& chart : {quantile_chart("Waits of the tasks", tasks, "wait", task_names),
                                quantile_chart("Time in the system, from arrival to the end",
                                               pipelines, "sojourn", pipeline_names)})
    if (!chart.rows.empty()) plots += draw(chart);
  std::string body = plots.empty() ? "" : "<div class=\"plots\">" + plots + "</div>";
  body += tasks.empty() ? empty_note("The file has no figures of tasks.")
                        : "<h3>Tasks</h3>" + entity_table("task", tasks, kTask);
  body += pipelines.empty() ? empty_note("The file has no figures of pipelines.")
                            : "<h3>Pipelines</h3>" + entity_table("pipeline", pipelines, kPipeline);
  return section("Waiting",
                 "A wait is from when a task could start to when it does; the time in the system "
                 "is all of a pipeline, waits, transfers and execution.",
                 body);
}

std::string clusters(const Run& run) {
  constexpr std::array<Column, 7> kColumns{{{"utilisation", "utilisation"},
                                            {"queue_mean", "tasks waiting, mean"},
                                            {"unit_hours", "unit hours used"},
                                            {"cost", "cost of the capacity"},
                                            {"preemptions", "preemptions", true},
                                            {"node_failures", "node failures", true},
                                            {"down_share", "capacity down"}}};
  const auto& list = run.metrics.of("cluster");
  return section("Clusters", "",
                 list.empty() ? empty_note("The file has no figures of clusters.")
                              : entity_table("cluster", list, kColumns));
}

std::string models(const Run& run) {
  constexpr std::array<Column, 11> kColumns{
      {{"performance_mean", "performance, mean"},
       {"loss_mean", "lost, mean"},
       {"retrainings", "retrainings"},
       {"promoted", "promoted"},
       {"refused", "refused", true},
       {"rolled_back", "rolled back", true},
       {"staleness_mean_s", "age at the end, mean"},
       {"retraining_unit_hours", "unit hours of retraining"},
       {"loss_hours_avoided", "loss hours avoided"},
       {"loss_hours_avoided_per_unit_hour", "avoided per unit hour"},
       {"cost", "cost"}}};
  const auto& list = run.metrics.of("models");
  if (list.empty()) return {};
  return section("Models",
                 "A loss hour is an hour in which a model performs worse by 1 than when it was "
                 "fresh; avoided against never retraining.",
                 entity_table("models", list, kColumns));
}

std::string stores(const Run& run) {
  constexpr std::array<Column, 2> kColumns{{{"bytes_read", "read"}, {"bytes_written", "written"}}};
  const auto& list = run.metrics.of("store");
  return list.empty() ? "" : section("Stores", "", entity_table("store", list, kColumns));
}

std::string others(const Run& run) {
  std::string rows;
  std::size_t count = 0;
  for (const std::string& kind : run.metrics.kinds()) {
    constexpr std::array<std::string_view, 5> kShown{"cluster", "models", "pipeline", "store",
                                                     "task"};
    if (std::find(kShown.begin(), kShown.end(), kind) != kShown.end()) continue;
    for (const Entity& entity : run.metrics.of(kind))
      for (const Figure& figure : entity.figures) {
        if (++count > kOtherRowsMax) continue;
        const std::string name =
            kind.empty() ? figure.name : kind + "." + entity.name + "." + figure.name;
        rows += "<tr>" + text_cell(name) + figure_cell(figure) + "</tr>";
      }
  }
  if (rows.empty()) return {};
  return section("Other figures", "",
                 table(table_head({"figure", "mean"}, 1), rows) +
                     left_out(count - std::min(count, kOtherRowsMax), "figures"));
}

std::string run_facts(const Json& untrusted, const Run& run) {
  Facts out;
  out.add("experiment", untrusted.at("name").as_string());
  out.add("file", untrusted.at("source").as_string());
  if (untrusted.at("seed").is_number()) out.add("seed", untrusted.at("seed").dump());
  if (run.horizon_s > 0) out.add("simulated time", shown(run.horizon_s, Unit::kSeconds));
  if (run.warmup_s > 0) out.add("warm-up, not counted", shown(run.warmup_s, Unit::kSeconds));
  if (run.replications > 0) out.add("replications", std::to_string(run.replications));
  if (const auto events = number_in(untrusted.at("events"))) out.add("events", shown(*events));
  if (run.stopped) out.add("stopped early", "yes");
  std::string missing;
  for (const std::string_view kind : {"models", "store"})
    if (run.metrics.of(kind).empty())
      missing += (missing.empty() ? "" : ", ") + std::string(kind == "store" ? "stores" : kind);
  out.add("not in this experiment", missing);
  out.add("intervals", run.replications > 1 ? "95 %, Student's t over the replications" : "");
  return section("The run", "The same file and seed give the same figures.", out.html());
}

}  // namespace

Page run_page(const Json& untrusted) {
  const Run run = read_run(untrusted);
  const std::string name = untrusted.at("name").as_string();
  Page out;
  out.title = (name.empty() ? "" : name + ": ") + heading(run);
  if (run.metrics.empty()) {
    out.body = verdict("No figures", {"The file has no metrics."}, "", false);
  } else {
    out.body = verdict(heading(run), leads(run), cards(headline_cards(run)), !somebody_waits(run));
  }
  out.body += warnings(run_remarks(run)) + over_time(run) + waits(run) + clusters(run) +
              models(run) + stores(run) + others(run) + run_facts(untrusted, run);
  return out;
}

}  // namespace kansoku::exporter
