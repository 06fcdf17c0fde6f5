// SPDX-License-Identifier: Apache-2.0
#include "agent/cuda_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kansoku::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kNow = 100'000'000'000;
constexpr std::int64_t kWall = 1'700'000'000'000'000'000;

StuckLook process(std::int32_t rank) {
  StuckLook out;
  out.job = "job";
  out.rank = rank;
  out.hang.pid = 100 + rank;
  out.hang.verdict = capture::hang::HangVerdict::kNothing;
  out.hang.snapshot.at_ns = kNow;
  capture::cuda::Snapshot::Kernel wedge;
  wedge.info.name = "wedge";
  out.hang.snapshot.kernels[3] = wedge;
  return out;
}

/// Its kernel `wedge` has run for so long; `waits_for`: it is a collective that misses these.
StuckLook stuck(std::int32_t rank, double seconds, std::vector<std::int32_t> waits_for = {}) {
  StuckLook out = process(rank);
  out.hang.verdict = capture::hang::HangVerdict::kStuck;
  out.hang.waits_for = std::move(waits_for);
  capture::cuda::Stuck one;
  one.stream.index = 2;
  one.seconds = seconds;
  one.deadline_s = 5;
  one.suspects.push_back({1, 3, 0});
  out.hang.stuck.push_back(one);
  out.hang.threads.push_back(
      {4711, "cuStreamSynchronize", seconds, {{"step", "train.py", 70, false}}, {}});
  return out;
}

TEST(StuckJobs, SaysNothingOfWhatIsNotStuck) {
  StuckJobs jobs;
  StuckLook unknown = stuck(1, 9);
  unknown.hang.verdict = capture::hang::HangVerdict::kUnknown;
  EXPECT_TRUE(jobs.on_window({process(0), unknown}, kWall).empty());
  EXPECT_TRUE(jobs.on_window({}, kWall).empty());
}

TEST(StuckJobs, OpensContinuesAndEndsOneIncident) {
  StuckJobs jobs;
  const auto opened = jobs.on_window({stuck(1, 6)}, kWall);
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_EQ(opened[0].job, "job");
  EXPECT_EQ(opened[0].source, incident::Source::kStuck);
  EXPECT_EQ(opened[0].facts.kind, trace::IncidentKind::kStuckKernel);
  EXPECT_EQ(opened[0].facts.begin_ns, kWall - 6'000'000'000);
  EXPECT_THAT(opened[0].facts.ranks, ElementsAre(1));
  EXPECT_EQ(opened[0].facts.summary,
            "kernel wedge on stream 2 of rank 1 (pid 101) does not end (deadline 5.0 s); thread "
            "4711 waits in cuStreamSynchronize, in step (train.py:70)");
  EXPECT_EQ(opened[0].facts.suggestion, "kansoku hang -p 101");
  const auto later = jobs.on_window({stuck(1, 7)}, kWall + 1'000'000'000);
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].episode, opened[0].episode);
  EXPECT_EQ(later[0].facts.begin_ns, opened[0].facts.begin_ns);
  EXPECT_EQ(later[0].facts.window_count, 2U);
  const auto over = jobs.on_window({process(1)}, kWall + 2'000'000'000);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].episode, opened[0].episode);
  EXPECT_EQ(over[0].facts.end_ns, kWall + 2'000'000'000);
  const auto anew = jobs.on_window({stuck(1, 6)}, kWall + 60'000'000'000);
  ASSERT_EQ(anew.size(), 1U);
  EXPECT_NE(anew[0].episode, opened[0].episode);
}

TEST(StuckJobs, EndsWithTheProcess) {
  StuckJobs jobs;
  static_cast<void>(jobs.on_window({stuck(1, 6)}, kWall));
  const auto over = jobs.on_window({}, kWall + 1);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_NE(over[0].facts.end_ns, 0);
}

TEST(StuckJobs, NamesTheRankThatTheOthersWaitFor) {
  StuckJobs jobs;
  const auto seen = jobs.on_window(
      {stuck(0, 8, {102}), stuck(1, 8, {102}), process(2), stuck(3, 8, {102})}, kWall);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_THAT(seen[0].facts.ranks, ElementsAre(2));
  EXPECT_THAT(seen[0].facts.summary,
              HasSubstr("rank 2 (pid 102) has not come to the collective of the others"));
  EXPECT_THAT(seen[0].facts.summary,
              HasSubstr("held up: rank 0 (pid 100), rank 1 (pid 101), rank"));
}

TEST(StuckJobs, NamesTheRankWhoseKernelIsStuckBeforeThoseThatWaitForIt) {
  StuckJobs jobs;
  const auto seen = jobs.on_window({stuck(0, 8, {101}), stuck(1, 9)}, kWall);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_THAT(seen[0].facts.ranks, ElementsAre(1));
  EXPECT_THAT(seen[0].facts.summary, ::testing::StartsWith("kernel wedge on stream 2 of rank 1"));
}

TEST(StuckJobs, NamesARankThatIsStopped) {
  StuckJobs jobs;
  StuckLook stopped = process(2);
  stopped.hang.is_stopped = true;
  const auto seen = jobs.on_window({stuck(0, 8, {102}), stopped}, kWall);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_THAT(seen[0].facts.ranks, ElementsAre(2));
  EXPECT_THAT(seen[0].facts.summary, HasSubstr("rank 2 (pid 102) is stopped"));
}

TEST(StuckJobs, JobsAreApart) {
  StuckJobs jobs;
  StuckLook other = stuck(0, 9);
  other.job = "another";
  EXPECT_EQ(jobs.on_window({stuck(0, 8), other}, kWall).size(), 2U);
  const auto seen = jobs.on_window({stuck(0, 9)}, kWall + 1);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].job, "job");
  EXPECT_EQ(seen[1].job, "another");
  EXPECT_NE(seen[1].facts.end_ns, 0);
}

capture::cuda::Frame frame_of(std::vector<std::pair<std::string, double>> shares) {
  capture::cuda::Frame out;
  out.seconds = 1;
  for (auto& [name, share] : shares)
    out.kernels.push_back({std::move(name), "", 1, share, {}, {}, 1, 0});
  return out;
}

TEST(TopKernels, AddUpWhatIsNotNamed) {
  TopKernels top;
  std::vector<std::pair<std::string, double>> shares;
  for (int i = 0; i < 20; ++i)
    shares.emplace_back("k" + std::to_string(i), 0.01 * (i + 1));
  const auto shown = top.on_window(frame_of(shares));
  ASSERT_EQ(shown.size(), TopKernels::kShown + 1);
  EXPECT_EQ(shown[0].name, "k19");
  EXPECT_DOUBLE_EQ(shown[0].share, 0.2);
  EXPECT_EQ(shown.back().name, "other");
  EXPECT_NEAR(shown.back().share, 0.01 * 78, 1e-9);  // 1 to 12
  // One that is heavy for a moment takes no name from those that were for long.
  for (int i = 0; i < 100; ++i)
    static_cast<void>(top.on_window(frame_of(shares)));
  const auto later = top.on_window(frame_of({{"k0", 1.0}}));
  EXPECT_EQ(later[0].name, "k19");
  EXPECT_DOUBLE_EQ(later[0].share, 0);
  EXPECT_DOUBLE_EQ(later.back().share, 1);
}

TEST(TopKernels, WithFewThereIsNoOther) {
  TopKernels top;
  const auto shown = top.on_window(frame_of({{"same", 0.25}, {"same", 0.25}}));
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_DOUBLE_EQ(shown[0].share, 0.5);
}

}  // namespace
}  // namespace kansoku::agent
