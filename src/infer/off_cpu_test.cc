// SPDX-License-Identifier: Apache-2.0
#include "infer/off_cpu.h"

#include <gtest/gtest.h>

#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

constexpr std::uint32_t kRunnable = 0, kAsleep = 1, kInDisk = 2;

class OffCpuTest : public testing::Test {
 protected:
  void expect(std::int32_t tid, const Span& span, double runnable, double blocked) {
    const OffCpu off(recording_.trace());
    const OffCpu::Times times = off.within(tid, span);
    EXPECT_DOUBLE_EQ(times.runnable_ns, runnable) << span.begin_ns << " to " << span.end_ns;
    EXPECT_DOUBLE_EQ(times.blocked_ns, blocked) << span.begin_ns << " to " << span.end_ns;
  }
  RecordingForTest recording_;
};

TEST_F(OffCpuTest, IsUnknownWithoutTheScheduler) {
  EXPECT_FALSE(OffCpu(recording_.trace()).is_known());
  expect(7, {0, 100}, 0, 0);
  recording_.change(10, 7, kAsleep, 8);
  EXPECT_TRUE(OffCpu(recording_.trace()).is_known());
}

TEST_F(OffCpuTest, OfAThreadThatWasPreemptedIsRunnable) {
  recording_.change(10, 7, kRunnable, 8);
  recording_.change(30, 8, kAsleep, 7);
  expect(7, {0, 100}, 20, 0);
  expect(7, {15, 25}, 10, 0);
  expect(7, {0, 12}, 2, 0);
  expect(7, {28, 100}, 2, 0);
  expect(7, {0, 10}, 0, 0);
  expect(7, {30, 40}, 0, 0);
  expect(9, {0, 100}, 0, 0);
}

TEST_F(OffCpuTest, OfAThreadThatSleptIsRunnableFromItsWaking) {
  recording_.change(10, 7, kAsleep, 0);
  recording_.wake(25, 7);
  recording_.wake(27, 7);  // it is awake already
  recording_.change(30, 0, kRunnable, 7);
  expect(7, {0, 100}, 5, 0);
  expect(7, {0, 26}, 1, 0);
}

TEST_F(OffCpuTest, OfAThreadInTheDiskIsBlockedUntilItsWaking) {
  recording_.change(10, 7, kInDisk, 0);
  recording_.wake(25, 7);
  recording_.change(30, 0, kRunnable, 7);
  recording_.change(40, 7, kInDisk, 0);  // its waker is not told
  recording_.change(50, 0, kRunnable, 7);
  expect(7, {0, 100}, 5, 25);
  expect(7, {20, 45}, 5, 10);
}

TEST_F(OffCpuTest, OfASleepWithoutAWakingIsUnknown) {
  recording_.change(10, 7, kAsleep, 8);
  recording_.change(30, 8, kAsleep, 7);
  expect(7, {0, 100}, 0, 0);
}

TEST_F(OffCpuTest, OfAThreadThatDoesNotComeBackIsUnknown) {
  recording_.wake(5, 7);  // before
  recording_.change(10, 7, kRunnable, 8);
  expect(7, {0, 100}, 0, 0);
}

TEST_F(OffCpuTest, OfIdleIsNone) {
  recording_.change(10, 0, kRunnable, 7);
  recording_.change(20, 7, kAsleep, 0);
  expect(0, {0, 100}, 0, 0);
}

TEST_F(OffCpuTest, TakesEventsOfTwoProcessorsInOrderOfTime) {
  recording_.change(30, 9, kAsleep, 7);
  recording_.change(10, 7, kRunnable, 8);
  expect(7, {0, 100}, 20, 0);
}

}  // namespace
}  // namespace kansoku::infer
