// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/stolen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnose/diagnose.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job on hosts of eight processors that lose `share` of their time, written once a second.
Diagnosis of_hosts_that_lose(double share, bool is_told = true) {
  trace::Trace trace = make_trace({.step_count = 200});
  for (const std::int32_t pid : {1000, 2000, 3000, 4000}) {
    add_limits(trace, pid, "0-7", 8, 8);
    if (!is_told) continue;
    trace::Track track;
    track.kind = trace::TrackKind::kCounter;
    track.pid = pid;
    track.name = trace.strings.intern("stolen time");
    trace.tracks.push_back(track);
    for (std::int64_t ns = trace.begin_ns; ns < trace.end_ns; ns += 1'000'000'000) {
      trace.counters.time_ns.push_back(ns);
      trace.counters.track.push_back({static_cast<std::uint32_t>(trace.tracks.size() - 1)});
      trace.counters.value.push_back(5e9 + 8 * share * static_cast<double>(ns - trace.begin_ns));
    }
  }
  auto found = diagnose(trace, {});
  EXPECT_TRUE(found);
  return std::move(found).value();
}

TEST(Stolen, IsToldOfAllRanksOfTheHost) {
  const Diagnosis d = of_hosts_that_lose(0.2);
  ASSERT_THAT(kinds_of(d), ElementsAre("stolen")) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(d.findings[0].share, 0.2, 0.01);
  EXPECT_THAT(d.findings[0].evidence[0], HasSubstr("the 8 processors of rank 0's host"));
  EXPECT_THAT(verdict_text(d), HasSubstr("observed"));
}

TEST(Stolen, LittleIsNoFindingNorIsWhatNobodyCounts) {
  EXPECT_THAT(kinds_of(of_hosts_that_lose(0.02)), IsEmpty());
  EXPECT_THAT(kinds_of(of_hosts_that_lose(0.2, false)), IsEmpty());
}

}  // namespace
}  // namespace kansoku::diagnose
