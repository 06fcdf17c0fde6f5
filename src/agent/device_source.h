// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/internal/peak_growth.h"
#include "agent/window_source.h"
#include "capture/metric.h"
#include "capture/nvml/counters.h"
#include "common/time.h"

namespace kansoku::agent {

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

/// Makes features of the figures of devices. Keeps the last ones. Single-threaded.
class DeviceFeatures {
 public:
  /// `devices`: empty without a GPU.
  void fill(const capture::WatchWindow& window,
            const std::vector<capture::nvml::DeviceSample>& devices, std::vector<FeatureRow>& rows);
  /// Errors of the last window that are in no row of it.
  [[nodiscard]] const std::vector<OrphanedErrors>& orphaned_errors() const { return orphaned_; }

 private:
  struct DeviceChange {
    double seconds{0};  // between the two times at which figures were asked for
    std::optional<std::uint64_t> ecc, replays;
    std::uint64_t xid{0};
  };
  void read_devices(const std::vector<capture::nvml::DeviceSample>& devices);
  void note_users(const std::vector<FeatureRow>& rows,
                  const std::vector<capture::nvml::DeviceSample>& devices);
  void add_devices(detect::Window& row, const capture::ProcessWindow& process,
                   const std::vector<capture::nvml::DeviceSample>& devices, double window_s);

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

/// The devices of this host. A library that has devices on every host (the software device's) is
/// opened only for a process that uses one.
class DeviceSource final : public WindowSource {
 public:
  struct Options {
    std::vector<std::string> libraries;  // the first that has devices
    std::function<void(const std::string&)> log;
  };
  /// `metrics`: of the windows to come; borrowed, as is the clock.
  DeviceSource(const Clock& clock, const capture::MetricTable& metrics, Options options);

  [[nodiscard]] std::string_view name() const override { return "devices"; }
  /// Asks devices in full windows; in others their last figures stand. Their reports of themselves
  /// are logged, whether or not a process is there to which it belongs.
  void fill(const capture::WatchWindow& window, bool is_full,
            std::vector<FeatureRow>& rows) override;
  [[nodiscard]] std::vector<incident::Observation> observations(std::int64_t begin_ns,
                                                                std::int64_t end_ns) override;
  [[nodiscard]] std::vector<std::string> hardware() const override;
  [[nodiscard]] std::string state() const override { return state_; }
  void add_losses(Losses& out) const override;

 private:
  void open(BootTime now);
  void sample(BootTime now);
  void log(const std::string& line) const;

  const Clock& clock_;
  const capture::MetricTable& metrics_;
  Options options_;
  std::unique_ptr<capture::nvml::DeviceCounters> devices_;  // null: none is open
  std::vector<capture::nvml::DeviceSample> samples_;        // the last ones
  DeviceFeatures features_;
  std::string state_{"none"};
  BootTime retry_at_{};
  bool is_used_{false};
  std::uint64_t errors_{0};
};

}  // namespace kansoku::agent
