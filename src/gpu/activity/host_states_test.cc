// SPDX-License-Identifier: Apache-2.0
// Idle time that no slice tells: the scheduler's events and Python's samples do. Every expected
// value is worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gpu/activity/activity.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {
namespace {

double us_by(const WorkReport& report, IdleCause cause) {
  EXPECT_EQ(report.devices.size(), 1U);
  for (const IdleRow& row : report.devices.front().idle.value()) {
    if (row.cause == cause) return row.us;
  }
  return 0;
}

constexpr std::int32_t kMain = 100, kHelper = 101, kStranger = 900;
constexpr std::uint32_t kSleeps = 1;

/// Writes what the scheduler does with the thread that launches.
class Scheduler {
 public:
  explicit Scheduler(Recording& r) : writer_(r.writer()) {
    r.host(kMain, kHelper, "test", "there", {0, 1});  // so that its process is known
  }
  void out(double us, std::uint32_t state) {
    writer_.sched_switch({boot_time(ns_for_test(us)), 0, kMain, 0, state, "train", "swapper"});
  }
  void in(double us) {
    writer_.sched_switch({boot_time(ns_for_test(us)), 0, 0, kMain, 0, "swapper", "train"});
  }
  void wake(double us, std::int32_t waker) {
    writer_.sched_wake(boot_time(ns_for_test(us)), 0, kMain, "train", waker);
  }

 private:
  trace::Writer& writer_;
};

/// The device works 10..1,000 and 3,000..4,000; the second kernel is launched at 2,990.
void work_around_a_wait(Recording& r) {
  r.kernel(kMain, 7, "a", {0, 5}, {10, 1000});
  r.kernel(kMain, 7, "b", {2990, 2995}, {3000, 4000});
}

TEST(HostStateTest, WhoWokeTheThreadTellsWhatItWaitedFor) {
  const WorkReport report = report_for_test([](Recording& r) {
    work_around_a_wait(r);
    Scheduler s(r);
    s.in(0);
    s.out(1100, kSleeps);  // runs 1,000..1,100
    s.wake(1600, kHelper);
    s.in(1620);  // has no processor for 20
    s.out(1700, kSleeps);
    s.wake(2000, kStranger);
    s.in(2010);
    s.out(2500, 0);  // preempted
    s.in(2590);
  });
  EXPECT_NEAR(us_by(report, IdleCause::kLock), 500, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kBlocked), 300, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kProcessor), 20 + 10 + 90, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kFunction), 100 + 80 + 490 + 400, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kUnknown), 0, 1e-6);
}

TEST(HostStateTest, ASleepInACallOfCudaIsTheCalls) {
  const WorkReport report = report_for_test([](Recording& r) {
    work_around_a_wait(r);
    Scheduler s(r);
    s.in(0);
    r.call(kMain, "cuMemAlloc_v2", {1100, 2900}, {{"bytes", 64}});
    r.host(kMain, kMain, "io", "pthread_cond_wait", {1200, 2800});
    s.out(1200, kSleeps);
    s.wake(2800, kHelper);
    s.in(2800);
  });
  EXPECT_NEAR(us_by(report, IdleCause::kAllocation), 1800, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kLock), 0, 1e-6);
}

TEST(HostStateTest, ASleepSoonAfterAWaitIsNotTheWaits) {
  const auto write = [](Recording& r, bool sleeps) {
    r.kernel(kMain, 7, "a", {0, 5}, {10, 1000});
    r.call(kMain, "cudaStreamSynchronize", {500, 1010});
    r.kernel(kMain, 7, "b", {1990, 1995}, {2000, 3000});
    Scheduler s(r);
    s.in(0);
    if (!sleeps) return;
    s.out(1110, kSleeps);
    s.wake(1910, kHelper);
    s.in(1910);
  };
  const WorkReport awake = report_for_test([&](Recording& r) { write(r, false); });
  EXPECT_NEAR(us_by(awake, IdleCause::kSynchronisation), 1000, 1e-6);
  const WorkReport asleep = report_for_test([&](Recording& r) { write(r, true); });
  EXPECT_NEAR(us_by(asleep, IdleCause::kSynchronisation), 200, 1e-6);
  EXPECT_NEAR(us_by(asleep, IdleCause::kLock), 800, 1e-6);
}

TEST(HostStateTest, ALockInsideALoaderIsTheLoaders) {
  const WorkReport report = report_for_test([](Recording& r) {
    work_around_a_wait(r);
    r.host(kMain, kMain, "step", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
           {1000, 2990});
    r.host(kMain, kMain, "os_runtime", "pthread_cond_wait", {1100, 2900});
  });
  EXPECT_NEAR(us_by(report, IdleCause::kLoader), 1990, 1e-6);
}

