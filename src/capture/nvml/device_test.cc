// SPDX-License-Identifier: Apache-2.0
// Against the software device's library, with a process that uses the device.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "capture/nvml/counters.h"
#include "softcuda/telemetry/telemetry.h"
#include "sys/clock.h"
#include "sys/wait_for_test.h"

namespace kansoku::capture::nvml {
namespace {

constexpr std::size_t kJobBytes = std::size_t{32} << 20;

template <class... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function != nullptr && function(arguments...) == 0;
}

/// A job: copies to device 0 until it is killed. Its first byte to `ready` says that it runs.
[[noreturn]] void run_job(int ready) {
  void* const driver = dlopen(KANSOKU_SOFTGPU_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  void* context = nullptr;
  unsigned long long memory = 0;
  static char from[4 << 20];
  bool is_ok = driver != nullptr && call(driver, "cuInit", 0U) &&
               call(driver, "cuCtxCreate_v2", &context, 0U, 0) &&
               call(driver, "cuMemAlloc_v2", &memory, kJobBytes);
  is_ok = is_ok && write(ready, "", 1) == 1;
  while (is_ok)
    is_ok = call(driver, "cuMemcpyHtoD_v2", memory, static_cast<const void*>(from), sizeof from);
  _exit(1);
}

class SoftwareDevice : public ::testing::Test {
 protected:
  SoftwareDevice() {
    folder_ = ::testing::TempDir() + "kansoku-counters-" + std::to_string(getpid());
    setenv("KANSOKU_SOFTGPU_DIR", folder_.c_str(), 1);
    setenv("KANSOKU_SOFTGPU_DEVICES", "2", 1);
    setenv("KANSOKU_SOFTGPU_MEMORY", "256M", 1);
    telemetry_ = softcuda::map_telemetry(0).value();
    options_.library = KANSOKU_SOFTGPU_LIBNVML;
    options_.deadline = options_.open_deadline = sys::kPatienceForTest;
  }
  ~SoftwareDevice() override {
    if (job_ > 0) {
      kill(job_, SIGKILL);
      waitpid(job_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }
  void start_job() {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    job_ = fork();
    if (job_ == 0) {
      close(ends[0]);
      run_job(ends[1]);
    }
    close(ends[1]);
    char byte = 0;
    ASSERT_EQ(read(ends[0], &byte, 1), 1) << "the job did not start";
    close(ends[0]);
  }
  DeviceFigures figures(DeviceCounters& counters) {
    const auto samples = counters.sample(clock_.now());
    EXPECT_EQ(samples.size(), 2U);
    EXPECT_FALSE(samples.at(0).is_lost);
    return samples.at(0).figures;
  }

  std::string folder_;
  softcuda::Telemetry* telemetry_{nullptr};
  NvmlOptions options_;
  sys::RealClock clock_;
  pid_t job_{0};
};

TEST_F(SoftwareDevice, ShowsWhatAProcessDoes) {
  ASSERT_NO_FATAL_FAILURE(start_job());
  const auto opened = open_nvml(options_);
  ASSERT_TRUE(opened) << opened.error().what;
  DeviceCounters& counters = **opened;
  ASSERT_EQ(counters.devices().size(), 2U);
  EXPECT_EQ(counters.devices()[0].name, "Kansoku software device");
  EXPECT_TRUE(counters.devices()[0].uuid.starts_with("GPU-"));
  DeviceFigures seen;
  // The library needs time of its own until its window holds some of the job's work.
  ASSERT_TRUE(sys::poll_for_test([&] {
    seen = figures(counters);
    if (!seen.processes || seen.processes->size() != 1) return false;
    const ProcessFigures& process = seen.processes->front();
    return process.utilization.value_or(0) > 0 && process.memory_utilization.value_or(0) > 0 &&
           seen.utilization.value_or(0) > 0 && seen.pcie_received_per_s.value_or(0) > 0;
  }));
  const ProcessFigures& process = seen.processes->front();
  EXPECT_EQ(process.pid, static_cast<std::uint32_t>(job_));
  EXPECT_EQ(process.memory_bytes, kJobBytes);
  EXPECT_GT(process.utilization.value_or(0), 0);
  EXPECT_GT(process.memory_utilization.value_or(0), 0);
  EXPECT_GT(seen.utilization.value_or(0), 0);
  EXPECT_EQ(seen.memory_used_bytes, kJobBytes);
  EXPECT_EQ(seen.memory_total_bytes, 256U << 20);
  EXPECT_GT(seen.pcie_received_per_s.value_or(0), 0);
  EXPECT_EQ(seen.pcie_sent_per_s, 0.0);
  EXPECT_EQ(seen.nvlink_sent_per_s, std::nullopt);  // it has none
  EXPECT_EQ(seen.nvlink_replays, std::nullopt);
  EXPECT_EQ(seen.pcie_replays, 0U);
  // The other device is idle, and says so.
  const DeviceFigures other = counters.sample(clock_.now())[1].figures;
  EXPECT_EQ(other.utilization, 0.0);
  ASSERT_TRUE(other.processes);
  for (const ProcessFigures& user : *other.processes) {  // started on every device, uses one
    EXPECT_EQ(user.memory_bytes, 0U);
    EXPECT_EQ(user.utilization, 0.0);
  }
  EXPECT_EQ(counters.stats().failed_calls, 0U);
  EXPECT_EQ(counters.stats().odd_values, 0U);
}

/// Settings that `kansoku gpu set` writes.
TEST_F(SoftwareDevice, FollowsTheSettings) {
  const auto opened = open_nvml(options_);
  ASSERT_TRUE(opened) << opened.error().what;
  DeviceCounters& counters = **opened;
  DeviceFigures seen = figures(counters);
  EXPECT_EQ(seen.sm_clock_hz, softcuda::kNominalClockMhz * 1e6);
  EXPECT_EQ(seen.sm_clock_max_hz, softcuda::kNominalClockMhz * 1e6);
  EXPECT_EQ(seen.memory_clock_hz, softcuda::kMemoryClockMhz * 1e6);
  EXPECT_EQ(seen.power_watts, softcuda::kIdleMilliwatts / 1e3);
  EXPECT_EQ(seen.power_limit_watts, softcuda::kPowerLimitMilliwatts / 1e3);
  EXPECT_EQ(seen.temperature_celsius, softcuda::kIdleCelsius);
  EXPECT_EQ(seen.throttle_reasons, softcuda::kThrottleIdle);
  telemetry_->speed_permille = 500;
  telemetry_->temperature_celsius = 91;
  telemetry_->throttle_reasons = softcuda::kThrottleThermal;
  telemetry_->corrected_errors = 7;
  telemetry_->uncorrected_errors = 2;
  telemetry_->last_xid = 63;
  const DeviceSample sample = counters.sample(clock_.now())[0];
  seen = sample.figures;
  EXPECT_EQ(seen.sm_clock_hz, softcuda::kNominalClockMhz * 0.5e6);
  EXPECT_EQ(seen.sm_clock_max_hz, softcuda::kNominalClockMhz * 1e6);
  EXPECT_EQ(seen.temperature_celsius, 91.0);
  EXPECT_EQ(throttle_reason_names(seen.throttle_reasons.value_or(0)),
            std::vector<std::string_view>{"sw_thermal"});
  EXPECT_EQ(seen.ecc_corrected, 7U);
  EXPECT_EQ(seen.ecc_uncorrected, 2U);
  EXPECT_EQ(seen.remapped_rows_uncorrected, 0U);
  EXPECT_EQ(sample.xid_count, 1U);
  EXPECT_EQ(sample.last_xid, 63U);
  EXPECT_EQ(counters.sample(clock_.now())[0].xid_count, 1U);
  telemetry_->last_xid = 79;
  EXPECT_EQ(counters.sample(clock_.now())[0].xid_count, 2U);
}

}  // namespace
}  // namespace kansoku::capture::nvml
