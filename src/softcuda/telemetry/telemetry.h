// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::softcuda {

// Reports of the processes that use a software device, and settings for them: one small file a
// device, mapped by the driver (writes its slot), by the NVML stand-in (reads) and by
// `kansoku gpu set` (writes the settings). All of the same user; layout version kTelemetryVersion.

inline constexpr std::uint32_t kTelemetryMagic = 0x6b736770;
inline constexpr std::uint32_t kTelemetryVersion = 1;
inline constexpr std::size_t kTelemetrySlots = 64;  // processes at once; more are not shown

/// A device runs at its nominal clock, draws this and is this warm.
inline constexpr std::uint32_t kNominalClockMhz = 1410, kMemoryClockMhz = 1215;
inline constexpr std::uint32_t kIdleMilliwatts = 50'000, kPowerLimitMilliwatts = 300'000;
inline constexpr std::uint32_t kIdleCelsius = 35, kBusyCelsius = 70, kSlowdownCelsius = 90;

struct TelemetrySlot {
  std::atomic<std::uint32_t> pid{0};  // 0: free
  std::uint32_t reserved{0};
  // Start time of the process, from /proc/PID/stat; 0 while it takes the slot.
  std::atomic<std::uint64_t> start_ticks{0};
  std::atomic<std::uint64_t> memory_bytes{0};    // allocated on the device
  std::atomic<std::uint64_t> busy_ns{0};         // kernels and copies ran, at any time at least one
  std::atomic<std::uint64_t> busy_since_ns{0};   // CLOCK_BOOTTIME; 0: idle. Not yet in busy_ns
  std::atomic<std::uint64_t> memory_busy_ns{0};  // copies
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> copied_to_device_bytes{0}, copied_to_host_bytes{0};
};

struct Telemetry {
  std::atomic<std::uint32_t> magic{0}, version{0};
  std::array<char, 16> uuid{};
  std::atomic<std::uint64_t> memory_bytes{0};  // of the device
  std::atomic<std::uint32_t> sm_count{0};
  // Settings; anyone of the user may change them while jobs run.
  std::atomic<std::uint32_t> speed_permille{1000};    // 1 to 1000: how fast kernels and copies are
  std::atomic<std::uint32_t> throttle_reasons{0};     // one of kThrottle...
  std::atomic<std::uint32_t> temperature_celsius{0};  // 0: from load and speed
  std::atomic<std::uint32_t> corrected_errors{0}, uncorrected_errors{0};  // ECC
  std::atomic<std::uint32_t> last_xid{0};
  std::atomic<std::uint32_t> slots_missing{0};  // processes that found no free slot
  std::array<TelemetrySlot, kTelemetrySlots> slots{};
};

/// $KANSOKU_SOFTGPU_DIR, or /dev/shm/kansoku-softgpu-UID.
[[nodiscard]] std::string telemetry_folder();

/// Maps the file of a device, made (mode 0600, folder 0700) if it is not there. Stays mapped until
/// the process ends. kPermission if the folder belongs to somebody else, kCorrupt if the file is of
/// another version. Any thread.
[[nodiscard]] Result<Telemetry*> map_telemetry(int ordinal);

/// A slot for this process; those of processes that have ended are taken over. Null if all are in
/// use.
[[nodiscard]] TelemetrySlot* take_slot(Telemetry& telemetry);
/// True if the process of the slot still runs.
[[nodiscard]] bool is_alive(const TelemetrySlot& slot);

/// NVML's reasons for a lower clock. kAuto: from the speed; kNone: none although it is slow.
inline constexpr std::uint32_t kThrottleAuto = 0, kThrottleIdle = 0x1, kThrottlePower = 0x4,
                               kThrottleThermal = 0x20, kThrottleNone = 0x80000000;
/// From "auto", "none", "idle", "power" or "thermal"; kCorrupt.
[[nodiscard]] Result<std::uint32_t> throttle_reasons_of(std::string_view name);

/// "GPU-4b414e53-...", as NVML and CUDA_VISIBLE_DEVICES write it.
[[nodiscard]] std::string uuid_text(const std::array<char, 16>& uuid);
[[nodiscard]] std::array<char, 16> device_uuid(int ordinal);

/// The devices among 0 to `count` - 1 that a process sees, in the order in which it numbers them.
/// `setting` is $CUDA_VISIBLE_DEVICES, or null: indices or begins of UUIDs, separated by commas.
/// The first that is none, or is there already, ends the list, as with CUDA's driver.
[[nodiscard]] std::vector<int> visible_devices(int count, const char* setting);

/// Devices: $KANSOKU_SOFTGPU_DEVICES, 1 to 16 [1].
[[nodiscard]] int device_count_setting();
/// Bytes of memory: $KANSOKU_SOFTGPU_MEMORY ("4G", "512M") [4G].
[[nodiscard]] std::uint64_t memory_setting();
/// Compute capability times ten: $KANSOKU_SOFTGPU_ARCH, sm_61 or sm_80 [sm_80]. Programs choose
/// kernels by it, and fatbins an image; the device executes the same.
[[nodiscard]] int architecture_setting();

}  // namespace kansoku::softcuda
