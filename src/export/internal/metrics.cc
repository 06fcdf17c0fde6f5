// SPDX-License-Identifier: Apache-2.0
#include "export/internal/metrics.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kansoku::exporter {
namespace {

// The kind before the first point, the figure after the last: names between may hold points.
struct Parts {
  std::string_view kind, entity, figure;
};

Parts parts_of(std::string_view metric) {
  const std::size_t first = metric.find('.'), last = metric.rfind('.');
  if (first == std::string_view::npos || first == last) return {{}, {}, metric};
  return {metric.substr(0, first), metric.substr(first + 1, last - first - 1),
          metric.substr(last + 1)};
}

struct MetricWords {
  std::string_view figure, words;
};
constexpr std::array<MetricWords, 26> kMetricWords{{
    {"sojourn_mean_s", "mean time in the system"},
    {"sojourn_p50_s", "median time in the system"},
    {"sojourn_p90_s", "p90 of the time in the system"},
    {"sojourn_p99_s", "p99 of the time in the system"},
    {"wait_mean_s", "mean wait"},
    {"wait_p50_s", "median wait"},
    {"wait_p90_s", "p90 of the wait"},
    {"wait_p99_s", "p99 of the wait"},
    {"execution_mean_s", "mean execution"},
    {"utilisation", "utilisation"},
    {"queue_mean", "mean queue"},
    {"unit_hours", "used unit hours"},
    {"performance_mean", "mean performance"},
    {"loss_mean", "mean loss of performance"},
    {"loss_hours_avoided", "loss hours avoided"},
    {"loss_hours_avoided_per_unit_hour", "loss hours avoided per unit hour"},
    {"retraining_unit_hours", "unit hours of retrainings"},
    {"staleness_mean_s", "mean age"},
    {"bytes_read", "bytes read"},
    {"bytes_written", "bytes written"},
    {"offered_load", "offered load"},
    {"arrived", "arrived runs"},
    {"finished", "finished runs"},
    {"rolled_back", "roll-backs"},
    {"node_failures", "node failures"},
    {"down_share", "capacity down"},
}};

}  // namespace

const Figure& Entity::figure(std::string_view metric) const {
  static const Figure kUnknown;
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& figure) { return figure.name == metric; });
  return found == figures.end() ? kUnknown : *found;
}

std::vector<Figure> figures_of(const Json& untrusted_list) {
  std::vector<Figure> out;
  if (!untrusted_list.is_array()) return out;
  for (std::size_t i = 0; i < std::min(untrusted_list.size(), Metrics::kReadMax); ++i) {
    const Json row = untrusted_list.at(i);
    const std::string name = row.at("name").as_string();
    if (name.empty()) continue;
    out.push_back(figure_from(row, name, unit_from(row.at("unit").as_string())));
  }
  return out;
}

Metrics Metrics::from(const Json& untrusted_list) {
  Metrics out;
  std::map<std::string, std::size_t> places;
  for (Figure& figure : figures_of(untrusted_list)) {
    const std::string whole = figure.name;
    const Parts parts = parts_of(whole);
    const std::string kind(parts.kind);
    auto& entities = out.by_kind_[kind];
    const auto [place, added] =
        places.emplace(kind + "." + std::string(parts.entity), entities.size());
    if (added) entities.push_back({std::string(parts.entity), {}});
    figure.name = std::string(parts.figure);
    entities[place->second].figures.push_back(std::move(figure));
  }
  if (untrusted_list.is_array() && untrusted_list.size() > kReadMax)
    out.left_out_ = untrusted_list.size() - kReadMax;
  return out;
}

const std::vector<Entity>& Metrics::of(std::string_view kind) const {
  static const std::vector<Entity> kNone;
  const auto found = by_kind_.find(kind);
  return found == by_kind_.end() ? kNone : found->second;
}

std::vector<std::string> Metrics::kinds() const {
  std::vector<std::string> out;
  for (const auto& [kind, entities] : by_kind_)
    out.push_back(kind);
  return out;
}

std::string in_words(std::string_view metric) {
  const Parts parts = parts_of(metric);
  std::string out(parts.figure);
  for (const MetricWords& row : kMetricWords)
    if (row.figure == parts.figure) out = row.words;
  std::replace(out.begin(), out.end(), '_', ' ');
  return parts.entity.empty() ? out : out + " of " + std::string(parts.entity);
}

}  // namespace kansoku::exporter
