// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVML: what the software devices really do, as the processes that use them say in
// shared memory, and a clock, power and temperature that follow the speed they are set to. Numbers,
// names and structures are those of NVML's public interface.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "softcuda/telemetry/process_watch.h"
#include "softcuda/telemetry/telemetry.h"

namespace kansoku::softcuda {
namespace {

enum Status : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kTimeout = 10,
  kUnknown = 999,
};

struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct MemoryInfo2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo1 {
  unsigned pid;
  unsigned long long used_bytes;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct ProcessSample {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;  // percent
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr int kCudaVersion = 13000;
constexpr unsigned kNoInstance = 0xffffffff;
constexpr unsigned long long kEventXid = 8;
constexpr auto kSamplePeriod = std::chrono::milliseconds{100};
constexpr std::uint64_t kWindowNs = 1'000'000'000;  // that utilisation is an average over

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}
std::uint64_t wall_us() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec) / 1000;
}

/// Use of one process up to some time.
struct Use {
  std::uint64_t start_ticks{0};
  std::uint64_t busy_ns{0}, memory_busy_ns{0};
  std::uint64_t to_device{0}, to_host{0};
};
struct Sample {
  std::uint64_t time_ns{0};
  std::map<std::uint32_t, Use> by_pid;
};

/// One device, looked at again and again by a thread.
struct Device {
  int ordinal{0};
  Telemetry* telemetry{nullptr};
  ProcessWatch* processes{nullptr};
  std::mutex mutex;
  std::deque<Sample> samples;   // guarded by mutex; of the last window and a bit, never empty
  double energy_millijoule{0};  // guarded by mutex; since nvmlInit
  std::uint32_t last_xid{0};

  [[nodiscard]] Sample sample_now() const {
    Sample sample;
    sample.time_ns = now_ns();
    for (const TelemetrySlot& slot : telemetry->slots) {
      if (!processes->is_alive(slot)) continue;
      Use use;
      use.start_ticks = slot.start_ticks;
      const std::uint64_t since = slot.busy_since_ns;
      use.busy_ns = slot.busy_ns;
      if (since != 0 && since < sample.time_ns) use.busy_ns += sample.time_ns - since;
      use.memory_busy_ns = slot.memory_busy_ns;
      use.to_device = slot.copied_to_device_bytes;
      use.to_host = slot.copied_to_host_bytes;
      sample.by_pid[slot.pid] = use;
    }
    return sample;
  }

  /// Now, and what was one window ago or as long as somebody has looked. If the sampler had no
  /// processor for a whole window: its latest sample, however old.
  std::pair<Sample, Sample> window() {
    const std::scoped_lock lock(mutex);  // first: none of the samples is newer
    Sample last = sample_now();
    const auto within = std::find_if(samples.begin(), samples.end(), [&](const Sample& sample) {
      return sample.time_ns + kWindowNs >= last.time_ns;
    });
    Sample first = within != samples.end() ? *within : samples.back();
    return {std::move(first), std::move(last)};
  }

  [[nodiscard]] double speed() const {
    return std::clamp(telemetry->speed_permille.load(), 1U, 1000U) / 1000.0;
  }
};

/// Change of a counter of one process within a window; what a new process had done counts whole.
std::uint64_t change(const Sample& first, std::uint32_t pid, const Use& last,
                     std::uint64_t Use::*counter) {
  const auto found = first.by_pid.find(pid);
  const bool is_same = found != first.by_pid.end() && found->second.start_ticks == last.start_ticks;
  const std::uint64_t before = is_same ? found->second.*counter : 0;
  return last.*counter > before ? last.*counter - before : 0;
}

unsigned percent(std::uint64_t part_ns, std::uint64_t whole_ns) {
  if (whole_ns == 0) return 0;
  return static_cast<unsigned>(
      std::min<std::uint64_t>(100, (part_ns * 100 + whole_ns / 2) / whole_ns));
}

