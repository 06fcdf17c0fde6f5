// SPDX-License-Identifier: Apache-2.0
// Against a library that fails, hangs and lies as it is told.
#include "capture/nvml/counters.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "capture/nvml/fake_nvml_for_test.h"
#include "sys/wait_for_test.h"

namespace kansoku::capture::nvml {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The clock of a test; nothing here takes time.
BootTime at(int seconds) {
  return boot_time(std::int64_t{1'000'000'000} * (1000 + seconds));
}

class Counters : public ::testing::Test {
 protected:
  Counters() {
    // A copy for each test: a thread that another test left behind may still call into its own.
    path_ = ::testing::TempDir() + "libfake_nvml-" + std::to_string(getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".so";
    std::filesystem::copy_file(KANSOKU_FAKE_NVML, path_,
                               std::filesystem::copy_options::overwrite_existing);
    options_.library = path_;
    library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    auto* const control = reinterpret_cast<fake_nvml* (*)()>(dlsym(library_, "fake_nvml_control"));
    fake_ = control();
    *fake_ = {};
    set(fake_->devices, 2);
    set(fake_->process_count, -1);
    set(fake_->use_percent, 40);
    options_.deadline = options_.open_deadline = sys::kPatienceForTest;
  }
  ~Counters() override {
    set(fake_->is_released, 1);
    std::filesystem::remove(path_);  // it stays loaded, for such a thread
  }

  static void set(long& value, long to) { __atomic_store_n(&value, to, __ATOMIC_SEQ_CST); }
  static long get(const long& value) { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
  std::unique_ptr<DeviceCounters> open() {
    auto opened = open_nvml(options_);
    EXPECT_TRUE(opened) << opened.error().what;
    return opened ? std::move(*opened) : nullptr;
  }

  std::string path_;
  void* library_{nullptr};
  fake_nvml* fake_{nullptr};
  NvmlOptions options_;
};

void expect_all_figures(const DeviceFigures& figures) {
  EXPECT_EQ(figures.utilization, 0.75);
  EXPECT_EQ(figures.memory_utilization, 0.25);
  EXPECT_EQ(figures.memory_used_bytes, 400U);
  EXPECT_EQ(figures.memory_total_bytes, 1000U);
  EXPECT_EQ(figures.sm_clock_hz, 1000e6);
  EXPECT_EQ(figures.sm_clock_max_hz, 1410e6);
  EXPECT_EQ(figures.memory_clock_hz, 1215e6);
  EXPECT_EQ(figures.memory_clock_max_hz, 1215e6);
  EXPECT_EQ(figures.power_watts, 250.5);
  EXPECT_EQ(figures.power_limit_watts, 400.0);
  EXPECT_EQ(figures.temperature_celsius, 66.0);
  EXPECT_EQ(figures.throttle_reasons, 0x24U);
  EXPECT_EQ(figures.ecc_corrected, 5U);
  EXPECT_EQ(figures.ecc_uncorrected, 1U);
  EXPECT_EQ(figures.remapped_rows_corrected, 2U);
  EXPECT_EQ(figures.remapped_rows_uncorrected, 1U);
  EXPECT_EQ(figures.is_remap_pending, true);
  EXPECT_EQ(figures.has_remap_failed, false);
  EXPECT_EQ(figures.pcie_replays, 9U);
  EXPECT_EQ(figures.nvlink_replays, 52U);
  EXPECT_EQ(figures.nvlink_recoveries, 59U);
  EXPECT_EQ(figures.nvlink_crc_errors, 38U + 45U);
}

TEST_F(Counters, GivesEveryFigure) {
  const auto counters = open();
  ASSERT_EQ(counters->devices().size(), 2U);
  EXPECT_EQ(counters->devices()[1].uuid, "GPU-fake-1");
  EXPECT_EQ(counters->devices()[1].name, "Fake");
  const auto samples = counters->sample(at(0));
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[1].index, 1U);
  EXPECT_EQ(samples[1].read_at, at(0));
  EXPECT_FALSE(samples[1].is_lost);
  expect_all_figures(samples[1].figures);
  ASSERT_TRUE(samples[1].figures.processes);
  const auto& processes = *samples[1].figures.processes;
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].pid, 199U);  // ascending
  EXPECT_EQ(processes[0].memory_bytes, std::nullopt);
  EXPECT_EQ(processes[0].utilization, std::nullopt);  // no sample yet, and it is not alone
  EXPECT_EQ(processes[1].pid, 200U);
  EXPECT_EQ(processes[1].memory_bytes, 4096U);
  EXPECT_EQ(processes[1].utilization, 0.4);  // the latest of two
  EXPECT_EQ(processes[1].memory_utilization, 0.1);
  EXPECT_EQ(counters->stats().failed_calls, 0U);
  EXPECT_EQ(counters->stats().odd_values, 0U);
}

TEST_F(Counters, RatesNeedTwoReadingsAndCountersThatGoOn) {
  const auto counters = open();
  constexpr double kKib = 1024;
  set(fake_->counter, 1000);
  EXPECT_EQ(counters->sample(at(0))[0].figures.nvlink_sent_per_s, std::nullopt);
  set(fake_->counter, 3000);
  auto figures = counters->sample(at(2))[0].figures;
  EXPECT_EQ(figures.nvlink_sent_per_s, 1000 * kKib);
  EXPECT_EQ(figures.nvlink_received_per_s, 1000 * kKib);
  EXPECT_EQ(figures.pcie_sent_per_s, std::nullopt) << "it has no counters of PCIe";
  set(fake_->counter, 500);  // reset, or wrapped
  figures = counters->sample(at(3))[0].figures;
  EXPECT_EQ(figures.nvlink_received_per_s, std::nullopt);
  set(fake_->counter, 700);
  EXPECT_EQ(counters->sample(at(4))[0].figures.nvlink_sent_per_s, 200 * kKib);
  set(fake_->is_counter_narrow, 1);
  set(fake_->counter, 0x1'0000'0001);  // 32 bits of it are 1
  EXPECT_EQ(counters->sample(at(5))[0].figures.nvlink_sent_per_s, std::nullopt);
  EXPECT_EQ(counters->sample(at(5))[0].figures.nvlink_sent_per_s, std::nullopt);  // no time between
}

TEST_F(Counters, RatesOfPcieAreOfTwoLooksThatAreSoCloseThatAWrapIsOne) {
  const auto counters = open();
  set(fake_->is_counter_narrow, 1);
  set(fake_->pcie_counter, 0xffff'fff0);
  set(fake_->pcie_step, 1'000'000);
  for (int i = 0; i < 3; ++i) {
    for (const DeviceSample& sample : counters->sample(at(i))) {
      const DeviceFigures& figures = sample.figures;
      // Two devices look twice at the same counter; 20 ms lie between the looks at least.
      ASSERT_TRUE(figures.pcie_sent_per_s && figures.pcie_received_per_s);
      EXPECT_GT(*figures.pcie_sent_per_s, 0);
      EXPECT_LE(*figures.pcie_sent_per_s, 2e6 / 0.02);
      EXPECT_GT(*figures.pcie_received_per_s, 0);
      EXPECT_LE(*figures.pcie_received_per_s, 2e6 / 0.02);
    }
  }
  EXPECT_EQ(counters->stats().odd_values, 0U);
}

TEST_F(Counters, AProcessAmongOthersKeepsItsLastShareUntilItIsOld) {
  const auto counters = open();
  EXPECT_EQ(counters->sample(at(0))[0].figures.processes->back().utilization, 0.4);
  set(fake_->is_use_missing, 1);
  const auto figures = counters->sample(at(10))[0].figures;
  EXPECT_EQ(figures.processes->back().utilization, 0.4) << "its sample is some seconds old";
  EXPECT_EQ(figures.processes->front().utilization, std::nullopt) << "it never had one";
  EXPECT_EQ(counters->sample(at(11))[0].figures.processes->back().utilization, std::nullopt);
}

TEST_F(Counters, ASampleThatIsLeftFromAnEarlierQuestionTellsNothing) {
  const auto counters = open();
  set(fake_->use_age_us, 20);  // as old as the question asks for, which is for newer ones
  EXPECT_EQ(counters->sample(at(0))[0].figures.processes->back().utilization, std::nullopt);
  set(fake_->use_age_us, 19);
  EXPECT_EQ(counters->sample(at(1))[0].figures.processes->back().utilization, 0.4);
}

TEST_F(Counters, ManyDevicesThatMeasurePcieThemselvesDoItInTurns) {
  constexpr double kKib = 1024;
  set(fake_->devices, 6);
  set(fake_->pcie_throughput, 5);
  const auto counters = open();
  std::vector<int> known(6);
  for (int i = 0; i < 3; ++i) {
    const long before = get(fake_->pcie_measurements);
    const auto samples = counters->sample(at(i));
    ASSERT_EQ(samples.size(), 6U);
    EXPECT_EQ(get(fake_->pcie_measurements) - before, 2 * 2) << "two devices, two directions";
    for (const DeviceSample& sample : samples) {
      if (!sample.figures.pcie_sent_per_s) continue;
      EXPECT_EQ(sample.figures.pcie_sent_per_s, 5 * kKib);
      EXPECT_EQ(sample.figures.pcie_received_per_s, 6 * kKib);
      ++known[sample.index];
    }
  }
  // Each has had its turn, and keeps its figure until the next.
  EXPECT_THAT(known, ::testing::UnorderedElementsAre(1, 1, 2, 2, 3, 3));
}

/// The Nth call fails, for every N: only the value of that call is missing.
TEST_F(Counters, EveryCallMayFail) {
  set(fake_->fail_status, 999);
  bool is_over = false;
  for (long n = 1; !is_over; ++n) {
    ASSERT_LT(n, 1000);
    ASSERT_EQ(get(fake_->event_sets), 0) << "after the failure of call " << n - 1;
    set(fake_->calls, 0);
    set(fake_->fail_at, n);
    auto opened = open_nvml(options_);
    if (!opened) {
      EXPECT_LE(n, 2) << opened.error().what;  // init and count
      EXPECT_EQ(opened.error().code, Code::kUnavailable);
      continue;
    }
    const auto samples = (*opened)->sample(at(0));
    is_over = get(fake_->calls) < n;
    EXPECT_EQ((*opened)->stats().failed_calls, is_over ? 0U : 1U) << n;
    if (n == 3 || n == 6) continue;  // a device without a handle is not there
    ASSERT_EQ(samples.size(), 2U) << n;
    int whole = 0;
    for (const DeviceSample& sample : samples) {
      EXPECT_FALSE(sample.is_lost) << n;
      EXPECT_EQ(sample.read_at, at(0)) << n;
      const DeviceFigures& f = sample.figures;
      const int missing =
          !f.utilization + !f.memory_used_bytes + !f.sm_clock_hz + !f.sm_clock_max_hz +
          !f.memory_clock_hz + !f.memory_clock_max_hz + !f.power_watts + !f.power_limit_watts +
          !f.temperature_celsius + !f.throttle_reasons + !f.ecc_corrected + !f.ecc_uncorrected +
          !f.remapped_rows_corrected + !f.pcie_replays + !f.nvlink_replays + !f.processes;
      EXPECT_LE(missing, 1) << n;
      whole += missing == 0 ? 1 : 0;
    }
    EXPECT_GE(whole, 1) << n;
    EXPECT_GE(get(fake_->event_sets), 1) << n;
  }
  EXPECT_EQ(get(fake_->event_sets), 0);
}

TEST_F(Counters, WhatIsNotSupportedIsNeitherZeroNorAFailure) {
  const auto counters = open();
  set(fake_->fail_at, get(fake_->calls) + 3);  // the first of device 0, after the waits for events
  set(fake_->fail_status, 3);
  EXPECT_EQ(counters->sample(at(0))[0].figures.utilization, std::nullopt);
  EXPECT_EQ(counters->stats().failed_calls, 0U);
  const long before = get(fake_->calls);
  EXPECT_EQ(counters->sample(at(1))[0].figures.utilization, std::nullopt);
  const long calls = get(fake_->calls) - before;
  EXPECT_EQ(counters->sample(at(2))[1].figures.utilization, 0.75);
  // It is asked again much later.
  for (int i = 3; i < 300; ++i)
    static_cast<void>(counters->sample(at(i)));
  EXPECT_EQ(counters->sample(at(300))[0].figures.utilization, 0.75);
  const long later = get(fake_->calls);
  static_cast<void>(counters->sample(at(301)));
  EXPECT_EQ(get(fake_->calls) - later, calls + 1);
}

TEST_F(Counters, ALostDeviceKeepsItsLastFiguresAndIsTriedAgain) {
  const auto counters = open();
  static_cast<void>(counters->sample(at(0)));
  set(fake_->lost_device, 1);
  set(fake_->pending_xid, 79);
  auto samples = counters->sample(at(1));
  EXPECT_TRUE(samples[0].is_lost);
  EXPECT_EQ(samples[0].read_at, at(0));
  expect_all_figures(samples[0].figures);
  EXPECT_EQ(samples[1].read_at, at(1));
  EXPECT_EQ(samples[1].xid_count, 1U);
  EXPECT_EQ(samples[1].last_xid, 79U);
  EXPECT_EQ(samples[0].last_xid, std::nullopt);
  // Tried after 1, 2 and 4 s, with one call each time.
  for (const auto& [second, tries] :
       {std::pair{1, 0}, {2, 1}, {3, 0}, {4, 1}, {5, 0}, {7, 0}, {8, 1}}) {
    const long whole = get(fake_->calls);
    static_cast<void>(counters->sample(at(second)));
    static long per_round = 0;
    if (second == 1) per_round = get(fake_->calls) - whole;
    EXPECT_EQ(get(fake_->calls) - whole, per_round + tries) << second;
  }
  EXPECT_EQ(counters->stats().lost, 1U);
  set(fake_->lost_device, 0);
  EXPECT_TRUE(counters->sample(at(15))[0].is_lost);
  samples = counters->sample(at(16));
  EXPECT_FALSE(samples[0].is_lost);
  EXPECT_EQ(samples[0].read_at, at(16));
  EXPECT_EQ(samples[0].figures.nvlink_sent_per_s, std::nullopt);
  EXPECT_EQ(samples[1].xid_count, 1U);
}

TEST_F(Counters, ADeviceThatAnswersNothingIsLost) {
  const auto counters = open();
  set(fake_->fail_at, get(fake_->calls) + 1);
  set(fake_->fail_for, 1000);
  set(fake_->fail_status, 999);
  const auto samples = counters->sample(at(0));
  EXPECT_TRUE(samples[0].is_lost);
  EXPECT_TRUE(samples[1].is_lost);
  EXPECT_EQ(samples[0].read_at, std::nullopt);
}

/// Rounds until that device has been read; each may end before the new thread has done its work.
std::vector<DeviceSample> sample_until_read(DeviceCounters& counters, BootTime now,
                                            std::size_t device = 1) {
  std::vector<DeviceSample> samples;
  EXPECT_TRUE(sys::poll_for_test([&] {
    samples = counters.sample(now);
    return samples[device].read_at == now;
  }));
  return samples;
}

TEST_F(Counters, ACallThatHangsHoldsNobodyUp) {
  options_.deadline = 1ms;
  const auto counters = open();
  set(fake_->hang_at, get(fake_->calls) + 4);  // in device 0
  auto samples = counters->sample(at(0));
  EXPECT_EQ(samples[0].read_at, std::nullopt);
  while (get(fake_->hung) == 0)
    static_cast<void>(counters->sample(at(1)));
  EXPECT_EQ(counters->stats().hung_calls, 0U);  // not yet
  samples = sample_until_read(*counters, at(3));
  EXPECT_EQ(samples[1].read_at, at(3));
  EXPECT_FALSE(samples[1].is_lost);
  EXPECT_TRUE(samples[0].is_lost);
  EXPECT_EQ(samples[0].read_at, std::nullopt);
  EXPECT_EQ(counters->stats().hung_calls, 1U);
  EXPECT_EQ(counters->stats().lost, 1U);
  // Not asked again while the call is under way, however late.
  samples = sample_until_read(*counters, at(1000));
  EXPECT_TRUE(samples[0].is_lost);
  EXPECT_EQ(counters->stats().hung_calls, 1U);
  // It comes back at last: the device is read again, the answer of then is not taken.
  set(fake_->is_released, 1);
  samples = sample_until_read(*counters, at(2000), 0);
  EXPECT_FALSE(samples[0].is_lost);
}

TEST_F(Counters, AWaitForEventsThatHangsCostsOnlyTheEvents) {
  options_.deadline = 1ms;
  const auto counters = open();
  set(fake_->hang_at, get(fake_->calls) + 1);
  static_cast<void>(counters->sample(at(0)));
  while (get(fake_->hung) == 0)
    static_cast<void>(counters->sample(at(1)));
  const auto samples = sample_until_read(*counters, at(5));
  EXPECT_EQ(samples[1].read_at, at(5));
  EXPECT_EQ(counters->stats().hung_calls, 1U);
}

TEST_F(Counters, AStartThatHangsIsATimeout) {
  options_.open_deadline = 1ms;
  set(fake_->hang_at, 1);
  const auto opened = open_nvml(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kTimeout);
}

TEST_F(Counters, AnObjectIsGoneWhileItsCallHangs) {
  options_.deadline = 1ms;
  auto counters = open();
  set(fake_->hang_at, get(fake_->calls) + 4);
  while (get(fake_->hung) == 0)
    static_cast<void>(counters->sample(at(0)));
  counters.reset();
  set(fake_->is_released, 1);
  while (get(fake_->hung) != 0) {
  }
}

TEST_F(Counters, GarbageIsLeftOut) {
  set(fake_->use_percent, 4'000'000);
  set(fake_->process_count, 0x7fffffff);  // and says that all went well
  set(fake_->is_text_unended, 1);
  const auto counters = open();
  EXPECT_EQ(counters->devices()[0].name, std::string(96, '?'));
  auto figures = counters->sample(at(0))[0].figures;
  EXPECT_FALSE(figures.processes);
  EXPECT_GT(counters->stats().odd_values, 0U);
  set(fake_->process_count, 100'000);  // and has no room
  figures = counters->sample(at(1))[0].figures;
  EXPECT_FALSE(figures.processes);
  EXPECT_EQ(counters->stats().processes_cut, 2U * (100'000 - 1024));
  set(fake_->process_count, 100);  // more than the first try has room for
  figures = counters->sample(at(2))[0].figures;
  ASSERT_TRUE(figures.processes);
  ASSERT_EQ(figures.processes->size(), 100U);
  EXPECT_EQ(figures.processes->back().utilization, std::nullopt);
  EXPECT_EQ(figures.processes->back().memory_utilization, 0.1);
}

TEST_F(Counters, OddNumbersOfDevices) {
  set(fake_->devices, 0);
  auto opened = open_nvml(options_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kNotFound);
  set(fake_->devices, -1);  // as unsigned: 4 billion
  opened = open_nvml(options_);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->devices().size(), 64U);
}

TEST_F(Counters, WhyItDoesNotStart) {
  set(fake_->fail_at, 1);
  for (const auto& [status, code, text] : {std::tuple{9, Code::kUnavailable, "not loaded"},
                                           {4, Code::kPermission, "no permission"},
                                           {18, Code::kUnavailable, "differ in version"},
                                           {999, Code::kUnavailable, "status 999"}}) {
    set(fake_->calls, 0);
    set(fake_->fail_status, status);
    const auto opened = open_nvml(options_);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, code);
    EXPECT_THAT(opened.error().what, HasSubstr(text));
    EXPECT_FALSE(opened.error().hint.empty());
  }
  options_.library = "libno_such_nvml.so.1";
  const auto missing = open_nvml(options_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kUnavailable);
  EXPECT_THAT(missing.error().hint, HasSubstr("driver"));
  options_.library = "libdl.so.2";  // a library, but another one
  EXPECT_THAT(open_nvml(options_).error().what, HasSubstr("no function"));
}

TEST(ThrottleReasons, HaveNames) {
  EXPECT_THAT(throttle_reason_names(0), IsEmpty());
  EXPECT_THAT(throttle_reason_names(0x25), ElementsAre("idle", "sw_power_cap", "sw_thermal"));
  EXPECT_THAT(throttle_reason_names(0x48), ElementsAre("hw_slowdown", "hw_thermal"));
  EXPECT_THAT(throttle_reason_names(~0ULL << 9), IsEmpty());
}

TEST(CounterChange, IsMissingWhereItWentBack) {
  EXPECT_EQ(counter_change(3, 5), 2U);
  EXPECT_EQ(counter_change(5, 5), 0U);
  EXPECT_EQ(counter_change(5, 3), std::nullopt);
  EXPECT_EQ(counter_change(std::nullopt, 3), std::nullopt);
  EXPECT_EQ(counter_change(3, std::nullopt), std::nullopt);
}

}  // namespace
}  // namespace kansoku::capture::nvml
