// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "agent/window_source.h"
#include "capture/metric.h"
#include "capture/pack.h"
#include "common/result.h"

namespace kansoku::agent {

/// A feature that is made of a metric.
struct MetricFeature {
  std::size_t metric{0};  // of the watcher's table
  capture::Statistic statistic{};
  std::size_t feature{0};  // index in detect::known_features()
};
/// The features that packs make of their metrics. Adds the packs' definitions to
/// detect::known_features(). An error names the pack and the feature.
[[nodiscard]] Result<std::vector<MetricFeature>> metric_features(
    const std::vector<capture::Pack>& packs, const capture::MetricTable& metrics);

/// The calls that probes count, and the kernel's counters of threads.
class CallSource final : public WindowSource {
 public:
  /// `rules`: the features that are made of the metrics.
  explicit CallSource(const std::vector<MetricFeature>& rules) : rules_(rules) {}

  [[nodiscard]] std::string_view name() const override { return "calls"; }
  void fill(const capture::WatchWindow& window, bool is_full,
            std::vector<FeatureRow>& rows) override;

 private:
  std::vector<MetricFeature> rules_;
  std::map<std::int32_t, std::uint64_t> open_faults_;  // by process, since its last step ended
};

}  // namespace kansoku::agent
