// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sleeps.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace kansoku::diagnose {
namespace {

TEST(SleepSamples, AreThoseOfOneThreadWithinTheRegion) {
  trace::Trace trace;
  for (const std::int32_t tid : {7, 8}) {
    trace.tracks.push_back({});
    trace.tracks.back().tid = tid;
    for (const std::int64_t time_ns : {10, 20, 30}) {
      trace.instants.time_ns.push_back(time_ns);
      trace.instants.track.push_back(
          trace::TrackId{static_cast<std::uint32_t>(trace.tracks.size() - 1)});
      trace.instants.name.push_back(trace.strings.intern("wait"));
      trace.instants.arg_begin.push_back(0);
      trace.instants.arg_count.push_back(0);
    }
  }
  const auto found = sleep_samples(trace, 8, stats::IntervalSet::of({{15, 30}}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].time_ns, 20);
  EXPECT_EQ(found[0].call, "");
}

TEST(WaitText, NamesTheLockBeforeTheCall) {
  EXPECT_EQ(wait_text("futex", kInterpreterLock), "for the interpreter lock");
  EXPECT_EQ(wait_text("futex", ""), "for a lock or a condition (futex)");
  EXPECT_EQ(wait_text("read", ""), "in read");
  EXPECT_EQ(wait_text("read", "pipe:[17]"), "in read on pipe:[17]");
}

}  // namespace
}  // namespace kansoku::diagnose
