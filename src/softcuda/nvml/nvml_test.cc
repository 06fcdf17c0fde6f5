// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "softcuda/telemetry/process_watch.h"
#include "softcuda/telemetry/telemetry.h"

namespace kansoku::softcuda {
namespace {

using ::testing::StartsWith;

struct Utilization {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct ProcessSample {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

std::uint64_t boot_ns() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

class NvmlTest : public ::testing::Test {
 protected:
  NvmlTest() {
    folder_ = std::filesystem::temp_directory_path() /
              ("kansoku-nvml-" + std::to_string(getpid()) + "-" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    setenv("KANSOKU_SOFTGPU_DIR", folder_.c_str(), 1);
    setenv("KANSOKU_SOFTGPU_DEVICES", "2", 1);
    library_ = dlopen(KANSOKU_SOFTGPU_LIBNVML, RTLD_NOW | RTLD_LOCAL);
    telemetry_ = map_telemetry(0).value();
    slot_ = take_slot(*telemetry_);
  }
  ~NvmlTest() override {
    while (library_ != nullptr && call("nvmlShutdown") == 0) {  // or the next one has this folder
    }
    dlclose(library_);
    std::filesystem::remove_all(folder_);
  }
  void SetUp() override {
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_NE(slot_, nullptr);
  }
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function == nullptr ? -1 : function(arguments...);
  }
  void* start() {
    EXPECT_EQ(call("nvmlInit_v2"), 0);
    void* device = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), 0);
    return device;
  }
  unsigned number(const char* name, void* device) {
    unsigned value = 0;
    EXPECT_EQ(call(name, device, &value), 0) << name;
    return value;
  }

  std::filesystem::path folder_;
  void* library_{nullptr};
  Telemetry* telemetry_{nullptr};
  TelemetrySlot* slot_{nullptr};
};

TEST_F(NvmlTest, NothingWorksBeforeInit) {
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 1);
  EXPECT_EQ(call("nvmlShutdown"), 1);
}

TEST_F(NvmlTest, FindsDevices) {
  void* const device = start();
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 2U);
  char text[96];
  EXPECT_EQ(call("nvmlDeviceGetUUID", device, &text[0], 96U), 0);
  EXPECT_THAT(text, StartsWith("GPU-4b414e53-"));
  void* again = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", &text[0], &again), 0);
  EXPECT_EQ(again, device);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", "GPU-none", &again), 6);
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "0000:02:00.0", &again), 0);
  EXPECT_EQ(number("nvmlDeviceGetIndex", again), 1U);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 2U, &again), 2);
  EXPECT_EQ(call("nvmlDeviceGetName", device, &text[0], 4U), 7);
  EXPECT_EQ(call("nvmlDeviceGetIndex", static_cast<void*>(text), &count), 2);
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

TEST_F(NvmlTest, SaysWhatItIsAndWhere) {
  void* const device = start();
  char text[64] = {};
  EXPECT_EQ(call("nvmlSystemGetDriverVersion", &text[0], 64U), 0);
  EXPECT_STREQ(text, "0.0.kansoku-softgpu");
  EXPECT_EQ(call("nvmlSystemGetNVMLVersion", &text[0], 64U), 0);
  EXPECT_STREQ(text, "13.0.kansoku-softgpu");
  EXPECT_EQ(call("nvmlSystemGetProcessName", static_cast<unsigned>(getpid()), &text[0], 64U), 0);
  EXPECT_THAT(std::string("softcuda_nvml_test"), StartsWith(text));  // the kernel cuts it
  EXPECT_EQ(call("nvmlSystemGetProcessName", 0xffffffffU, &text[0], 64U), 6);
  for (const char* const name :
       {"nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"}) {
    int version = 0;
    EXPECT_EQ(call(name, &version), 0);
    EXPECT_EQ(version, 13000);
    EXPECT_EQ(call(name, static_cast<int*>(nullptr)), 2);
  }
  EXPECT_EQ(number("nvmlDeviceGetMinorNumber", device), 0U);
  int major = 0, minor = -1;
  EXPECT_EQ(call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor), 0);
  EXPECT_EQ(major * 10 + minor, architecture_setting());
  struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  } pci{};
  EXPECT_EQ(call("nvmlDeviceGetPciInfo_v3", device, &pci), 0);
  EXPECT_EQ(pci.bus, 1U);
  EXPECT_STREQ(pci.legacy, "0000:01:00.0");
  EXPECT_STREQ(pci.bus_id, "00000000:01:00.0");
}

