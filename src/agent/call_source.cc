// SPDX-License-Identifier: Apache-2.0
#include "agent/call_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "detect/feature.h"

namespace kansoku::agent {
namespace {

using capture::MetricTable;
using capture::MetricWindow;
using capture::ProcessWindow;

/// The calls of one metric as rate, mean, share and so on of a window.
struct Calls {
  const MetricWindow& calls;
  double window_s;

  [[nodiscard]] std::optional<double> if_known(double value) const {
    return calls.is_known ? std::optional(value) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> rate() const {
    return if_known(static_cast<double>(calls.count) / window_s);
  }
  [[nodiscard]] std::optional<double> share() const { return if_known(calls.busy_s / window_s); }
  [[nodiscard]] std::optional<double> bytes() const {
    return if_known(static_cast<double>(calls.bytes) / window_s);
  }
  // Without a call that ended there is no mean; one that is still open says how long it is at
  // least.
  [[nodiscard]] std::optional<double> mean() const {
    if (calls.count == 0) return calls.open_s > 0 ? std::optional(calls.open_s) : std::nullopt;
    return std::max(calls.sum_s / static_cast<double>(calls.count), 0.0);
  }
  [[nodiscard]] std::optional<double> p99() const {
    if (calls.count == 0) return mean();
    return std::max(calls.p99_s, calls.open_s);
  }
  [[nodiscard]] std::optional<double> max() const {
    if (calls.count == 0) return mean();
    return std::max(calls.max_s, calls.open_s);
  }
};

Calls calls_of(const ProcessWindow& process, std::size_t metric, double window_s) {
  static const MetricWindow kUnknown;
  return {metric < process.metrics.size() ? process.metrics[metric] : kUnknown, window_s};
}

std::optional<double> value_of(const Calls& calls, capture::Statistic statistic) {
  switch (statistic) {
    case capture::Statistic::kRate:
      return calls.rate();
    case capture::Statistic::kMean:
      return calls.mean();
    case capture::Statistic::kP99:
      return calls.p99();
    case capture::Statistic::kMax:
      return calls.max();
    case capture::Statistic::kShare:
      return calls.share();
    case capture::Statistic::kBytes:
      return calls.bytes();
  }
  return std::nullopt;
}

void add_threads(detect::Window& row, const ProcessWindow& process, double s) {
  // The share by signals; else the state that a look saw (under a debugger, or stopped before it
  // was watched).
  double& stopped = row.values[static_cast<std::size_t>(detect::feature_index("stopped_share"))];
  stopped = std::isnan(stopped) ? (process.is_stopped ? 1.0 : 0.0) : std::min(stopped, 1.0);
  if (!process.has_threads) return;
  const auto rate = [&](std::uint64_t count) { return static_cast<double>(count) / s; };
  set_feature(row, "cpu_cores", process.runtime_s / s);
  set_feature(row, "cpu_wait", process.run_delay_s / s);
  set_feature(row, "switches", rate(process.voluntary));
  set_feature(row, "preemptions", rate(process.involuntary));
  set_feature(row, "minor_faults", rate(process.minor_faults));
  set_feature(row, "system_share", process.system_s / s);
  set_feature(row, "major_faults", rate(process.major_faults));
  set_feature(row, "disk_wait", process.blocked_threads);
  set_feature(row, "read_bytes", rate(process.read_bytes));
  set_feature(row, "write_bytes", rate(process.written_bytes));
  set_feature(row, "thread_count", process.thread_count);
}

}  // namespace

Result<std::vector<MetricFeature>> metric_features(const std::vector<capture::Pack>& packs,
                                                   const MetricTable& metrics) {
  std::vector<MetricFeature> out;
  const auto add = [&](std::size_t metric, capture::Statistic statistic, std::string_view feature) {
    const int index = detect::feature_index(feature);
    CHECK(index >= 0);
    out.push_back({metric, statistic, static_cast<std::size_t>(index)});
  };
  add(*metrics.index(MetricTable::kBlock), capture::Statistic::kMean, "block_latency");
  add(*metrics.index(MetricTable::kStop), capture::Statistic::kShare, "stopped_share");
  for (const capture::Pack& pack : packs) {
    for (const capture::FeatureRule& rule : pack.features) {
      const auto refuse = [&](std::string_view why) {
        return Error{Code::kCorrupt,
                     fmt::format("read {} [[feature]] {}: {}", pack.path, rule.name, why),
                     "docs/probes.md describes the format"};
      };
      if (rule.definition) {
        const auto layer = detect::layer_from_name(rule.definition->layer);
        if (!layer) return refuse("no such layer");
        detect::Feature feature{.name = rule.name,
                                .unit = capture::unit_of(rule.statistic),
                                .layer = *layer,
                                .floor = rule.definition->floor,
                                .worse = rule.definition->worse,
                                .meaning = rule.definition->meaning};
        if (rule.statistic == capture::Statistic::kShare) feature.scale = detect::Scale::kLinear;
        if (const auto added = detect::add_feature(feature); !added)
          return refuse(added.error().what);
      }
      if (detect::feature_index(rule.name) < 0)
        return refuse("it is unknown, and layer, floor and meaning are missing");
      const auto metric = metrics.index(rule.metric);
      if (!metric) return refuse(fmt::format("no probe counts for the metric {}", rule.metric));
      add(*metric, rule.statistic, rule.name);
    }
  }
  return out;
}

void CallSource::fill(const capture::WatchWindow& window, bool /*is_full*/,
                      std::vector<FeatureRow>& rows) {
  static const auto kStepRate = static_cast<std::size_t>(detect::feature_index("step_rate"));
  const double window_s = seconds_of(window);
  std::map<std::int32_t, std::uint64_t> open_faults;
  for (FeatureRow& row : rows) {
    for (const MetricFeature& rule : rules_) {
      const Calls calls = calls_of(*row.process, rule.metric, window_s);
      if (const auto value = value_of(calls, rule.statistic))
        row.window.values.at(rule.feature) = *value;
    }
    add_threads(row.window, *row.process, window_s);
    if (!row.process->has_threads) continue;
    // Faults of steps that are longer than a window belong to the window in which one ends.
    const std::uint64_t faults = open_faults_[row.window.pid] + row.process->minor_faults;
    const double steps = std::round(row.window.values.at(kStepRate) * window_s);
    const bool has_step = steps > 0;
    if (has_step) set_feature(row.window, "faults_per_step", static_cast<double>(faults) / steps);
    open_faults[row.window.pid] = has_step ? 0 : faults;
  }
  open_faults_ = std::move(open_faults);
}

}  // namespace kansoku::agent
