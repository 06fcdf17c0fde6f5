// SPDX-License-Identifier: Apache-2.0
#include "infer/peaks.h"

#include <gtest/gtest.h>

#include <atomic>

namespace kansoku::infer {
namespace {

/// Each look at it is a second later than the one before.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override {
    return BootTime{} + std::chrono::seconds{ticks_++};
  }

 private:
  mutable std::atomic<int> ticks_{0};
};

TEST(Peaks, AreWhatAllThreadsDidInTheFastestRound) {
  const TickingClock clock;
  const Peaks one = measure_peaks(1, clock), three = measure_peaks(3, clock);
  EXPECT_EQ(one.threads, 1U);
  EXPECT_EQ(one.bytes_per_second, 64.0 * (1 << 20)) << "64 MiB in a second";
  EXPECT_GT(one.flops, 0);
  EXPECT_EQ(three.threads, 3U);
  EXPECT_EQ(three.bytes_per_second, 3 * one.bytes_per_second);
  EXPECT_EQ(three.flops, 3 * one.flops);
}

TEST(Peaks, HaveAtLeastOneThread) {
  EXPECT_EQ(measure_peaks(0, TickingClock()).threads, 1U);
}

}  // namespace
}  // namespace kansoku::infer
