// SPDX-License-Identifier: Apache-2.0
#include "simulate/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace kansoku::simulate {
namespace {

constexpr std::size_t kVariantsMax = 100'000;

Json estimate_json(const Estimate& estimate) {
  Json out = Json::object();
  out.set("mean", estimate.mean).set("low", estimate.low).set("high", estimate.high);
  out.set("sd", estimate.sd).set("n", estimate.n);
  return out;
}

std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  for (std::size_t i = 0; i < list.size(); ++i)
    out.push_back(list.at(i).as_double());
  return out;
}

std::vector<Axis> axes_of(const Json& sweep) {
  std::vector<Axis> axes;
  const Json list = sweep.at("axes");
  for (std::size_t i = 0; i < list.size(); ++i) {
    Axis axis{list.at(i).at("key").as_string(), {}};
    const Json values = list.at(i).at("values");
    for (std::size_t j = 0; j < values.size(); ++j)
      axis.values.push_back(values.at(j).as_string());
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// Mean difference to the first variant, pair by pair, for each metric.
Json comparisons(const std::map<std::size_t, Json>& by_index) {
  Json out = Json::array();
  const Json baseline = by_index.begin()->second.at("metrics");
  for (auto variant = std::next(by_index.begin()); variant != by_index.end(); ++variant) {
    std::map<std::string, Json> metrics;
    const Json list = variant->second.at("metrics");
    for (std::size_t i = 0; i < list.size(); ++i)
      metrics.emplace(list.at(i).at("name").as_string(), list.at(i));
    for (std::size_t i = 0; i < baseline.size(); ++i) {
      const std::string name = baseline.at(i).at("name").as_string();
      const auto found = metrics.find(name);
      if (found == metrics.end()) continue;
      const std::vector<double> before = numbers(baseline.at(i).at("values"));
      const std::vector<double> after = numbers(found->second.at("values"));
      if (before.size() != after.size() || before.empty()) continue;
      std::vector<double> differences;
      for (std::size_t k = 0; k < before.size(); ++k)
        differences.push_back(after[k] - before[k]);
      Json row = Json::object();
      row.set("metric", name).set("variant", static_cast<std::uint64_t>(variant->first));
      row.set("difference", estimate_json(estimate(differences)));
      out.push(std::move(row));
    }
  }
  return out;
}

}  // namespace

std::string_view unit_of(std::string_view metric) {
  if (metric.ends_with("_s")) return "s";
  if (metric.ends_with("utilisation") || metric.ends_with("_share")) return "share";
  if (metric.ends_with("_hours")) return "h";
  if (metric.ends_with("bytes_read") || metric.ends_with("bytes_written")) return "bytes";
  return "";
}

Json summarize(const Experiment& experiment, const Replications& replications) {
  Json out = Json::object();
  const auto seconds = [](Nanos time) { return static_cast<double>(time.count()) / 1e9; };
  out.set("schema", "kansoku.simulation/1").set("name", experiment.name);
  out.set("source", experiment.source).set("seed", experiment.seed);
  out.set("horizon_s", seconds(experiment.horizon)).set("warmup_s", seconds(experiment.warmup));
  const auto& finished = replications.finished;
  out.set("replications", static_cast<std::uint64_t>(finished.size()));
  out.set("stopped", replications.stopped).set("drains", experiment.drain);
  std::uint64_t events = 0, dropped = 0;
  for (const Replication& replication : finished) {
    events += replication.events;
    if (replication.records) dropped += replication.records->dropped();
  }
  out.set("events", events).set("records_dropped", dropped);
  Json metrics = Json::array(), series = Json::array();
  if (!finished.empty()) {
    for (std::size_t i = 0; i < finished.front().metrics.size(); ++i) {
      std::vector<double> values;
      Json list = Json::array();
      for (const Replication& replication : finished) {
        values.push_back(replication.metrics[i].value);
        list.push(values.back());
      }
      const std::string& name = finished.front().metrics[i].name;
      Json row = Json::object().set("name", name).set("unit", unit_of(name));
      const Estimate of = estimate(values);
      row.set("mean", of.mean).set("low", of.low).set("high", of.high).set("sd", of.sd);
      metrics.push(std::move(row.set("values", std::move(list))));
    }
    for (std::size_t i = 0; i < finished.front().series.size(); ++i) {
      const std::size_t length = finished.front().series[i].values.size();
      Json values = Json::array();
      for (std::size_t k = 0; k < length; ++k) {
        double sum = 0;
        for (const Replication& replication : finished)
          sum += k < replication.series[i].values.size() ? replication.series[i].values[k] : 0;
        values.push(sum / static_cast<double>(finished.size()));
      }
      series.push(Json::object()
                      .set("name", finished.front().series[i].name)
                      .set("step_s", finished.front().series_step_s)
                      .set("values", std::move(values)));
    }
  }
  out.set("metrics", std::move(metrics)).set("series", std::move(series));
  return out;
}

Result<Axis> parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error{Code::kCorrupt, "axis \"" + std::string(text) + "\": no `=`",
                 "give a key and its values: clusters.gpu.slots=40,50,60"};
  Axis axis{std::string(text.substr(0, equals)), {""}};
  int depth = 0;
  bool in_quotes = false;
  for (const char c : text.substr(equals + 1)) {
    if (c == '"') in_quotes = !in_quotes;
    if (!in_quotes) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0 && !in_quotes)
      axis.values.emplace_back();
    else
      axis.values.back() += c;
  }
  if (std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end())
    return Error{Code::kCorrupt, "axis \"" + std::string(text) + "\": an empty value"};
  return axis;
}

