// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/uneven_time.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/synthetic_for_test.h"
#include "trace/scheduler_for_test.h"

namespace kansoku::diagnose {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t kMs = 1'000'000;

/// A job of which nothing but the scheduler tells: it has no steps.
trace::Trace without_steps(SyntheticJob job) {
  job.step_count = 300;
  trace::Trace trace = make_trace(job);
  trace.slices = {};
  trace.instants = {};
  return trace;
}

/// Ranks that compute for so many of every 50 ms, each on a processor of its own, and sleep for the
/// rest; for `seconds`.
trace::Trace computing(const std::vector<std::int64_t>& busy_ms, std::int64_t seconds = 10) {
  trace::Trace trace;
  for (std::size_t r = 0; r < busy_ms.size(); ++r) {
    trace::Process process;
    process.pid = static_cast<std::int32_t>(1000 * (r + 1));
    process.rank = static_cast<std::int32_t>(r);
    process.world_size = static_cast<std::int32_t>(busy_ms.size());
    process.job = trace.strings.intern("cluster");
    trace.processes.push_back(process);
    for (std::int64_t at = kMs; at < seconds * 1000 * kMs; at += 50 * kMs) {
      for (const bool is_begin : {true, false}) {
        trace::add_for_test(trace, {.time_ns = at + (is_begin ? 0 : busy_ms[r] * kMs),
                                    .prev_tid = is_begin ? 0 : process.pid,
                                    .prev_state = is_begin ? 0U : 1U,
                                    .next_tid = is_begin ? process.pid : 0,
                                    .cpu = static_cast<std::uint32_t>(r)});
      }
    }
  }
  measure_window(trace);
  return trace;
}

Diagnosis run_uneven(const trace::Trace& trace) {
  return diagnose(trace, {}).value();
}

void set_commands(trace::Trace& trace, const std::vector<std::string>& commands) {
  for (std::size_t r = 0; r < commands.size(); ++r)
    trace.processes.at(r).cmdline = trace.strings.intern(commands[r]);
}

TEST(UnevenTime, ARankWithAnotherCommandHasOtherDuties) {
  trace::Trace trace = computing({40, 10, 10, 10});
  set_commands(trace, {"mpi serve", "mpi work", "mpi work", "mpi work"});
  const Diagnosis other = run_uneven(trace);
  EXPECT_THAT(other.findings, IsEmpty()) << verdict_text(other);
  EXPECT_THAT(other.notes, Contains(HasSubstr("another command")));
  // Arguments that tell the rank, or the host, are no other program.
  for (const char* word : {"mpi --rank {}", "mpi --host node-{0}{1}"}) {
    std::vector<std::string> commands;
    for (int r = 0; r < 4; ++r)
      commands.push_back(
          fmt::format(fmt::runtime(word), r, std::string(1, static_cast<char>('a' + r))));
    set_commands(trace, commands);
    const Diagnosis same = run_uneven(trace);
    ASSERT_EQ(same.findings.size(), 1U) << word << verdict_text(same);
    EXPECT_THAT(same.findings[0].ranks, ElementsAre(0));
  }
}

TEST(UnevenTime, ARankThatComputesForLongerIsNamedWithItsFunction) {
  SyntheticJob job;
  job.faults.push_back({Fault::Kind::kForwardBusy, 2, 60});
  const Diagnosis d = run_uneven(without_steps(job));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_EQ(d.findings[0].kind, "uneven_time");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_NE(d.findings[0].function, "");
  EXPECT_EQ(d.steps.count, 0U);
  EXPECT_THAT(d.victims, IsEmpty());
  EXPECT_THAT(verdict_text(d), HasSubstr("% of the time, confidence"));
  EXPECT_THAT(verdict_text(d), Not(HasSubstr("per step")));
}

TEST(UnevenTime, FourTimesTheWorkIsSaidAsThat) {
  const Diagnosis d = run_uneven(computing({10, 10, 10, 40}));
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
  EXPECT_NEAR(d.findings[0].share, 0.6, 0.02);
  EXPECT_THAT(d.findings[0].evidence,
              Contains(HasSubstr("for 80 % of the time, its peers for 20 %")));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("4.0 times the work")));
}

TEST(UnevenTime, ThreadsOfARankCountTogether) {
  trace::Trace trace = computing({10, 10, 10, 10, 10});
  // The last process is a thread of rank 1.
  trace.processes.pop_back();
  trace::Track track;
  track.kind = trace::TrackKind::kThread;
  track.pid = 2000;
  track.tid = 5000;
  trace.tracks.push_back(track);
  const Diagnosis d = run_uneven(trace);
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
}

// It may be the server or the chief of the others.
TEST(UnevenTime, ARankThatSleepsIsANote) {
  const Diagnosis d = run_uneven(computing({49, 20, 49, 49}));
  EXPECT_EQ(d.verdict(), Verdict::kNotEnoughData) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("rank 1 has processors for 40 % of the time")));
}

TEST(UnevenTime, WorkersBesideAnIdleChiefAreAlike) {
  EXPECT_THAT(run_uneven(computing({5, 35, 34})).findings, IsEmpty());
  EXPECT_THAT(run_uneven(computing({5, 20, 45})).findings.size(), 1U);
}

TEST(UnevenTime, TwoRanksCannotVote) {
  const Diagnosis d = run_uneven(computing({10, 40}));
  EXPECT_EQ(d.verdict(), Verdict::kNotEnoughData) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("it may have other duties")));
}

TEST(UnevenTime, AlikeRanksAreSaidToBeAlike) {
  const Diagnosis d = run_uneven(computing({40, 41, 40, 39}));
  EXPECT_EQ(d.verdict(), Verdict::kNotEnoughData) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("processors for 78 % to 82 % of the time")));
}

TEST(UnevenTime, ShortRecordingsAndStartsAreLeftAlone) {
  EXPECT_THAT(run_uneven(computing({10, 10, 10, 40}, 4)).findings, IsEmpty());
  trace::Trace trace = computing({10, 10, 10, 40});
  trace.frames.push_back({trace.strings.intern("_find_and_load"),
                          trace.strings.intern("<frozen importlib._bootstrap>"), 1});
  trace.stacks.begin = {0, 1};
  trace.stacks.frames = {trace::FrameId{0}};
  auto& samples = trace.samples;
  samples.time_ns.push_back(6000 * kMs);
  samples.pid.push_back(1000);
  samples.tid.push_back(1000);
  samples.stack.push_back(trace::StackId{0});
  samples.state.push_back(trace::SampleState::kRunning);
  samples.holds_gil.push_back(1);
  samples.is_native.push_back(0);
  EXPECT_THAT(run_uneven(trace).findings, IsEmpty());
}

TEST(UnevenTime, AHangIsNoUnevenTime) {
  SyntheticJob job;
  job.faults.push_back({.kind = Fault::Kind::kHang, .rank = 2, .every = 2});
  for (const Finding& finding : run_uneven(make_trace(job)).findings)
    EXPECT_NE(finding.kind, "uneven_time");
}

}  // namespace
}  // namespace kansoku::diagnose
