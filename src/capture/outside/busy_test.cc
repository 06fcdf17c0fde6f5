// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/busy.h"

#include <gtest/gtest.h>

#include "capture/outside/calls_for_test.h"

namespace kansoku::capture::outside {
namespace {

constexpr StreamId kA{10, 0}, kB{20, 0};

class BusyTest : public testing::Test {
 protected:
  static Call sync(const StreamId& stream, std::int64_t begin) {
    return call_for_test("cuStreamSynchronize", {{Key::kStream, stream.handle}}, begin);
  }
  static Call context(std::int64_t begin) { return call_for_test("cuCtxSynchronize", {}, begin); }
  void expect(std::int64_t lower, std::int64_t upper, std::int64_t end) const {
    const BusyBounds got = clock_.bounds(at_ns(end));
    EXPECT_EQ(got.lower, Nanos{lower});
    EXPECT_EQ(got.upper, Nanos{upper});
    EXPECT_TRUE(got.is_known);
  }
  BusyClock clock_{at_ns(0), true, Nanos{0}};
};

TEST_F(BusyTest, WithoutWorkIsZero) {
  expect(0, 0, 100);
  clock_.on_wait(context(10), at_ns(20));
  expect(0, 0, 100);
}

TEST_F(BusyTest, LiesBetweenTheWaitAndTheTimeFromTheLaunch) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_work(kA, at_ns(15), true);
  clock_.on_wait(sync(kA, 30), at_ns(50));
  expect(20, 40, 100);
}

TEST_F(BusyTest, WithoutAWaitGoesOnToTheEnd) {
  clock_.on_work(kA, at_ns(10), true);
  expect(0, 90, 100);
}

TEST_F(BusyTest, AWaitForAnotherStreamCoversNothing) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_wait(sync(kB, 30), at_ns(50));
  expect(0, 90, 100);
}

TEST_F(BusyTest, HostFunctionsMayBlockWithoutWork) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_work(kB, at_ns(12), false);  // A may wait for it
  clock_.on_wait(sync(kA, 30), at_ns(50));
  expect(0, 90, 100);
  clock_.on_wait(context(60), at_ns(70));
  expect(0, 60, 100);
  clock_.on_work(kA, at_ns(80), true);
  clock_.on_wait(sync(kA, 82), at_ns(90));
  expect(8, 70, 100);
}

TEST_F(BusyTest, UnionsDoNotCountTwice) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_work(kB, at_ns(20), true);
  clock_.on_wait(sync(kA, 30), at_ns(40));
  clock_.on_wait(sync(kB, 30), at_ns(60));  // of another thread
  expect(30, 50, 100);
}

TEST_F(BusyTest, WorkThatCameDuringTheWaitIsStillPending) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_work(kA, at_ns(35), true);
  clock_.on_wait(sync(kA, 30), at_ns(50));
  expect(20, 90, 100);
}

TEST_F(BusyTest, AnEventCoversWhatWasBeforeIt) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_event_record(5, kA, at_ns(20));
  const Call wait = call_for_test("cuEventSynchronize", {{Key::kEvent, 5}}, 30);
  clock_.on_wait(wait, at_ns(40));
  expect(10, 30, 100);
  clock_.on_work(kA, at_ns(50), true);
  clock_.on_wait(wait, at_ns(60));  // recorded before that work
  expect(10, 80, 100);
}

TEST_F(BusyTest, ACopyToTheHostWaitsForItself) {
  const Call copy = call_for_test("cuMemcpyDtoH_v2", {{Key::kBytes, 4}}, 20);
  clock_.on_work(stream_of(copy), at_ns(10), true);
  clock_.on_work(stream_of(copy), at_ns(20), true);
  clock_.on_wait(copy, at_ns(40));
  expect(20, 30, 100);
}

TEST_F(BusyTest, ARowOfQueriesIsAWait) {
  clock_.on_work(kA, at_ns(10), true);
  const auto query = [&](std::int64_t begin, bool is_ready) {
    clock_.on_query(call_for_test("cuStreamQuery", {{Key::kStream, kA.handle}}, begin),
                    at_ns(begin + 1), is_ready);
  };
  query(20, false);
  query(30, false);
  query(45, false);
  query(60, true);
  expect(25, 51, 100);  // from 20 to 45 it was not ready; at 61 it was
}

TEST_F(BusyTest, OfARunningProgramIsBusyUntilAWaitForAll) {
  BusyClock late(at_ns(0), false, Nanos{0});
  late.on_work(kA, at_ns(10), true);
  late.on_wait(sync(kA, 20), at_ns(30));
  EXPECT_EQ(late.bounds(at_ns(100)).upper, Nanos{100});
  EXPECT_EQ(late.bounds(at_ns(100)).lower, Nanos{0});
  late.on_wait(context(40), at_ns(50));
  EXPECT_EQ(late.bounds(at_ns(100)).upper, Nanos{50});
}

TEST_F(BusyTest, AStreamThatEndsKeepsItsWork) {
  clock_.on_work(kA, at_ns(10), true);
  clock_.on_stream_end(kA);
  expect(0, 90, 100);
  clock_.on_wait(context(40), at_ns(50));
  expect(0, 40, 100);
}

TEST_F(BusyTest, AfterALossIsUnknown) {
  clock_.on_loss();
  EXPECT_FALSE(clock_.bounds(at_ns(1)).is_known);
}

TEST_F(BusyTest, TheCostOfAWaitIsNoWork) {
  BusyClock clock(at_ns(0), true, Nanos{5});
  clock.on_work(kA, at_ns(10), true);
  clock.on_wait(sync(kA, 20), at_ns(50));
  EXPECT_EQ(clock.bounds(at_ns(100)).lower, Nanos{25});
}

TEST_F(BusyTest, ManyIntervalsAddUp) {
  for (std::int64_t i = 0; i < 5'000; ++i) {
    clock_.on_work(kA, at_ns(100 * i), true);
    clock_.on_wait(sync(kA, 100 * i + 10), at_ns(100 * i + 30));
  }
  expect(100'000, 150'000, 500'000);
}

}  // namespace
}  // namespace kansoku::capture::outside
