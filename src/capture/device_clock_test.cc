// SPDX-License-Identifier: Apache-2.0
#include "capture/device_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/rng.h"
#include "trace/reader.h"

namespace kansoku::capture {
namespace {

constexpr std::int64_t kDeviceSecond = 1'000'000'000;

/// A clock that was set to `begin_ns` when boot time was 0 and runs at `rate`.
struct Device {
  double rate{1};
  std::int64_t begin_ns{0};
  [[nodiscard]] std::int64_t at(std::int64_t boot_ns) const {
    return begin_ns + std::llround(rate * static_cast<double>(boot_ns));
  }
};

TEST(DeviceClock, KnowsNothingBeforeItsFirstReading) {
  EXPECT_FALSE(DeviceClock("d").to_boot(1).has_value());
}

TEST(DeviceClock, TheTruthLiesWithinTheError) {
  for (const double drift : {-190e-6, -20e-6, 0.0, 37e-6, 190e-6}) {
    const Device device{1 + drift, 1'700'000'000 * kDeviceSecond};
    DeviceClock clock("d");
    Rng rng(7);
    for (std::int64_t second = 0; second < 300; ++second) {
      const std::int64_t asked = second * kDeviceSecond;
      const std::int64_t answered =
          asked + 1'000 + static_cast<std::int64_t>(rng.uniform() * 60'000);
      const std::int64_t read =
          asked + static_cast<std::int64_t>(rng.uniform() * static_cast<double>(answered - asked));
      clock.add(device.at(read), boot_time(asked), boot_time(answered));
      for (const std::int64_t ago : {std::int64_t{0}, kDeviceSecond / 3, 5 * kDeviceSecond}) {
        const std::int64_t truth = answered - ago;
        const auto mapped = clock.to_boot(device.at(truth));
        ASSERT_TRUE(mapped.has_value());
        const std::int64_t apart = std::abs((mapped->time - boot_time(truth)).count());
        ASSERT_LE(apart, mapped->error.count()) << drift << " s " << second << " ago " << ago;
      }
    }
    // Better than the readings themselves: the lucky ones bound the others.
    EXPECT_LT(clock.to_boot(device.at(299 * kDeviceSecond))->error.count(), 30'000) << drift;
    EXPECT_EQ(clock.restarts(), 0U);
  }
}

// Wide readings of a clock that is slow by two fifths do not contradict each other for a while.
TEST(DeviceClock, KeepsPaceOnceReadingsAreFarApartForTheirWidth) {
  constexpr std::int64_t kMs = 1'000'000;
  DeviceClock slow("d"), good("d");
  for (std::int64_t i = 0; i < 3; ++i) {
    slow.add(i * 12 * kMs, boot_time(i * 20 * kMs), boot_time(i * 20 * kMs + 20 * kMs));
    good.add(i * 20 * kMs + 7, boot_time(i * 20 * kMs), boot_time(i * 20 * kMs + 20 * kMs));
  }
  EXPECT_EQ(slow.restarts(), 0U);
  EXPECT_FALSE(slow.keeps_pace());
  EXPECT_FALSE(good.keeps_pace());
  slow.add(40 * kMs, boot_time(700 * kMs), boot_time(720 * kMs));
  good.add(701 * kMs, boot_time(700 * kMs), boot_time(720 * kMs));
  EXPECT_EQ(slow.restarts(), 1U);
  EXPECT_FALSE(slow.keeps_pace());
  EXPECT_TRUE(good.keeps_pace());
}

TEST(DeviceClock, NarrowReadingsTellAtOnce) {
  DeviceClock clock("d");
  clock.add(5'000, boot_time(0), boot_time(30'000));
  EXPECT_FALSE(clock.keeps_pace());
  clock.add(10'005'000, boot_time(10'000'000), boot_time(10'030'000));
  EXPECT_TRUE(clock.keeps_pace());
}

TEST(DeviceClock, BeginsAnewWhenTheClockDoes) {
  DeviceClock clock("d");
  clock.add(100 * kDeviceSecond, boot_time(kDeviceSecond), boot_time(kDeviceSecond + 1000));
  clock.add(3, boot_time(2 * kDeviceSecond),
            boot_time(2 * kDeviceSecond + 1000));  // the device was reset
  EXPECT_EQ(clock.restarts(), 1U);
  const auto mapped = clock.to_boot(3);
  EXPECT_NEAR(static_cast<double>((mapped->time - boot_time(2 * kDeviceSecond)).count()), 500, 2);
  EXPECT_LE(mapped->error.count(), 502);
  clock.add(4, boot_time(9), boot_time(8));  // makes no sense
  EXPECT_EQ(clock.restarts(), 1U);
}

TEST(DeviceClock, ItsMapIsWrittenWithItsError) {
  MemorySink sink;
  const auto writer = trace::Writer::create(sink, boot_time(0)).value();
  DeviceClock clock("gpu0");
  clock.write(*writer, boot_time(1));  // nothing is known yet
  clock.add(7 * kDeviceSecond, boot_time(kDeviceSecond), boot_time(kDeviceSecond + 200));
  clock.write(*writer, boot_time(2));
  ASSERT_TRUE(writer->flush().has_value());
  const auto trace = trace::read_trace(as_bytes(sink.data()));
  ASSERT_TRUE(trace.has_value());
  EXPECT_THAT(trace->metadata.at("kansoku.clock.gpu0"),
              ::testing::StartsWith("offset_ns=-5999999900 at_ns=7000000000 error_ns=101 "));
}

}  // namespace
}  // namespace kansoku::capture
