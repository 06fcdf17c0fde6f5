// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/host_meter.h"
#include "agent/internal/peak_growth.h"
#include "capture/job_names.h"
#include "capture/metric.h"
#include "capture/nvml/counters.h"
#include "capture/pack.h"
#include "capture/watcher.h"
#include "detect/detector.h"

namespace kansoku::agent {

/// One watched process in one window, as numbers: detect::known_features() in their order.
struct FeatureRow {
  std::string job;           // equal on all ranks of one job
  bool is_local_job{false};  // the name means nothing on other hosts
  detect::Window window;
  const capture::ProcessWindow* process{nullptr};  // borrowed from the window it was made of
};

/// Errors that a device reports when whoever used it has just ended: most of them end it.
struct OrphanedErrors {
  std::uint32_t device{0};
  std::uint64_t count{0};
  std::optional<std::uint64_t> last_xid;
  struct User {
    std::string job;
    std::int32_t rank{-1}, pid{0};
  };
  std::vector<User> users;  // the last ones, in the order of their pids
};

/// A feature that is made of a metric.
struct MetricFeature {
  std::size_t metric{0};  // of the watcher's table
  capture::Statistic statistic{};
  std::size_t feature{0};  // index in detect::known_features()
};
/// The features that packs make of their metrics. Adds to detect::known_features() what packs
/// define. An error names the pack and the feature.
[[nodiscard]] Result<std::vector<MetricFeature>> metric_features(
    const std::vector<capture::Pack>& packs, const capture::MetricTable& metrics);

/// Makes feature rows of windows. Keeps the last counters of devices, so one object serves for the
/// life of the agent. Single-threaded.
class FeatureMaker {
 public:
  /// `rules`: what is made of the metrics.
  explicit FeatureMaker(const std::vector<MetricFeature>& rules = {}) : rules_(rules) {}
  /// Rows in the order of `window.processes`. `devices`: empty without a GPU. Of processes of a job
  /// that say they are the same rank the oldest of those that do its work is; each other one is a
  /// job of its own.
  [[nodiscard]] std::vector<FeatureRow> make(
      const capture::WatchWindow& window, const HostWindow& host,
      const std::vector<capture::nvml::DeviceSample>& devices);
  /// Of the last window: errors that are in no row of it.
  [[nodiscard]] const std::vector<OrphanedErrors>& orphaned_errors() const { return orphaned_; }

 private:
  struct DeviceChange {
    double seconds{0};  // between the two times at which figures were asked for
    std::optional<std::uint64_t> ecc, replays;
    std::uint64_t xid{0};
  };
  void set_places(std::vector<FeatureRow>& rows);
  void read_devices(const std::vector<capture::nvml::DeviceSample>& devices);
  void note_users(const std::vector<FeatureRow>& rows,
                  const std::vector<capture::nvml::DeviceSample>& devices);
  void add_devices(detect::Window& row, const capture::ProcessWindow& process,
                   const std::vector<capture::nvml::DeviceSample>& devices, double window_s);

  void add_calls(detect::Window& row, const capture::ProcessWindow& process, double window_s) const;

  std::vector<MetricFeature> rules_;
  capture::JobNames names_;
  std::map<std::uint32_t, capture::nvml::DeviceSample> last_devices_;
  std::map<std::uint32_t, DeviceChange> device_changes_;
  std::map<std::int32_t, PeakGrowth> last_memory_, next_memory_;  // by pid
  struct LastUsers {
    std::vector<OrphanedErrors::User> users;
    int windows_ago{0};
  };
  std::map<std::uint32_t, LastUsers> last_users_;
  std::vector<OrphanedErrors> orphaned_;
};

}  // namespace kansoku::agent