Result<std::vector<Overrides>> variants(const std::vector<Axis>& axes) {
  std::vector<Overrides> out{{}};
  for (const Axis& axis : axes) {
    if (out.size() * axis.values.size() > kVariantsMax)
      return Error{Code::kLimit, fmt::format("sweep: more than {} variants", kVariantsMax)};
    std::vector<Overrides> longer;
    for (const Overrides& before : out)
      for (const std::string& value : axis.values) {
        longer.push_back(before);
        longer.back().emplace_back(axis.key, value);
      }
    out = std::move(longer);
  }
  return out;
}

Json sweep_json(const SweepPart& part) {
  Json axes = Json::array();
  std::size_t total = 1;
  for (const Axis& axis : part.axes) {
    axes.push(Json::object().set("key", axis.key).set("values", Json::array_of(axis.values)));
    total *= axis.values.size();
  }
  Json list = Json::array();
  std::map<std::size_t, Json> by_index;
  const auto all = variants(part.axes);
  for (std::size_t i = 0; i < part.indices.size(); ++i) {
    Json set = Json::object();
    for (const auto& [key, value] : (*all)[part.indices[i]])
      set.set(key, value);
    list.push(Json::object()
                  .set("index", static_cast<std::uint64_t>(part.indices[i]))
                  .set("set", std::move(set))
                  .set("summary", part.summaries[i]));
    by_index.emplace(part.indices[i], part.summaries[i]);
  }
  Json out = Json::object();
  out.set("schema", "kansoku.simulation_sweep/1").set("name", part.name);
  out.set("axes", std::move(axes)).set("variants_total", static_cast<std::uint64_t>(total));
  out.set("variants", std::move(list));
  const bool complete = by_index.size() == total;
  out.set("comparisons", complete && total > 1 ? comparisons(by_index) : Json::array());
  return out;
}

Result<Json> merge_sweeps(const std::vector<Json>& untrusted, std::vector<std::size_t>& missing) {
  SweepPart whole;
  std::map<std::size_t, Json> by_index;
  std::string axes_text;
  for (const Json& part : untrusted) {
    if (part.at("schema").as_string() != "kansoku.simulation_sweep/1")
      return Error{Code::kUnsupported, "merge: schema \"" + part.at("schema").as_string() +
                                           "\" is not kansoku.simulation_sweep/1"};
    if (axes_text.empty()) {
      axes_text = part.at("axes").dump();
      whole.axes = axes_of(part);
      whole.name = part.at("name").as_string();
    }
    if (part.at("axes").dump() != axes_text)
      return Error{Code::kCorrupt, "merge: the parts are of different sweeps: " + axes_text +
                                       " and " + part.at("axes").dump()};
    const Json list = part.at("variants");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto index = static_cast<std::size_t>(list.at(i).at("index").as_int(-1));
      const auto [found, added] = by_index.emplace(index, list.at(i).at("summary"));
      for (const char* const key : {"seed", "horizon_s", "warmup_s", "replications"})
        if (found->second.at(key).dump() != by_index.begin()->second.at(key).dump())
          return Error{Code::kCorrupt,
                       fmt::format("merge: variant {} was simulated with another {}", index, key),
                       "parts of one sweep have the same options; a key that is swept may not be "
                       "one of these"};
      if (!added && found->second.dump() != list.at(i).at("summary").dump())
        return Error{Code::kCorrupt,
                     fmt::format("merge: variant {} comes twice, with different results", index)};
    }
  }
  TRY(const auto all, variants(whole.axes));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!by_index.contains(i)) missing.push_back(i);
  for (auto& [index, summary] : by_index) {
    if (index >= all.size())
      return Error{Code::kCorrupt, fmt::format("merge: there is no variant {}", index)};
    whole.indices.push_back(index);
    whole.summaries.push_back(std::move(summary));
  }
  return sweep_json(whole);
}

}  // namespace kansoku::simulate