TEST_F(NvmlTest, TheModelsOtherFigures) {
  void* const device = start();
  EXPECT_EQ(number("nvmlDeviceGetEnforcedPowerLimit", device), kPowerLimitMilliwatts);
  EXPECT_EQ(number("nvmlDeviceGetPowerManagementLimit", device), kPowerLimitMilliwatts);
  unsigned value = 0, second = 7;
  EXPECT_EQ(call("nvmlDeviceGetMaxClockInfo", device, 0, &value), 0);
  EXPECT_EQ(value, kNominalClockMhz);
  EXPECT_EQ(call("nvmlDeviceGetMaxClockInfo", device, 2, &value), 0);
  EXPECT_EQ(value, kMemoryClockMhz);
  EXPECT_EQ(call("nvmlDeviceGetMaxClockInfo", device, 4, &value), 2);
  EXPECT_EQ(call("nvmlDeviceGetTemperatureThreshold", device, 1, &value), 0);
  EXPECT_EQ(value, kSlowdownCelsius);
  for (const char* const name :
       {"nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"}) {
    EXPECT_EQ(call(name, device, &value, &second), 0);
    EXPECT_EQ(value, 0U);
  }
  EXPECT_EQ(call("nvmlDeviceGetEccMode", device, &value, &second), 0);
  EXPECT_EQ(value + second, 2U) << "on, and stays it";
  unsigned rows[4] = {7, 7, 7, 7};
  EXPECT_EQ(call("nvmlDeviceGetRemappedRows", device, &rows[0], &rows[1], &rows[2], &rows[3]), 0);
  EXPECT_EQ(rows[0] + rows[1] + rows[2] + rows[3], 0U);
  EXPECT_EQ(number("nvmlDeviceGetPcieReplayCounter", device), 0U);
  int state = -1;
  EXPECT_EQ(call("nvmlDeviceGetPerformanceState", device, &state), 0);
  EXPECT_EQ(state, 0);
  unsigned long long supported = 0, current = 0, energy = 0, later = 0, types = 0;
  EXPECT_EQ(call("nvmlDeviceGetSupportedClocksThrottleReasons", device, &supported), 0);
  telemetry_->speed_permille = 500;
  EXPECT_EQ(call("nvmlDeviceGetCurrentClocksEventReasons", device, &current), 0);
  EXPECT_EQ(current, kThrottlePower);
  EXPECT_EQ(current & ~supported, 0U);
  EXPECT_EQ(call("nvmlDeviceGetSupportedEventTypes", device, &types), 0);
  EXPECT_EQ(types, 8U);
  EXPECT_EQ(call("nvmlDeviceGetTotalEnergyConsumption", device, &energy), 0);
  do {  // at 50 W and more it grows by a millijoule in 20 us
    EXPECT_EQ(call("nvmlDeviceGetTotalEnergyConsumption", device, &later), 0);
  } while (later <= energy && !HasFailure());
}

TEST_F(NvmlTest, BytesOverTheBus) {
  slot_->copied_to_device_bytes = 0;
  void* const device = start();
  unsigned first = 1, to_device = 0;
  EXPECT_EQ(call("nvmlDeviceGetPcieThroughput", device, 2, &first), 2);
  EXPECT_EQ(call("nvmlDeviceGetPcieThroughput", device, 0, &first), 0);
  EXPECT_EQ(first, 0U) << "nothing was copied to the host";
  do {  // from one look of the library to the next
    slot_->copied_to_device_bytes += 1 << 20;
    EXPECT_EQ(call("nvmlDeviceGetPcieThroughput", device, 1, &to_device), 0);
  } while (to_device == 0 && !HasFailure());
}

TEST_F(NvmlTest, OldFormsGiveTheSame) {
  EXPECT_EQ(call("nvmlInit"), 0);
  EXPECT_EQ(call("nvmlInitWithFlags", 0U), 0);
  slot_->memory_bytes = 3 << 20;
  void* const device = start();
  struct {
    unsigned pid;
    unsigned long long used_bytes;
  } old[4] = {};
  unsigned count = 4;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses", device, &count, &old[0]), 0);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(old[0].pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(old[0].used_bytes, 3U << 20);
  EXPECT_EQ(old[1].pid, 0U);
  ProcessInfo infos[4] = {};
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v2", device, &count, &infos[0]), 0);
  EXPECT_EQ(infos[0].used_bytes, 3U << 20);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(call("nvmlShutdown"), 0) << "as often as it was started";
  EXPECT_EQ(call("nvmlShutdown"), 1);
  auto* const text = reinterpret_cast<const char* (*)(int)>(dlsym(library_, "nvmlErrorString"));
  ASSERT_NE(text, nullptr);
  std::set<std::string> texts;
  for (const int status : {0, 1, 2, 3, 6, 7, 10, 999})
    texts.insert(text(status));
  EXPECT_EQ(texts.size(), 8U);
}

