// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <vector>

#include "capture/nvml/counters.h"
#include "capture/nvml/internal/api.h"

namespace kansoku::capture::nvml {

/// Reads one device. Every call may take as long as the library likes. One thread at a time.
class DeviceReader {
 public:
  DeviceReader(const api::Api& api, api::Handle device, std::uint32_t index);

  [[nodiscard]] DeviceInfo info();
  /// False: the device is lost, or answers nothing at all; `figures` are then of no use.
  [[nodiscard]] bool read(BootTime now, DeviceFigures& figures);
  /// The next rates have no window: time has passed that was not read.
  void forget_window() { before_ = {}; }
  [[nodiscard]] api::Handle device() const { return device_; }
  /// Counts since the last call.
  [[nodiscard]] DeviceCounterStats take_stats();

 private:
  enum Call : std::size_t {
    kUtilization,
    kMemory2,
    kMemory1,
    kSmClock,
    kSmClockMax,
    kMemoryClock,
    kMemoryClockMax,
    kPower,
    kPowerLimit,
    kTemperature,
    kReasons,
    kEccCorrected,
    kEccUncorrected,
    kRemapped,
    kFields,
    kPcieSent,
    kPcieReceived,
    kPcieReplays,
    kProcesses,
    kProcessUse,
    kCalls,
  };
  struct Window {
    std::optional<BootTime> at;
    std::optional<std::uint64_t> pcie_sent, pcie_received, nvlink_sent, nvlink_received;
  };

  template <class... Parameters, class... Arguments>
  int call(Call which, int (*function)(api::Handle, Parameters...), Arguments... arguments);
  void count_failure(Call which, int status);
  std::optional<unsigned> number(Call which, int (*function)(api::Handle, unsigned*));
  std::optional<double> hertz(Call which, int (*function)(api::Handle, int, unsigned*), int clock);
  std::optional<double> share(unsigned percent);
  void read_load(DeviceFigures& figures);
  void read_state(DeviceFigures& figures);
  void read_errors(DeviceFigures& figures);
  void read_links(BootTime now, DeviceFigures& figures);
  void read_pcie_throughput(DeviceFigures& figures);
  std::optional<std::uint64_t> counter(const api::FieldValue& field);
  void read_processes(DeviceFigures& figures);
  void add_process_use(std::map<std::uint32_t, ProcessFigures>& processes,
                       const DeviceFigures& figures);
  template <class Process>
  bool list_processes(int (*function)(api::Handle, unsigned*, Process*),
                      std::map<std::uint32_t, ProcessFigures>& processes);

  const api::Api* api_;
  api::Handle device_;
  std::uint32_t index_;
  std::bitset<kCalls> unsupported_;  // not asked for again for a while
  std::uint64_t reads_{0};
  bool is_lost_{false}, has_asked_{false}, has_answered_{false};  // in this read
  Window before_;
  DeviceCounterStats stats_;
};

}  // namespace kansoku::capture::nvml
