// SPDX-License-Identifier: Apache-2.0
#include "capture/metric.h"

#include <algorithm>

namespace kansoku::capture {

MetricTable::MetricTable(const std::vector<Pack>& packs) {
  add(std::string(kBlock), "", false);
  add(std::string(kStop), "", false);
  for (const Pack& pack : packs) {
    for (const FunctionProbes& probes : pack.functions) {
      if (!probes.metric.empty()) {
        const auto metric = add(probes.metric, probes.category, !probes.is_helper);
        if (metric && probes.steps) add_steps(*metric);
      }
      for (const ScopeMetric& scope : probes.scopes)
        add(scope.metric, probes.category, !probes.is_helper);
    }
    for (const UsdtProbes& probes : pack.usdt) {
      if (!probes.metric.empty()) add(probes.metric, probes.category, !probes.is_helper);
    }
  }
}

std::optional<std::size_t> MetricTable::index(std::string_view name) const {
  const auto found = std::find_if(metrics_.begin(), metrics_.end(),
                                  [&](const Metric& metric) { return metric.name == name; });
  if (found == metrics_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - metrics_.begin());
}

std::optional<std::size_t> MetricTable::add(const std::string& name, const std::string& category,
                                            bool is_work) {
  if (const auto known = index(name)) {
    metrics_[*known].is_work = metrics_[*known].is_work || is_work;
    return known;
  }
  if (metrics_.size() >= kMetricsMax) {
    ++left_out_;
    return std::nullopt;
  }
  metrics_.push_back({.name = name, .category = category, .is_work = is_work});
  return metrics_.size() - 1;
}

void MetricTable::add_steps(std::size_t metric) {
  const std::string name = metrics_[metric].name, category = metrics_[metric].category;
  metrics_[metric].interval = add(name + "_interval", category, false);
  metrics_[metric].gap = add(name + "_gap", category, false);
}

}  // namespace kansoku::capture
