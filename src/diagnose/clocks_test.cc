// SPDX-License-Identifier: Apache-2.0
#include "diagnose/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <utility>

#include "diagnose/diagnose.h"
#include "diagnose/synthetic_for_test.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int64_t kClockMs = 1'000'000;

/// The recording of a host that has these ranks of a job, by its own clock.
trace::Trace recording(const SyntheticJob& job, const std::set<std::int32_t>& ranks,
                       std::int64_t clock_ns) {
  trace::HostMerger merger;
  EXPECT_TRUE(merger.add(make_trace(job)));
  merger.shift(0, clock_ns);
  trace::Trace trace = merger.take();
  std::erase_if(trace.processes, [&](const trace::Process& p) { return !ranks.contains(p.rank); });
  return trace;
}

SyntheticJob job_of(int rank_count) {
  SyntheticJob job;
  job.rank_count = rank_count;
  job.step_count = 60;
  job.faults = {{.kind = Fault::Kind::kForwardBusy, .rank = 2, .cost_ms = 20}};
  return job;
}

TEST(HostClocksTest, FindsTheShiftWithinItsResidual) {
  for (const std::int64_t clock_ns : {0L, 3 * kClockMs, -40 * kClockMs, 86'400'000 * kClockMs}) {
    const SyntheticJob job = job_of(4);
    trace::HostMerger merger;
    ASSERT_TRUE(merger.add(recording(job, {0, 1}, 0)));
    ASSERT_TRUE(merger.add(recording(job, {2, 3}, clock_ns)));
    const auto clocks = host_clocks(merger.trace(), 2).value();
    ASSERT_TRUE(clocks[1]);
    EXPECT_LE(std::abs(clocks[1]->shift_ns + clock_ns), clocks[1]->residual_ns) << clock_ns;
    EXPECT_LE(std::abs(clocks[1]->shift_ns + clock_ns), 3 * kClockMs);  // a reduction takes 2 ms
    EXPECT_LE(clocks[1]->residual_ns, 25 * kClockMs);  // rank 2 comes 20 ms late each time
    EXPECT_FALSE(clocks[1]->is_contradictory);
    EXPECT_GT(clocks[1]->message_count, 100U);

    merger.shift(1, clocks[1]->shift_ns);
    const Diagnosis diagnosis = diagnose(merger.trace(), {}).value();
    ASSERT_EQ(diagnosis.findings.size(), 1U) << clock_ns;
    EXPECT_EQ(diagnosis.findings[0].ranks, std::vector<std::int32_t>{2});
    EXPECT_EQ(diagnosis.findings[0].kind, "slow_forward");
  }
}

TEST(HostClocksTest, ThreeHostsHaveThreeClocks) {
  const SyntheticJob job = job_of(6);
  trace::HostMerger merger;
  ASSERT_TRUE(merger.add(recording(job, {0, 1}, 0)));
  ASSERT_TRUE(merger.add(recording(job, {2, 3}, 7 * kClockMs)));
  ASSERT_TRUE(merger.add(recording(job, {4, 5}, -11 * kClockMs)));
  const auto clocks = host_clocks(merger.trace(), 3).value();
  ASSERT_TRUE(clocks[1] && clocks[2]);
  EXPECT_NEAR(static_cast<double>(clocks[1]->shift_ns), -7e6, 3e6);
  EXPECT_NEAR(static_cast<double>(clocks[2]->shift_ns), 11e6, 3e6);
}

TEST(HostClocksTest, ClocksThatDriftContradictThemselves) {
  const SyntheticJob job = job_of(4);
  trace::HostMerger merger;
  ASSERT_TRUE(merger.add(recording(job, {0, 1}, 0)));
  trace::Trace drifting = recording(job, {2, 3}, 0);
  for (std::size_t i = 0; i < drifting.slices.size(); ++i)  // 2 %
    drifting.slices.start_ns[i] += (drifting.slices.start_ns[i] - drifting.begin_ns) / 50;
  ASSERT_TRUE(merger.add(std::move(drifting)));
  EXPECT_TRUE(host_clocks(merger.trace(), 2).value()[1]->is_contradictory);
}

TEST(HostClocksTest, AHostWithoutRanksIsNotTied) {
  const SyntheticJob job = job_of(4);
  trace::HostMerger merger;
  ASSERT_TRUE(merger.add(recording(job, {0, 1, 2, 3}, 0)));
  ASSERT_TRUE(merger.add(recording(job, {}, 0)));
  const auto clocks = host_clocks(merger.trace(), 2).value();
  EXPECT_TRUE(clocks[0]);
  EXPECT_FALSE(clocks[1]);
  EXPECT_TRUE(host_clocks(merger.trace(), 0).value().empty());
}

}  // namespace
}  // namespace kansoku::diagnose
