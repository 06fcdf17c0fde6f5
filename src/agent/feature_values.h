// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/host_meter.h"
#include "capture/job_names.h"
#include "capture/nvml/counters.h"
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

/// Makes feature rows of windows. Keeps the last counters of devices, so one object serves for the
/// life of the agent. Single-threaded.
class FeatureMaker {
 public:
  /// Rows in the order of `window.processes`. `devices`: empty without a GPU. Of processes of a job
  /// that say they are the same rank the oldest of those that do its work is; each other one is a
  /// job of its own.
  [[nodiscard]] std::vector<FeatureRow> make(
      const capture::WatchWindow& window, const HostWindow& host,
      const std::vector<capture::nvml::DeviceSample>& devices);

 private:
  struct DeviceChange {
    std::optional<std::uint64_t> ecc, replays;
    std::uint64_t xid{0};
  };
  void set_places(std::vector<FeatureRow>& rows);
  void read_devices(const std::vector<capture::nvml::DeviceSample>& devices);
  void add_devices(detect::Window& row, const capture::ProcessWindow& process,
                   const std::vector<capture::nvml::DeviceSample>& devices, double window_s);

  capture::JobNames names_;
  std::map<std::uint32_t, capture::nvml::DeviceSample> last_devices_;
  std::map<std::uint32_t, DeviceChange> device_changes_;
  std::map<std::int32_t, double> last_memory_, next_memory_;  // on devices, by pid
};

}  // namespace kansoku::agent