/// Share of all processes; those that ran at the same time may overlap, so 100 is the most.
unsigned total_percent(const Sample& first, const Sample& last, std::uint64_t Use::*counter) {
  std::uint64_t busy = 0;
  for (const auto& [pid, use] : last.by_pid)
    busy += change(first, pid, use, counter);
  return percent(busy, last.time_ns - first.time_ns);
}

double milliwatts(const Device& device, const Sample& first, const Sample& last) {
  const double load = total_percent(first, last, &Use::busy_ns) / 100.0;
  return kIdleMilliwatts + (kPowerLimitMilliwatts - kIdleMilliwatts) * load * device.speed();
}
double milliwatts(Device& device) {
  const auto [first, last] = device.window();
  return milliwatts(device, first, last);
}

struct Library {
  ProcessWatch processes;
  std::vector<std::unique_ptr<Device>> devices;
  std::thread sampler;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over{false};  // guarded by mutex

  void sample_all() {
    pthread_setname_np(pthread_self(), "softgpu-nvml");
    std::unique_lock lock(mutex);
    while (!over.wait_for(lock, kSamplePeriod, [this] { return is_over; })) {
      for (const auto& device : devices) {
        auto [first, sample] = device->window();
        const double power = milliwatts(*device, first, sample);
        const std::scoped_lock mine(device->mutex);
        if (!device->samples.empty()) {
          device->energy_millijoule +=
              power * static_cast<double>(sample.time_ns - device->samples.back().time_ns) * 1e-9;
        }
        device->samples.push_back(std::move(sample));
        while (device->samples.size() > 1 &&
               device->samples.back().time_ns - device->samples[1].time_ns > kWindowNs)
          device->samples.pop_front();
      }
    }
  }
};

std::mutex g_mutex;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
// Programs may end without nvmlShutdown: the thread then goes with the process.
Library* g_library{nullptr};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
int g_count{0};               // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

int start() {
  const std::scoped_lock lock(g_mutex);
  if (g_count++ > 0) return kSuccess;
  auto library = std::make_unique<Library>();
  for (int i = 0; i < device_count_setting(); ++i) {
    const auto telemetry = map_telemetry(i);
    if (!telemetry) {
      g_count = 0;
      return kUnknown;
    }
    auto device = std::make_unique<Device>();
    device->ordinal = i;
    device->telemetry = *telemetry;
    device->processes = &library->processes;
    device->last_xid = (*telemetry)->last_xid;
    device->samples.push_back(device->sample_now());
    library->devices.push_back(std::move(device));
  }
  Library* const raw = library.release();
  raw->sampler = std::thread([raw] { raw->sample_all(); });
  g_library = raw;
  return kSuccess;
}

int stop() {
  const std::scoped_lock lock(g_mutex);
  if (g_count == 0) return kUninitialized;
  if (--g_count > 0) return kSuccess;
  {
    const std::scoped_lock mine(g_library->mutex);
    g_library->is_over = true;
  }
  g_library->over.notify_one();
  g_library->sampler.join();
  const std::unique_ptr<Library> owner(g_library);
  g_library = nullptr;
  return kSuccess;
}

/// The device behind a handle, which is its address.
int find(const void* handle, Device*& device) {
  const std::scoped_lock lock(g_mutex);
  if (g_library == nullptr) return kUninitialized;
  for (const auto& mine : g_library->devices) {
    if (mine.get() != handle) continue;
    device = mine.get();
    return kSuccess;
  }
  return kInvalidArgument;
}

template <class Predicate>
int find_if(void** handle, const Predicate& predicate) {
  const std::scoped_lock lock(g_mutex);
  if (g_library == nullptr) return kUninitialized;
  if (handle == nullptr) return kInvalidArgument;
  for (const auto& device : g_library->devices) {
    if (!predicate(*device)) continue;
    *handle = device.get();
    return kSuccess;
  }
  return kNotFound;
}

