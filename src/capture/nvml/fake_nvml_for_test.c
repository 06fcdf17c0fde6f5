/* SPDX-License-Identifier: Apache-2.0 */
#include "capture/nvml/fake_nvml_for_test.h"

#include <string.h>
#include <unistd.h>

static struct fake_nvml control = {.devices = 2, .process_count = -1, .use_percent = 40};
static char handles[64], event_sets[64];
static void* device_of_set[64];
static unsigned set_count;

struct fake_nvml* fake_nvml_control(void) {
  return &control;
}

static long get(const long* value) {
  return __atomic_load_n(value, __ATOMIC_SEQ_CST);
}

/* 0, or the status that this call has to return. `handle`: null if it is of no device. */
static int enter(const void* handle) {
  const long call = __atomic_add_fetch(&control.calls, 1, __ATOMIC_SEQ_CST);
  if (call == get(&control.hang_at)) {
    __atomic_add_fetch(&control.hung, 1, __ATOMIC_SEQ_CST);
    while (!get(&control.is_released))
      usleep(100); /* allowed: the pause of a poll loop */
    __atomic_sub_fetch(&control.hung, 1, __ATOMIC_SEQ_CST);
  }
  const long fail_at = get(&control.fail_at);
  if (fail_at != 0 && call >= fail_at && call <= fail_at + get(&control.fail_for))
    return (int)get(&control.fail_status);
  if (handle != 0 && (const char*)handle - handles == get(&control.lost_device) - 1) return 15;
  return 0;
}

#define ENTER(handle)                 \
  do {                                \
    const int status = enter(handle); \
    if (status != 0) return status;   \
  } while (0)

static int give(const char* from, char* to, unsigned bytes) {
  if (get(&control.is_text_unended)) {
    memset(to, 7, bytes);
    return 0;
  }
  strncpy(to, from, bytes);
  return 0;
}

int nvmlInit_v2(void) {
  ENTER(0);
  return 0;
}
int nvmlShutdown(void) {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  ENTER(0);
  *count = (unsigned)get(&control.devices);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  ENTER(0);
  if (index >= sizeof handles) return 2;
  *handle = handles + index;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  ENTER(device);
  char uuid[] = "GPU-fake-0";
  uuid[sizeof uuid - 2] = (char)('0' + ((char*)device - handles) % 10);
  return give(uuid, text, bytes);
}
int nvmlDeviceGetName(void* device, char* text, unsigned bytes) {
  ENTER(device);
  return give("Fake", text, bytes);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  ENTER(device);
  rates[0] = 75;
  rates[1] = 25;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  ENTER(device);
  memory[0] = 1000;
  memory[1] = 600;
  memory[2] = 400;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* megahertz) {
  ENTER(device);
  *megahertz = type == 2 ? 1215 : 1000;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned* megahertz) {
  ENTER(device);
  *megahertz = type == 2 ? 1215 : 1410;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  ENTER(device);
  *milliwatts = 250500;
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  ENTER(device);
  *milliwatts = 400000;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  ENTER(device);
  if (sensor != 0) return 2;
  *degrees = 66;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) {
  ENTER(device);
  *bits = 0x24;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int error, int counter, unsigned long long* count) {
  ENTER(device);
  if (counter != 0) return 2;
  *count = error == 0 ? 5 : 1;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* is_pending, unsigned* has_failed) {
  ENTER(device);
  *corrected = 2;
  *uncorrected = 1;
  *is_pending = 1;
  *has_failed = 0;
  return 0;
}
int nvmlDeviceGetPcieReplayCounter(void* device, unsigned* count) {
  ENTER(device);
  *count = 9;
  return 0;
}
int nvmlDeviceGetPcieThroughput(void* device, int counter, unsigned* kilobytes) {
  ENTER(device);
  if (get(&control.pcie_throughput) == 0) return 3;
  if (counter != 0 && counter != 1) return 2;
  __atomic_add_fetch(&control.pcie_measurements, 1, __ATOMIC_SEQ_CST);
  *kilobytes = (unsigned)get(&control.pcie_throughput) + (unsigned)counter;
  return 0;
}