/// Kernels of 900 every 1,000, samples every 10,300: a gap of 100 is hit once in about ten times.
/// The thread loads in the gaps and waits for the device otherwise.
void sampled_loop(Recording& r, int count, bool in_gaps) {
  trace::Writer& w = r.writer();
  const std::array loads{w.frame("main", "/app/train.py", 3),
                         w.frame("DataLoader.__next__", "/app/data.py", 9)};
  const auto stack = w.stack(loads);
  for (int i = 0; i < count; ++i) {
    const double us = 1000.0 * i;
    r.call(kMain, "cuStreamSynchronize", {us + 10, us + 900});
    r.kernel(kMain, 7, "work", {us, us + 5}, {us, us + 900});
  }
  for (int i = 0; i * 10 + 9 < count; ++i)
    w.sample(kMain, kMain, boot_time(ns_for_test(10'000.0 * i + (in_gaps ? 950 : 500) + i)), stack,
             trace::SampleState::kRunning, false);
  Scheduler s(r);
  s.in(0);
  for (int i = 0; i < count; ++i) {  // asleep in the wait, and in the gap for a disk
    s.out(1000.0 * i + 20, kSleeps);
    s.wake(1000.0 * i + 900, kStranger);
    s.in(1000.0 * i + 900);
    s.out(1000.0 * i + 901, kSleeps);
    s.wake(1000.0 * i + 999, kStranger);
    s.in(1000.0 * i + 999);
  }
}

TEST(HostStateTest, SamplesOfSomeShortGapsSpeakForAll) {
  const WorkReport report = report_for_test([](Recording& r) { sampled_loop(r, 300, true); });
  // 299 gaps, of which the thread sleeps for 98 of 100; its 30 samples all see the loader.
  EXPECT_NEAR(us_by(report, IdleCause::kLoader), 299 * 98, 1e-6);
  EXPECT_NEAR(us_by(report, IdleCause::kBlocked), 0, 1e-6);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].detail, "loader");
}

TEST(HostStateTest, TooFewSamplesOrSamplesElsewhereSpeakForNone) {
  // Four samples that fell into gaps: each of those is told by its own, the others by the
  // scheduler.
  const WorkReport few = report_for_test([](Recording& r) { sampled_loop(r, 40, true); });
  EXPECT_NEAR(us_by(few, IdleCause::kLoader), 4 * 98, 1e-6);
  EXPECT_NEAR(us_by(few, IdleCause::kBlocked), 35 * 98, 1e-6);
  const WorkReport elsewhere = report_for_test([](Recording& r) { sampled_loop(r, 100, false); });
  EXPECT_NEAR(us_by(elsewhere, IdleCause::kLoader), 0, 1e-6);
  EXPECT_NEAR(us_by(elsewhere, IdleCause::kBlocked), 99 * 98, 1e-6);
}

TEST(StagedCopyTest, AnAsynchronousCopyThatHoldsItsCallerIsPageable) {
  const auto copies = [](double held_us, double copied_us) {
    return report_for_test([&](Recording& r) {
      for (int i = 0; i < 300; ++i) {
        const double us = 1000.0 * i;
        const auto number = static_cast<std::uint64_t>(1'000'000 + i);
        r.kernel(kMain, 7, "work", {us + 300, us + 305}, {us + 300, us + 1000});
        r.call(kMain, "cuMemcpyHtoDAsync_v2", {us + 1010, us + 1010 + held_us},
               {{"correlation", static_cast<std::int64_t>(number)}, {"bytes", 1 << 20}});
        r.op(kMain, 7, "gpu_memcpy", "Memcpy HtoD", {us + 1200, us + 1200 + copied_us}, number,
             {{"bytes", 1 << 20}, {"kind", "HtoD"}});
      }
    });
  };
  const WorkReport staged = copies(190, 80);
  ASSERT_FALSE(staged.findings.empty());
  EXPECT_EQ(staged.findings[0].kind, "copy_bound");
  EXPECT_EQ(staged.findings[0].detail, "pageable");
  EXPECT_NEAR(*staged.findings[0].share, 0.27, 0.01);  // the copy, and 190 of its call
  const WorkReport at_once = copies(8, 80);
  ASSERT_FALSE(at_once.findings.empty());
  EXPECT_EQ(at_once.devices[0].copies->pageable_us, 0);
  const WorkReport big = copies(60, 260);  // held for less than a quarter of the copy's time
  EXPECT_EQ(big.devices[0].copies->pageable_us, 0);
}

}  // namespace
}  // namespace kansoku::gpu::activity
