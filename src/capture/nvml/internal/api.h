// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace kansoku::capture::nvml::api {

// The part of NVML's public interface that is used here, in our own words: names, numbers and
// layouts are those of the library; nothing else is taken from its header.

using Handle = void*;  // of a device or a set of events

enum Status : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNoneFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kWaitTimeout = 10,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kVersionMismatch = 18,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
};

struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory1 {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemory2Version = sizeof(Memory2) | 2U << 24;
struct Process1 {
  unsigned pid;
  unsigned long long used_bytes;
};
// Element of the functions _v2 and _v3. Drivers from 535.43 to 535.86 have 32 bytes in _v3
// (second-hand), so _v2 comes first, and there is room for more than was asked for.
struct Process2 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kNotAvailable = ~0ULL;
struct ProcessUse {
  unsigned pid;
  unsigned long long time_us;             // of the wall clock
  unsigned sm, memory, encoder, decoder;  // percent
};
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long time_us, latency_us;
  int type;
  int status;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_wide;
    unsigned short as_short;
  } value;
};
struct Event {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(Memory2) == 40 && sizeof(Process1) == 16 && sizeof(Process2) == 24);
static_assert(sizeof(ProcessUse) == 32 && sizeof(FieldValue) == 40 && sizeof(Event) == 32);

enum Clock : int { kSmClock = 1, kMemoryClock = 2 };
enum ValueType : int { kDouble = 0, kUnsigned = 1, kLong = 2, kWide = 3, kSignedWide = 4 };
inline constexpr unsigned long long kEventXid = 8;
inline constexpr unsigned kAllLinks = ~0U;
enum Field : unsigned {
  kNvlinkFlitErrors = 38,  // CRC errors of flow control units, and of data
  kNvlinkDataErrors = 45,
  kNvlinkReplays = 52,
  kNvlinkRecoveries = 59,
  kNvlinkSent = 138,  // KiB of data; scope: the link or kAllLinks
  kNvlinkReceived = 139,
  kPcieSent = 197,  // bytes; drivers from 555 on
  kPcieReceived = 198,
};

/// Functions by the name of the field, in the order in which names are tried. Only those of the
/// first group must be there.
#define KANSOKU_NVML_NEEDED(X)                   \
  X(init, (), "nvmlInit_v2")                     \
  X(shutdown, (), "nvmlShutdown")                \
  X(count, (unsigned*), "nvmlDeviceGetCount_v2") \
  X(by_index, (unsigned, Handle*), "nvmlDeviceGetHandleByIndex_v2")
#define KANSOKU_NVML_OPTIONAL(X)                                                                 \
  X(uuid, (Handle, char*, unsigned), "nvmlDeviceGetUUID")                                        \
  X(name, (Handle, char*, unsigned), "nvmlDeviceGetName")                                        \
  X(utilization, (Handle, Utilization*), "nvmlDeviceGetUtilizationRates")                        \
  X(memory2, (Handle, Memory2*), "nvmlDeviceGetMemoryInfo_v2")                                   \
  X(memory1, (Handle, Memory1*), "nvmlDeviceGetMemoryInfo")                                      \
  X(clock, (Handle, int, unsigned*), "nvmlDeviceGetClockInfo")                                   \
  X(max_clock, (Handle, int, unsigned*), "nvmlDeviceGetMaxClockInfo")                            \
  X(power, (Handle, unsigned*), "nvmlDeviceGetPowerUsage")                                       \
  X(power_limit, (Handle, unsigned*), "nvmlDeviceGetEnforcedPowerLimit")                         \
  X(temperature, (Handle, int, unsigned*), "nvmlDeviceGetTemperature")                           \
  X(reasons, (Handle, unsigned long long*), "nvmlDeviceGetCurrentClocksEventReasons",            \
    "nvmlDeviceGetCurrentClocksThrottleReasons")                                                 \
  X(ecc, (Handle, int, int, unsigned long long*), "nvmlDeviceGetTotalEccErrors")                 \
  X(remapped, (Handle, unsigned*, unsigned*, unsigned*, unsigned*), "nvmlDeviceGetRemappedRows") \
  X(pcie_throughput, (Handle, int, unsigned*), "nvmlDeviceGetPcieThroughput")                    \
  X(pcie_replays, (Handle, unsigned*), "nvmlDeviceGetPcieReplayCounter")                         \
  X(fields, (Handle, int, FieldValue*), "nvmlDeviceGetFieldValues")                              \
  X(processes2, (Handle, unsigned*, Process2*), "nvmlDeviceGetComputeRunningProcesses_v2",       \
    "nvmlDeviceGetComputeRunningProcesses_v3")                                                   \
  X(processes1, (Handle, unsigned*, Process1*), "nvmlDeviceGetComputeRunningProcesses")          \
  X(process_use, (Handle, ProcessUse*, unsigned*, unsigned long long),                           \
    "nvmlDeviceGetProcessUtilization")                                                           \
  X(event_set, (Handle*), "nvmlEventSetCreate")                                                  \
  X(free_event_set, (Handle), "nvmlEventSetFree")                                                \
  X(event_types, (Handle, unsigned long long*), "nvmlDeviceGetSupportedEventTypes")              \
  X(register_events, (Handle, unsigned long long, Handle), "nvmlDeviceRegisterEvents")           \
  X(wait, (Handle, Event*, unsigned), "nvmlEventSetWait_v2")

/// Null: the library does not have it. Every function may be called from any thread.
struct Api {
#define KANSOKU_NVML_FIELD(name, parameters, ...) int(*name) parameters{nullptr};
  KANSOKU_NVML_NEEDED(KANSOKU_NVML_FIELD)
  KANSOKU_NVML_OPTIONAL(KANSOKU_NVML_FIELD)
#undef KANSOKU_NVML_FIELD
};

/// Loads the library, which stays loaded until the process ends: a call that hangs may come back at
/// any time. kUnavailable.
[[nodiscard]] Result<Api> load(const std::string& library);

/// Error for the user of a failed start.
[[nodiscard]] Error start_error(int status);

}  // namespace kansoku::capture::nvml::api