int give(const std::string& text, char* out, unsigned bytes) {
  if (out == nullptr) return kInvalidArgument;
  if (bytes <= text.size()) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

std::string bus_text(const Device& device) {
  return fmt::format("00000000:{:02X}:00.0", device.ordinal + 1);
}

template <class Value>
int answer(const void* handle, Value* out, Value (*value)(Device&)) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (out == nullptr) return kInvalidArgument;
  *out = value(*device);
  return kSuccess;
}

unsigned long long used_bytes(const Device& device) {
  unsigned long long used = 0;
  for (const TelemetrySlot& slot : device.telemetry->slots)
    used += device.processes->is_alive(slot) ? slot.memory_bytes.load() : 0;
  return used;
}
unsigned long long total_bytes(const Device& device) {
  return std::max<unsigned long long>(device.telemetry->memory_bytes, used_bytes(device));
}

int clock_info(const void* handle, int type, unsigned* mhz, bool is_max) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (mhz == nullptr || type < 0 || type > 3) return kInvalidArgument;
  constexpr int kMemoryClock = 2;
  if (type == kMemoryClock) {
    *mhz = kMemoryClockMhz;
  } else {
    *mhz = is_max ? kNominalClockMhz
                  : static_cast<unsigned>(std::lround(kNominalClockMhz * device->speed()));
  }
  return kSuccess;
}

unsigned long long reasons(Device& device) {
  const std::uint32_t set = device.telemetry->throttle_reasons;
  if (set == kThrottleNone) return 0;
  if (set != kThrottleAuto) return set;
  if (device.telemetry->speed_permille < 1000) return kThrottlePower;
  const auto [first, last] = device.window();
  return total_percent(first, last, &Use::busy_ns) == 0 ? kThrottleIdle : 0;
}

unsigned celsius(Device& device) {
  const std::uint32_t set = device.telemetry->temperature_celsius;
  if (set != 0) return set;
  const double share = (milliwatts(device) - kIdleMilliwatts) /
                       static_cast<double>(kPowerLimitMilliwatts - kIdleMilliwatts);
  return kIdleCelsius + static_cast<unsigned>(std::lround((kBusyCelsius - kIdleCelsius) * share));
}

template <class Info>
int running(const void* handle, unsigned* count, Info* infos) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (count == nullptr) return kInvalidArgument;
  std::vector<const TelemetrySlot*> alive;
  for (const TelemetrySlot& slot : device->telemetry->slots) {
    if (device->processes->is_alive(slot)) alive.push_back(&slot);
  }
  const unsigned room = infos == nullptr ? 0 : *count;
  *count = static_cast<unsigned>(alive.size());
  if (room < alive.size()) return alive.empty() ? kSuccess : kInsufficientSize;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    infos[i] = {};
    infos[i].pid = alive[i]->pid;
    infos[i].used_bytes = alive[i]->memory_bytes;
    if constexpr (std::is_same_v<Info, ProcessInfo>)
      infos[i].gpu_instance = infos[i].compute_instance = kNoInstance;
  }
  return kSuccess;
}

struct EventSet {
  std::vector<Device*> devices;
};

}  // namespace

#define NVML extern "C" int
#define NVML_TEXT extern "C" const char*
// Their symbols are local; stubs under the public names jump to them (tools/cuda_stubs.py).
#include "softcuda/nvml/labels.inc"
#include "softcuda/nvml/text_labels.inc"

NVML nvmlInit_v2() {
  return start();
}
NVML nvmlInit() {
  return start();
}
NVML nvmlInitWithFlags(unsigned) {
  return start();
}
NVML nvmlShutdown() {
  return stop();
}
NVML_TEXT nvmlErrorString(int status) {
  switch (status) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kTimeout:
      return "Timeout";
    default:
      return "Unknown Error";
  }
}
NVML nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return give("0.0.kansoku-softgpu", text, bytes);
}
NVML nvmlSystemGetNVMLVersion(char* text, unsigned bytes) {
  return give("13.0.kansoku-softgpu", text, bytes);
}
NVML nvmlSystemGetCudaDriverVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = kCudaVersion;
  return kSuccess;
}
NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}
NVML nvmlSystemGetProcessName(unsigned pid, char* text, unsigned bytes) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  if (!std::getline(file, name)) return kNotFound;
  return give(name.substr(0, bytes > 0 ? bytes - 1 : 0), text, bytes);
}