TEST_F(NvmlTest, ShowsLoadMemoryAndProcesses) {
  slot_->busy_since_ns = boot_ns();  // runs from now on
  slot_->memory_bytes = 5 << 20;
  void* const device = start();
  Utilization rates{};
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", device, &rates), 0);
  EXPECT_EQ(rates.gpu, 100U);
  EXPECT_EQ(rates.memory, 0U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", device), kPowerLimitMilliwatts);
  unsigned degrees = 0;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", device, 0, &degrees), 0);
  EXPECT_EQ(degrees, kBusyCelsius);
  MemoryInfo memory{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", device, &memory), 0);
  EXPECT_EQ(memory.used, 5U << 20);
  EXPECT_EQ(memory.free, memory.total - memory.used);
  ProcessInfo infos[4];
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
                 static_cast<ProcessInfo*>(nullptr)),
            7);
  EXPECT_EQ(count, 1U);
  count = 4;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, &infos[0]), 0);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(infos[0].pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(infos[0].used_bytes, 5U << 20);
  ProcessSample samples[4];
  count = 4;
  EXPECT_EQ(call("nvmlDeviceGetProcessUtilization", device, &samples[0], &count, 0ULL), 0);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(samples[0].sm, 100U);
  // The other device does nothing.
  void* other = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1U, &other), 0);
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", other, &rates), 0);
  EXPECT_EQ(rates.gpu, 0U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", other), kIdleMilliwatts);
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

TEST_F(NvmlTest, ClockPowerAndReasonsFollowTheSpeed) {
  slot_->busy_since_ns = boot_ns();
  void* const device = start();
  const auto clock = [&](int type) {
    unsigned mhz = 0;
    EXPECT_EQ(call("nvmlDeviceGetClockInfo", device, type, &mhz), 0);
    return mhz;
  };
  const auto reasons = [&] {
    unsigned long long bits = 0;
    EXPECT_EQ(call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &bits), 0);
    return bits;
  };
  EXPECT_EQ(clock(1), kNominalClockMhz);
  EXPECT_EQ(reasons(), 0U);
  telemetry_->speed_permille = 500;  // while the job runs
  EXPECT_EQ(clock(1), kNominalClockMhz / 2);
  EXPECT_EQ(clock(2), kMemoryClockMhz);
  EXPECT_EQ(reasons(), kThrottlePower);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", device),
            kIdleMilliwatts + (kPowerLimitMilliwatts - kIdleMilliwatts) / 2);
  telemetry_->throttle_reasons = kThrottleThermal;
  telemetry_->temperature_celsius = 88;
  unsigned degrees = 0;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", device, 0, &degrees), 0);
  EXPECT_EQ(degrees, 88U);
  EXPECT_EQ(reasons(), kThrottleThermal);
  telemetry_->throttle_reasons = kThrottleNone;
  EXPECT_EQ(reasons(), 0U);
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

TEST_F(NvmlTest, TellsOfErrors) {
  void* const device = start();
  telemetry_->corrected_errors = 3;
  telemetry_->uncorrected_errors = 1;
  unsigned long long count = 0;
  EXPECT_EQ(call("nvmlDeviceGetTotalEccErrors", device, 0, 0, &count), 0);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(call("nvmlDeviceGetTotalEccErrors", device, 1, 1, &count), 0);
  EXPECT_EQ(count, 1U);
  void* set = nullptr;
  EXPECT_EQ(call("nvmlEventSetCreate", &set), 0);
  EXPECT_EQ(call("nvmlDeviceRegisterEvents", device, 8ULL, set), 0);
  EventData data{};
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &data, 0U), 10);
  telemetry_->last_xid = 79;
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &data, 600'000U), 0);
  EXPECT_EQ(data.device, device);
  EXPECT_EQ(data.data, 79U);
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &data, 0U), 10);
  EXPECT_EQ(call("nvmlEventSetFree", set), 0);
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