struct field {
  unsigned field, scope;
  long long time_us, latency_us;
  int type, status;
  unsigned long long value;
};
int nvmlDeviceGetFieldValues(void* device, int count, struct field* fields) {
  ENTER(device);
  for (int i = 0; i < count; ++i) {
    const int is_moving = fields[i].field >= 138;
    fields[i].status = 0;
    fields[i].type = get(&control.is_counter_narrow) ? 1 : 3;
    fields[i].value = is_moving ? (unsigned long long)get(&control.counter) : fields[i].field;
    if (fields[i].field == 197)
      fields[i].value = (unsigned long long)__atomic_fetch_add(
          &control.pcie_counter, get(&control.pcie_step), __ATOMIC_SEQ_CST);
    if (fields[i].field == 198) fields[i].value = (unsigned long long)get(&control.pcie_counter);
    if (fields[i].field >= 197 && get(&control.pcie_counter) == 0) fields[i].status = 3;
    if (fields[i].type == 1) fields[i].value &= 0xffffffff;
    /* All links together: asked for by the scope. */
    if ((fields[i].field == 138 || fields[i].field == 139) && fields[i].scope != 0xffffffff)
      fields[i].status = 2;
  }
  return 0;
}

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v2(void* device, unsigned* count,
                                            struct process* processes) {
  ENTER(device);
  const long claimed = get(&control.process_count);
  const unsigned room = *count, there = claimed < 0 ? 2 : (unsigned)claimed;
  *count = there;
  if (there > room && claimed != 0x7fffffff) return 7;
  for (unsigned i = 0; i < there && i < room; ++i) {
    processes[i].pid = 200 - i;
    processes[i].used = i == 0 ? 4096 : ~0ULL; /* not available */
  }
  return 0;
}
/* As of some drivers: the entries are longer than those of _v2. */
struct long_process {
  struct process begin;
  unsigned long long protected_memory;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count,
                                            struct long_process* processes) {
  ENTER(device);
  for (unsigned i = 0; i < *count; ++i)
    processes[i] = (struct long_process){{1 + i, 1, 1, 1}, 1};
  return 0;
}
struct use {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};
int nvmlDeviceGetProcessUtilization(void* device, struct use* uses, unsigned* count,
                                    unsigned long long since_us) {
  ENTER(device);
  if (get(&control.is_use_missing)) return 6;
  if (*count < 2) return 7;
  *count = 2;
  const unsigned percent = (unsigned)get(&control.use_percent);
  since_us -= (unsigned long long)get(&control.use_age_us);
  uses[0] = (struct use){200, since_us + 20, percent, 10, 0, 0};
  uses[1] = (struct use){200, since_us + 10, 99, 99, 0, 0}; /* older */
  return 0;
}

int nvmlEventSetCreate(void** set) {
  ENTER(0);
  *set = event_sets + __atomic_fetch_add(&set_count, 1, __ATOMIC_SEQ_CST) % 64;
  __atomic_add_fetch(&control.event_sets, 1, __ATOMIC_SEQ_CST);
  return 0;
}
int nvmlEventSetFree(void* set) {
  const long index = (char*)set - event_sets;
  if (index < 0 || index >= 64) return 2;
  __atomic_sub_fetch(&control.event_sets, 1, __ATOMIC_SEQ_CST);
  return 0;
}
int nvmlDeviceGetSupportedEventTypes(void* device, unsigned long long* types) {
  ENTER(device);
  *types = 15;
  return 0;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  ENTER(device);
  const long index = (char*)set - event_sets;
  if (types != 8 || index < 0 || index >= 64) return 2;
  __atomic_store_n(&device_of_set[index], device, __ATOMIC_SEQ_CST);
  return 0;
}
struct event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
int nvmlEventSetWait_v2(void* set, struct event* event, unsigned timeout_ms) {
  ENTER(0);
  (void)timeout_ms;
  const long index = (char*)set - event_sets;
  if (index < 0 || index >= 64) return 2;
  if (__atomic_load_n(&device_of_set[index], __ATOMIC_SEQ_CST) != handles + 1) return 10;
  const long xid = __atomic_exchange_n(&control.pending_xid, 0, __ATOMIC_SEQ_CST);
  if (xid == 0) return 10;
  *event = (struct event){handles + 1, 8, (unsigned long long)xid, ~0U, ~0U};
  return 0;
}