NVML nvmlDeviceGetCount_v2(unsigned* count) {
  const std::scoped_lock lock(g_mutex);
  if (g_library == nullptr) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(g_library->devices.size());
  return kSuccess;
}
NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  const int status = find_if(
      handle, [&](const Device& device) { return static_cast<unsigned>(device.ordinal) == index; });
  return status == kNotFound ? kInvalidArgument : status;
}
NVML nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (uuid == nullptr) return kInvalidArgument;
  return find_if(handle,
                 [&](const Device& device) { return uuid_text(device.telemetry->uuid) == uuid; });
}
NVML nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  if (bus == nullptr) return kInvalidArgument;
  const std::string wanted = bus;
  // With a domain of 4 or 8 digits.
  return find_if(handle, [&](const Device& device) {
    return bus_text(device) == wanted || bus_text(device).substr(4) == wanted;
  });
}
NVML nvmlDeviceGetIndex(const void* handle, unsigned* index) {
  return answer<unsigned>(handle, index,
                          [](Device& device) { return static_cast<unsigned>(device.ordinal); });
}
NVML nvmlDeviceGetMinorNumber(const void* handle, unsigned* number) {
  return answer<unsigned>(handle, number,
                          [](Device& device) { return static_cast<unsigned>(device.ordinal); });
}
NVML nvmlDeviceGetName(const void* handle, char* text, unsigned bytes) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  return give("Kansoku software device", text, bytes);
}
NVML nvmlDeviceGetUUID(const void* handle, char* text, unsigned bytes) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  return give(uuid_text(device->telemetry->uuid), text, bytes);
}
NVML nvmlDeviceGetPciInfo_v3(const void* handle, PciInfo* info) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (info == nullptr) return kInvalidArgument;
  *info = {};
  info->bus = static_cast<unsigned>(device->ordinal + 1);
  static_cast<void>(
      give(bus_text(*device).substr(4), info->bus_id_legacy, sizeof info->bus_id_legacy));
  return give(bus_text(*device), info->bus_id, sizeof info->bus_id);
}
NVML nvmlDeviceGetCudaComputeCapability(const void* handle, int* major, int* minor) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (major == nullptr || minor == nullptr) return kInvalidArgument;
  *major = architecture_setting() / 10;
  *minor = architecture_setting() % 10;
  return kSuccess;
}

NVML nvmlDeviceGetUtilizationRates(const void* handle, Utilization* rates) {
  return answer<Utilization>(handle, rates, [](Device& device) {
    const auto [first, last] = device.window();
    return Utilization{total_percent(first, last, &Use::busy_ns),
                       total_percent(first, last, &Use::memory_busy_ns)};
  });
}
NVML nvmlDeviceGetEncoderUtilization(const void* handle, unsigned* value, unsigned* period_us) {
  if (period_us != nullptr) *period_us = 0;
  return answer<unsigned>(handle, value, [](Device&) { return 0U; });
}
NVML nvmlDeviceGetDecoderUtilization(const void* handle, unsigned* value, unsigned* period_us) {
  if (period_us != nullptr) *period_us = 0;
  return answer<unsigned>(handle, value, [](Device&) { return 0U; });
}
NVML nvmlDeviceGetMemoryInfo(const void* handle, MemoryInfo* info) {
  return answer<MemoryInfo>(handle, info, [](Device& device) {
    const unsigned long long total = total_bytes(device), used = used_bytes(device);
    return MemoryInfo{total, total - used, used};
  });
}
NVML nvmlDeviceGetMemoryInfo_v2(const void* handle, MemoryInfo2* info) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (info == nullptr) return kInvalidArgument;
  info->total = total_bytes(*device);
  info->reserved = 0;
  info->used = used_bytes(*device);
  info->free = info->total - info->used;
  return kSuccess;
}