TEST_F(NvmlTest, ProcessesThatHaveEndedAreForgotten) {
  void* const device = start();
  const pid_t child = fork();
  if (child == 0) {
    TelemetrySlot* const mine = take_slot(*telemetry_);
    mine->memory_bytes = 1 << 20;
    _exit(0);
  }
  siginfo_t ended{};  // ended, but nobody has asked for its status
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  unsigned count = 0;
  static_cast<void>(call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
                         static_cast<ProcessInfo*>(nullptr)));
  EXPECT_EQ(count, 1U);
  MemoryInfo memory{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", device, &memory), 0);
  EXPECT_EQ(memory.used, 0U);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // Their slot is taken over.
  EXPECT_NE(take_slot(*telemetry_), nullptr);
  EXPECT_EQ(telemetry_->slots_missing, 0U);
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

/// The slots that `count` processes took who all began at once; they have ended on return.
std::vector<std::ptrdiff_t> slots_taken_at_once(Telemetry& telemetry, int count) {
  int begin[2], taken[2], end[2];
  if (pipe(begin) != 0 || pipe(taken) != 0 || pipe(end) != 0) return {};
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(begin[1]);
    close(end[1]);
    char byte = 0;
    static_cast<void>(read(begin[0], &byte, 1));  // until all are there
    TelemetrySlot* const slot = take_slot(telemetry);
    const std::ptrdiff_t number = slot == nullptr ? -1 : slot - telemetry.slots.data();
    static_cast<void>(write(taken[1], &number, sizeof number));
    static_cast<void>(read(end[0], &byte, 1));  // nobody ends before all have theirs
    _exit(0);
  }
  close(begin[1]);
  close(taken[1]);  // so that reading ends if a child does
  std::vector<std::ptrdiff_t> out;
  std::ptrdiff_t number = 0;
  for (int i = 0; i < count && read(taken[0], &number, sizeof number) == sizeof number; ++i)
    out.push_back(number);
  close(end[1]);
  for (const int fd : {begin[0], taken[0], end[0]})
    close(fd);
  for (const pid_t child : children)
    waitpid(child, nullptr, 0);
  return out;
}

TEST_F(NvmlTest, ProcessesThatBeginAtOnceHaveSlotsOfTheirOwn) {
  constexpr int kProcesses = 8;
  for (int round = 0; round < 50; ++round) {
    const auto taken = slots_taken_at_once(*telemetry_, kProcesses);
    ASSERT_EQ(taken.size(), std::size_t{kProcesses});
    EXPECT_EQ(std::set(taken.begin(), taken.end()).size(), std::size_t{kProcesses}) << round;
    EXPECT_THAT(taken, ::testing::Each(::testing::Gt(0)));  // 0 is ours
  }
  EXPECT_EQ(telemetry_->slots_missing, 0U);
}

TEST_F(NvmlTest, ASlotThatIsBeingTakenIsNotFree) {
  TelemetrySlot& next = telemetry_->slots[1];
  next.pid = static_cast<std::uint32_t>(getpid());  // runs, and has not written its time yet
  EXPECT_EQ(take_slot(*telemetry_), &telemetry_->slots[2]);
  next.pid = 0x7fffffff;  // there is no such process
  EXPECT_EQ(take_slot(*telemetry_), &next);
}

TEST_F(NvmlTest, AWatchedProcessIsAliveUntilItEnds) {
  ProcessWatch watch;
  EXPECT_TRUE(watch.is_alive(*slot_));
  TelemetrySlot other;
  EXPECT_FALSE(watch.is_alive(other)) << "nobody's";
  other.pid = slot_->pid.load();
  EXPECT_FALSE(watch.is_alive(other)) << "it is being taken";
  other.start_ticks = slot_->start_ticks - 1;
  EXPECT_FALSE(watch.is_alive(other)) << "of an earlier process with that pid";
  EXPECT_TRUE(watch.is_alive(*slot_));
  int end[2], taken[2];
  ASSERT_EQ(pipe(end), 0);
  ASSERT_EQ(pipe(taken), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(end[1]);
    static_cast<void>(take_slot(*telemetry_));
    static_cast<void>(write(taken[1], &byte, 1));
    static_cast<void>(read(end[0], &byte, 1));
    _exit(0);
  }
  ASSERT_EQ(read(taken[0], &byte, 1), 1);
  const TelemetrySlot& theirs = telemetry_->slots[1];
  EXPECT_TRUE(watch.is_alive(theirs));
  EXPECT_TRUE(watch.is_alive(theirs)) << "by its descriptor";
  close(end[1]);
  siginfo_t ended{};  // ended, but nobody has asked for its status
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(watch.is_alive(theirs));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(watch.is_alive(theirs));
  for (const int fd : {end[0], taken[0], taken[1]})
    close(fd);
}

}  // namespace
}  // namespace kansoku::softcuda
