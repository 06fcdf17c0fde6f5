// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "agent/host_meter.h"
#include "capture/nvml/counters.h"
#include "capture/watcher.h"
#include "detect/detector.h"

namespace kansoku::agent {

/// One watched process in one window, as numbers: detect::known_features() in their order.
struct FeatureRow {
  std::string job;  // equal on all ranks of one job
  detect::Window window;
  const capture::ProcessWindow* process{nullptr};  // borrowed from the window it was made of
};

/// Names the jobs of this host so that different ones never have the same name: two containers may
/// both have their rank 0 at 127.0.0.1:29500, and an environment is whatever a user writes into it.
/// Single-threaded.
class JobNames {
 public:
  /// The name that the environment tells, or the program and its pid. If another user's processes,
  /// or for loopback addresses those of another network namespace, have the name: with "#2" and so
  /// on behind it.
  [[nodiscard]] std::string name_of(const capture::JobProcess& process);
  /// Names that nobody used since the last call are free again.
  void end_window();

 private:
  using Owner = std::tuple<std::string, std::uint32_t, std::uint64_t>;  // name, user, network
  struct Named {
    std::string name;
    bool is_used{true};
  };
  std::map<Owner, Named> names_;
};

/// Makes feature rows of windows. Keeps the last counters of devices, so one object serves for the
/// life of the agent. Single-threaded.
class FeatureMaker {
 public:
  /// Rows in the order of `window.processes`. `devices`: empty without a GPU. Of processes of a job
  /// that say they are the same rank the oldest is; each other one is a job of its own.
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

  JobNames names_;
  std::map<std::uint32_t, capture::nvml::DeviceSample> last_devices_;
  std::map<std::uint32_t, DeviceChange> device_changes_;
  std::map<std::int32_t, double> last_memory_, next_memory_;  // on devices, by pid
};

}  // namespace kansoku::agent