NVML nvmlDeviceGetClockInfo(const void* handle, int type, unsigned* mhz) {
  return clock_info(handle, type, mhz, false);
}
NVML nvmlDeviceGetMaxClockInfo(const void* handle, int type, unsigned* mhz) {
  return clock_info(handle, type, mhz, true);
}
NVML nvmlDeviceGetTemperature(const void* handle, int sensor, unsigned* degrees) {
  if (sensor != 0) return kInvalidArgument;
  return answer<unsigned>(handle, degrees, celsius);
}
NVML nvmlDeviceGetTemperatureThreshold(const void* handle, int, unsigned* degrees) {
  return answer<unsigned>(handle, degrees, [](Device&) { return unsigned{kSlowdownCelsius}; });
}
NVML nvmlDeviceGetPowerUsage(const void* handle, unsigned* power) {
  return answer<unsigned>(handle, power,
                          [](Device& device) { return static_cast<unsigned>(milliwatts(device)); });
}
NVML nvmlDeviceGetEnforcedPowerLimit(const void* handle, unsigned* power) {
  return answer<unsigned>(handle, power, [](Device&) { return unsigned{kPowerLimitMilliwatts}; });
}
NVML nvmlDeviceGetPowerManagementLimit(const void* handle, unsigned* power) {
  return answer<unsigned>(handle, power, [](Device&) { return unsigned{kPowerLimitMilliwatts}; });
}
NVML nvmlDeviceGetTotalEnergyConsumption(const void* handle, unsigned long long* energy) {
  return answer<unsigned long long>(handle, energy, [](Device& device) {
    const std::scoped_lock lock(device.mutex);
    return static_cast<unsigned long long>(device.energy_millijoule);
  });
}
NVML nvmlDeviceGetPerformanceState(const void* handle, int* state) {
  return answer<int>(handle, state, [](Device&) { return 0; });
}
NVML nvmlDeviceGetCurrentClocksThrottleReasons(const void* handle, unsigned long long* bits) {
  return answer<unsigned long long>(handle, bits, reasons);
}
NVML nvmlDeviceGetCurrentClocksEventReasons(const void* handle, unsigned long long* bits) {
  return answer<unsigned long long>(handle, bits, reasons);
}
NVML nvmlDeviceGetSupportedClocksThrottleReasons(const void* handle, unsigned long long* bits) {
  return answer<unsigned long long>(handle, bits, [](Device&) {
    return static_cast<unsigned long long>(kThrottleIdle | kThrottlePower | kThrottleThermal);
  });
}

NVML nvmlDeviceGetEccMode(const void* handle, unsigned* current, unsigned* pending) {
  if (pending != nullptr) *pending = 1;
  return answer<unsigned>(handle, current, [](Device&) { return 1U; });
}
NVML nvmlDeviceGetTotalEccErrors(const void* handle, int error, int counter,
                                 unsigned long long* count) {
  if (error < 0 || error > 1 || counter < 0 || counter > 1) return kInvalidArgument;
  return error == 0
             ? answer<unsigned long long>(handle, count,
                                          [](Device& device) -> unsigned long long {
                                            return device.telemetry->corrected_errors;
                                          })
             : answer<unsigned long long>(handle, count, [](Device& device) -> unsigned long long {
                 return device.telemetry->uncorrected_errors;
               });
}
NVML nvmlDeviceGetRemappedRows(const void* handle, unsigned* corrected, unsigned* uncorrected,
                               unsigned* is_pending, unsigned* has_failed) {
  for (unsigned* const value : {uncorrected, is_pending, has_failed}) {
    if (value != nullptr) *value = 0;
  }
  return answer<unsigned>(handle, corrected, [](Device&) { return 0U; });
}
NVML nvmlDeviceGetPcieThroughput(const void* handle, int counter, unsigned* kilobytes) {
  if (counter < 0 || counter > 1) return kInvalidArgument;
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (kilobytes == nullptr) return kInvalidArgument;
  const auto [first, last] = device->window();
  std::uint64_t bytes = 0;
  for (const auto& [pid, use] : last.by_pid)
    bytes += change(first, pid, use, counter == 0 ? &Use::to_host : &Use::to_device);
  const double seconds = static_cast<double>(last.time_ns - first.time_ns) * 1e-9;
  *kilobytes = seconds > 0 ? static_cast<unsigned>(static_cast<double>(bytes) / 1024 / seconds) : 0;
  return kSuccess;
}
NVML nvmlDeviceGetPcieReplayCounter(const void* handle, unsigned* count) {
  return answer<unsigned>(handle, count, [](Device&) { return 0U; });
}

