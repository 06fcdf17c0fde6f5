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

constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kWords{{
    {"sojourn_mean_s", "time in the system, mean"},
    {"sojourn_p50_s", "time in the system, median"},
    {"sojourn_p90_s", "time in the system, 90 % below"},
    {"sojourn_p99_s", "time in the system, 99 % below"},
    {"wait_mean_s", "wait, mean"},
    {"wait_p50_s", "wait, median"},
    {"wait_p90_s", "wait, 90 % below"},
    {"wait_p99_s", "wait, 99 % below"},
    {"execution_mean_s", "execution, mean"},
    {"utilisation", "utilisation"},
    {"queue_mean", "tasks waiting, mean"},
    {"unit_hours", "unit hours used"},
    {"performance_mean", "model performance, mean"},
    {"loss_mean", "lost performance, mean"},
    {"loss_hours_avoided", "loss hours avoided"},
    {"loss_hours_avoided_per_unit_hour", "loss hours avoided per unit hour"},
    {"retraining_unit_hours", "unit hours of retrainings"},
    {"staleness_mean_s", "age of the models, mean"},
    {"bytes_read", "read"},
    {"bytes_written", "written"},
    {"offered_load", "offered load"},
    {"rolled_back", "rolled back"},
    {"node_failures", "node failures"},
    {"down_share", "capacity down"},
}};

}  // namespace

const Figure& Entity::figure(std::string_view metric) const {
  static const Figure unknown;
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const Figure& figure) { return figure.name == metric; });
  return found == figures.end() ? unknown : *found;
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
  static const std::vector<Entity> none;
  const auto found = by_kind_.find(kind);
  return found == by_kind_.end() ? none : found->second;
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
  for (const auto& [name, words] : kWords)
    if (name == parts.figure) out = words;
  std::replace(out.begin(), out.end(), '_', ' ');
  return parts.entity.empty() ? out : out + ": " + std::string(parts.entity);
}

}  // namespace kansoku::exporter
