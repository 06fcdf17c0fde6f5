// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/stat.h"

namespace kansoku::exporter {

STAT(export_dropped_series, kDataLoss, kCapture,
     "more time series than the limit; watch fewer jobs or raise the limit of series");

enum class MetricType : std::uint8_t { kGauge, kCounter, kHistogram };

/// Definition of one metric. The texts are borrowed by tables of constants and copied by MetricSet.
struct MetricDef {
  std::string_view name;  // "kansoku_step_mean_seconds"; a counter's without "_total"
  std::string_view unit;  // Prometheus' word, also the name's end: "seconds", "bytes"; may be empty
  MetricType type{MetricType::kGauge};
  std::string_view help;
};

/// Name and value, sorted by name once in a MetricSet. A value is any text: it is cut to
/// kLabelBytesMax and bytes in it that are no UTF-8 are replaced.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// Counts by upper bound, as recorded: `counts` has one entry more than `bounds`, for values above
/// all of them.
struct Histogram {
  std::vector<double> bounds;  // rising, finite
  std::vector<std::uint64_t> counts;
  double sum{0};
};

/// One time series now.
struct Sample {
  Labels labels;
  double value{0};                      // of gauges and counters
  Histogram histogram;                  // of histograms
  std::optional<std::int64_t> wall_ns;  // when it was measured, if not now
};

/// All series of one metric.
struct Family {
  std::string name, unit, help;
  MetricType type{MetricType::kGauge};
  std::vector<Sample> samples;  // sorted by labels: the same values give the same bytes
};

/// Prometheus' word for a unit of detection's feature table: "s" is "seconds", "bytes/s"
/// "bytes_per_second", "1/s" "per_second"; empty for a unit without one.
[[nodiscard]] std::string_view unit_word(std::string_view unit);
/// The exported name of a feature: "kansoku_" + name + "_" + unit_word(unit). "_bytes" comes once
/// ("read_bytes" in bytes/s is kansoku_read_bytes_per_second), "thread_count" is kansoku_threads.
[[nodiscard]] std::string feature_metric(std::string_view feature, std::string_view unit);
/// True for a name that every format takes: [a-zA-Z_][a-zA-Z0-9_]*, at most 128 bytes.
[[nodiscard]] bool is_metric_name(std::string_view name);

/// A snapshot of metrics, the model that all formats are written from. Bounded: at most
/// `series_max` series, a histogram counts as one for each bucket; further ones are dropped and
/// counted. A value type; not shared between threads while it is filled.
class MetricSet {
 public:
  static constexpr std::size_t kSeriesMax = 20'000;
  static constexpr std::size_t kLabelBytesMax = 256;
  static constexpr std::size_t kLabelsMax = 8;

  explicit MetricSet(std::size_t series_max = kSeriesMax) : series_max_(series_max) {}

  /// One value of a gauge or counter; the same labels again replace it. NaN stands for "not seen"
  /// and adds nothing. Names must be is_metric_name(), the type that of earlier calls.
  void add(const MetricDef& def, Labels labels, double value,
           std::optional<std::int64_t> wall_ns = std::nullopt);
  /// One histogram; `counts` must be one longer than `bounds`.
  void add(const MetricDef& def, Labels labels, Histogram histogram,
           std::optional<std::int64_t> wall_ns = std::nullopt);

  /// By name.
  [[nodiscard]] std::vector<Family> families() const;
  [[nodiscard]] std::size_t series_count() const { return series_count_; }
  [[nodiscard]] std::uint64_t dropped_count() const { return dropped_count_; }
  /// Raises the limit by one series: for the metric which tells that the set is full.
  void make_room() { ++series_max_; }

 private:
  struct Entry {
    Family family;  // without samples
    std::map<Labels, Sample> samples;
  };
  Entry& entry(const MetricDef& def);
  void put(Entry& entry, std::size_t series, Labels labels, Sample sample);

  std::size_t series_max_, series_count_{0};
  std::uint64_t dropped_count_{0};
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Exchange of the latest snapshot: the measuring side leaves it, the exporting side takes it. All
/// calls from any thread; none waits for more than a pointer's copy.
class MetricBoard {
 public:
  /// Replaces the snapshot. Adds the metric of series dropped so far,
  /// kansoku_export_dropped_series.
  void publish(MetricSet set);
  /// Never null; an empty set before the first publish.
  [[nodiscard]] std::shared_ptr<const MetricSet> latest() const;

 private:
  std::atomic<std::uint64_t> dropped_total_{0};
  mutable std::mutex mu_;
  std::shared_ptr<const MetricSet> latest_ = std::make_shared<MetricSet>();  // guarded by mu_
};

}  // namespace kansoku::exporter
