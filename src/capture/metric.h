// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/pack.h"

namespace kansoku::capture {

/// Metrics that calls are totalled under, by number: the names that packs give, the derived ones of
/// metrics with steps, and two of the host.
class MetricTable {
 public:
  static constexpr std::string_view kBlock = "block";  // block requests, by who issued them
  static constexpr std::string_view kStop = "stop";    // being stopped by a signal
  static constexpr std::size_t kMetricsMax = 128;      // the rest is not counted

  explicit MetricTable(const std::vector<Pack>& packs);

  [[nodiscard]] std::size_t size() const { return metrics_.size(); }
  [[nodiscard]] const std::string& name(std::size_t metric) const {
    return metrics_.at(metric).name;
  }
  [[nodiscard]] std::optional<std::size_t> index(std::string_view name) const;
  /// Names beyond the limit.
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  /// Category of the probes that feed it; "" for metrics of the host.
  [[nodiscard]] const std::string& category(std::size_t metric) const {
    return metrics_.at(metric).category;
  }
  /// True if a process that makes such calls is nobody's helper.
  [[nodiscard]] bool is_work(std::size_t metric) const { return metrics_.at(metric).is_work; }
  /// Derived metrics of a metric with steps: the times from call to call, and from return to call.
  [[nodiscard]] std::optional<std::size_t> interval_of(std::size_t metric) const {
    return metrics_.at(metric).interval;
  }
  [[nodiscard]] std::optional<std::size_t> gap_of(std::size_t metric) const {
    return metrics_.at(metric).gap;
  }

 private:
  struct Metric {
    std::string name{}, category{};
    bool is_work{false};
    std::optional<std::size_t> interval{}, gap{};
  };
  std::optional<std::size_t> add(const std::string& name, const std::string& category,
                                 bool is_work);
  void add_steps(std::size_t metric);

  std::vector<Metric> metrics_;
  std::size_t left_out_{0};
};

}  // namespace kansoku::capture