NVML nvmlDeviceGetComputeRunningProcesses(const void* handle, unsigned* count,
                                          ProcessInfo1* infos) {
  return running(handle, count, infos);
}
NVML nvmlDeviceGetComputeRunningProcesses_v2(const void* handle, unsigned* count,
                                             ProcessInfo* infos) {
  return running(handle, count, infos);
}
NVML nvmlDeviceGetComputeRunningProcesses_v3(const void* handle, unsigned* count,
                                             ProcessInfo* infos) {
  return running(handle, count, infos);
}
/// Shares of the last window, one sample a process.
NVML nvmlDeviceGetProcessUtilization(const void* handle, ProcessSample* samples, unsigned* count,
                                     unsigned long long last_seen_us) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (count == nullptr) return kInvalidArgument;
  const auto [first, last] = device->window();
  const unsigned room = samples == nullptr ? 0 : *count;
  *count = static_cast<unsigned>(last.by_pid.size());
  const std::uint64_t time_us = wall_us();
  if (last.by_pid.empty() || time_us <= last_seen_us) {
    *count = 0;
    return kNotFound;
  }
  if (room < last.by_pid.size()) return kInsufficientSize;
  std::size_t i = 0;
  for (const auto& [pid, use] : last.by_pid) {
    const std::uint64_t whole = last.time_ns - first.time_ns;
    samples[i++] = {pid,
                    time_us,
                    percent(change(first, pid, use, &Use::busy_ns), whole),
                    percent(change(first, pid, use, &Use::memory_busy_ns), whole),
                    0,
                    0};
  }
  return kSuccess;
}

NVML nvmlEventSetCreate(void** set) {
  const std::scoped_lock lock(g_mutex);
  if (g_library == nullptr) return kUninitialized;
  if (set == nullptr) return kInvalidArgument;
  *set = std::make_unique<EventSet>().release();
  return kSuccess;
}
NVML nvmlEventSetFree(void* set) {
  const std::unique_ptr<EventSet> owner(static_cast<EventSet*>(set));
  return set == nullptr ? kInvalidArgument : kSuccess;
}
NVML nvmlDeviceGetSupportedEventTypes(const void* handle, unsigned long long* types) {
  return answer<unsigned long long>(handle, types, [](Device&) { return kEventXid; });
}
NVML nvmlDeviceRegisterEvents(const void* handle, unsigned long long types, void* set) {
  Device* device = nullptr;
  if (const int status = find(handle, device); status != kSuccess) return status;
  if (set == nullptr) return kInvalidArgument;
  if (types != kEventXid) return kNotSupported;
  static_cast<EventSet*>(set)->devices.push_back(device);
  return kSuccess;
}
NVML nvmlEventSetWait_v2(void* set, EventData* data, unsigned timeout_ms) {
  if (set == nullptr || data == nullptr) return kInvalidArgument;
  const std::uint64_t deadline = now_ns() + std::uint64_t{timeout_ms} * 1'000'000;
  do {
    for (Device* const device : static_cast<EventSet*>(set)->devices) {
      const std::uint32_t xid = device->telemetry->last_xid;
      if (xid == device->last_xid) continue;
      device->last_xid = xid;
      *data = {device, kEventXid, xid, kNoInstance, kNoInstance};
      return kSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  } while (now_ns() < deadline);
  return kTimeout;
}

#undef NVML

}  // namespace kansoku::softcuda
