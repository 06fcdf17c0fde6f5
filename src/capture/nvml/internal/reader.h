// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
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
  /// True if there are counters of PCIe, to be looked at again from second_look_at() (of the real
  /// clock) on.
  [[nodiscard]] bool wants_second_look() const { return first_look_.has_value(); }
  [[nodiscard]] BootTime second_look_at() const { return first_look_->at + kSecondLookAfter; }
  /// Adds the rates of PCIe since the first look to the figures of read(). The counters have 32
  /// bits (by the driver's public sources), which a busy link fills in less than 0.1 s.
  void second_look(DeviceFigures& figures);
  static constexpr Nanos kSecondLookAfter = std::chrono::milliseconds{20};
  /// If the driver measures PCIe itself, which takes 40 ms, asks in every `turns`th reading only.
  void measure_pcie_in_turns(std::uint64_t turns) { turns_ = turns; }
  /// The next rates have no window: time has passed that was not read.
  void forget_window() {
    before_ = {};
    first_look_.reset();
    measured_ = {};
  }
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
    std::optional<std::uint64_t> nvlink_sent, nvlink_received;
  };
  struct PcieLook {
    BootTime at{};
    std::optional<std::uint64_t> sent, received;
  };
  struct PcieRates {
    std::optional<double> sent_per_s, received_per_s;
  };
  struct Use {
    api::ProcessUse use;
    BootTime seen{};
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
  void read_processes(BootTime now, DeviceFigures& figures);
  void add_process_use(BootTime now, std::map<std::uint32_t, ProcessFigures>& processes,
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
  std::optional<PcieLook> first_look_;
  PcieRates measured_;  // by the driver, some readings ago
  std::uint64_t turns_{1};
  std::map<std::uint32_t, Use> uses_;  // the last of each process, where there are several
  std::int64_t newest_use_us_{0};
  DeviceCounterStats stats_;
};

}  // namespace kansoku::capture::nvml
