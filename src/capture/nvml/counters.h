// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"

namespace kansoku::capture::nvml {

STAT(device_failed_calls, kNotice, kCapture,
     "calls of the device library that failed; their figures are missing");
STAT(device_hung_calls, kDataLoss, kCapture,
     "calls of the device library that did not return; check the driver's messages (dmesg)");
STAT(device_lost, kDataLoss, kCapture,
     "times a device was lost or stopped answering; its last figures are old");
STAT(device_odd_values, kNotice, kCapture,
     "figures of the device library that cannot be right were left out");
STAT(device_processes_cut, kNotice, kCapture,
     "processes of a device beyond the limit of 1,024 were left out");

/// Identity of a device; does not change while it is open.
struct DeviceInfo {
  std::uint32_t index{0};  // the library's, which may differ from the number that a job sees
  std::string uuid;        // "GPU-..."; "" if the library does not tell
  std::string name;
};

/// Use of a device by one process. `pid` is that of the host, or of the caller's namespace, as the
/// driver has it.
struct ProcessFigures {
  std::uint32_t pid{0};
  std::optional<std::uint64_t> memory_bytes;
  // Shares of the last second or so, 0 to 1.
  std::optional<double> utilization, memory_utilization, encoder_utilization, decoder_utilization;
};

/// Figures of a device, as it reports them. A figure without a value is one that the device does
/// not have or did not tell this time; that is never 0.
struct DeviceFigures {
  std::optional<double> utilization, memory_utilization;  // 0 to 1: time in which any kernel ran
  std::optional<std::uint64_t> memory_used_bytes, memory_total_bytes;
  std::optional<double> sm_clock_hz, sm_clock_max_hz, memory_clock_hz, memory_clock_max_hz;
  std::optional<double> power_watts, power_limit_watts;
  std::optional<double> temperature_celsius;
  std::optional<std::uint64_t> throttle_reasons;  // bits, see throttle_reason_names()
  // Errors of memory since the driver was loaded.
  std::optional<std::uint64_t> ecc_corrected, ecc_uncorrected;
  std::optional<std::uint64_t> remapped_rows_corrected, remapped_rows_uncorrected;
  std::optional<bool> is_remap_pending, has_remap_failed;
  std::optional<double> pcie_sent_per_s, pcie_received_per_s;  // bytes; sent: device to host
  std::optional<std::uint64_t> pcie_replays;
  std::optional<double> nvlink_sent_per_s, nvlink_received_per_s;  // bytes of data, all links
  std::optional<std::uint64_t> nvlink_replays, nvlink_recoveries, nvlink_crc_errors;
  std::optional<std::vector<ProcessFigures>> processes;  // ascending by pid
};

struct DeviceSample {
  std::uint32_t index{0};
  /// When `figures` were asked for; nothing if the device has not answered yet.
  std::optional<BootTime> read_at;
  bool is_lost{false};  // it fell off the bus or stopped answering; `figures` are its last
  DeviceFigures figures;
  /// XID errors since the device was opened, and the last of them. Kept apart from `figures`: they
  /// also come from a device that is lost.
  std::uint64_t xid_count{0};
  std::optional<std::uint64_t> last_xid;
};

/// Totals of the counters above.
struct DeviceCounterStats {
  std::uint64_t failed_calls{0}, hung_calls{0}, lost{0}, odd_values{0}, processes_cut{0};
};

/// The devices of this host, of any maker. Not shared between threads.
class DeviceCounters {
 public:
  DeviceCounters() = default;
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;
  virtual ~DeviceCounters() = default;

  [[nodiscard]] virtual const std::vector<DeviceInfo>& devices() const = 0;
  /// One entry a device, by index: new figures if they come before the deadline, else the last ones
  /// with the time they are of. `now` must not go back. Blocks for the deadline at most, whatever
  /// the library does.
  [[nodiscard]] virtual std::vector<DeviceSample> sample(BootTime now) = 0;
  [[nodiscard]] virtual DeviceCounterStats stats() const = 0;
};

struct NvmlOptions {
  std::string library{"libnvidia-ml.so.1"};        // searched for as the loader does, or a path
  Nanos deadline{std::chrono::milliseconds{100}};  // of sample()
  Nanos open_deadline{std::chrono::seconds{10}};   // drivers without persistence take seconds
  Nanos hang_after{std::chrono::seconds{2}};       // a call that takes longer has lost its device
  Nanos retry_first{std::chrono::seconds{1}}, retry_max{std::chrono::seconds{60}};  // of a lost one
};

/// NVIDIA's devices, through the driver's management library. kUnavailable without library or
/// driver, kNotFound if there is no device, kPermission, kTimeout if the library does not answer.
/// The library is called in a thread of its own and stays loaded. Blocks for `open_deadline` at
/// most.   Source: NVML's public interface, from driver 450 on.
[[nodiscard]] Result<std::unique_ptr<DeviceCounters>> open_nvml(const NvmlOptions& options = {});

/// Names of the reasons in a mask, for instance {"sw_power_cap"}; bits without a name are left out.
/// "idle" and "application_clocks" are no faults.
[[nodiscard]] std::vector<std::string_view> throttle_reason_names(std::uint64_t reasons);

/// How far a counter moved: nothing if a value is missing or if it went back (a reset or a wrap,
/// which cannot be told apart).
[[nodiscard]] std::optional<std::uint64_t> counter_change(std::optional<std::uint64_t> before,
                                                          std::optional<std::uint64_t> now);

}  // namespace kansoku::capture::nvml
