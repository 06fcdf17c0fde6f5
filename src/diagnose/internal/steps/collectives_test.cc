// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/collectives.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/rng.h"
#include "diagnose/synthetic_for_test.h"

namespace kansoku::diagnose {
namespace {

CollectiveEvent event(bool is_issue, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t seq,
                      std::uint64_t pg = 0) {
  CollectiveEvent out;
  out.time = {begin_ns, end_ns};
  out.is_issue = is_issue;
  out.has_seq = true;
  out.seq = seq;
  out.op = 1;
  out.has_pg = pg != 0;
  out.pg = pg;
  return out;
}

JobData two_ranks() {
  JobData job;
  job.op_names = {"", "allreduce"};
  job.ranks.resize(2);
  return job;
}

TEST(MatchCollectives, ArrivalIsTheIssueAndEndTheExecution) {
  JobData job = two_ranks();
  job.ranks[0].collectives = {event(true, 100, 110, 7, 0xa), event(false, 120, 500, 7)};
  job.ranks[1].collectives = {event(true, 300, 310, 7, 0xb), event(false, 320, 510, 7)};
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 1U);
  const Instance& instance = found.instances[0];
  EXPECT_TRUE(instance.is_complete);
  EXPECT_EQ(instance.ranks[0].arrive_ns, 100);
  EXPECT_EQ(instance.ranks[0].end_ns, 500);
  EXPECT_EQ(instance.last_ns, 300);
  EXPECT_EQ(instance.ranks[1].end_ns, 510);
}

TEST(ReadCollectives, ACallThatMakesANumberedOneIsNoneOfItsOwn) {
  trace::Trace trace = make_trace(SyntheticJob{});
  const auto before = read_job(trace);
  ASSERT_TRUE(before);
  trace::SliceTable& slices = trace.slices;
  const auto add = [&](std::size_t inside, std::int64_t sooner_ns) {
    slices.start_ns.push_back(slices.start_ns[inside] - sooner_ns);
    slices.duration_ns.push_back(slices.duration_ns[inside] + 2 * sooner_ns);
    slices.track.push_back(slices.track[inside]);
    slices.category.push_back(slices.category[inside]);
    slices.name.push_back(trace.strings.intern("c10d::ProcessGroupGloo::reduce_scatter_single"));
    slices.arg_begin.push_back(0);
    slices.arg_count.push_back(0);
  };
  std::size_t wrapped = 0;
  for (std::size_t i = 0, count = slices.size(); i < count; ++i) {
    if (trace.str(slices.name[i]) != "c10d::ProcessGroupGloo::allreduce") continue;
    ++wrapped;
    add(i, 1);
    add(i, 2);
  }
  ASSERT_GT(wrapped, 0U);
  auto after = read_job(trace);
  ASSERT_TRUE(after);
  for (std::size_t r = 0; r < before->ranks.size(); ++r) {
    ASSERT_EQ(after->ranks[r].collectives.size(), before->ranks[r].collectives.size());
    for (std::size_t i = 0; i < before->ranks[r].collectives.size(); ++i)
      EXPECT_TRUE(after->ranks[r].collectives[i].has_seq);
  }
  EXPECT_FALSE(match_collectives(*after).by_order);
}

// Two groups count alike: their names tell them apart, and each is whole with its own members.
TEST(MatchCollectives, GroupsAreKnownByTheirNames) {
  JobData job;
  job.op_names = {"", "allreduce"};
  job.ranks.resize(4);
  for (std::size_t r = 0; r < 4; ++r) {
    const auto at = static_cast<std::int64_t>(r);
    CollectiveEvent one = event(true, 100 + at, 110 + at, 7, 0xa + r);
    one.group = {static_cast<std::uint32_t>(5 + r % 2)};
    one.group_size = 2;
    job.ranks[r].collectives = {one};
  }
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 2U);
  EXPECT_EQ(found.instances[0].is_member, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(found.instances[0].is_complete);
  EXPECT_FALSE(found.instances[0].is_of_all);
  EXPECT_EQ(found.instances[1].last_ns, 103);
}

// A group as large as the job misses whoever was never seen in it.
TEST(MatchCollectives, AGroupOfAllRanksIsNotWholeWithoutOne) {
  JobData job = two_ranks();
  CollectiveEvent one = event(true, 100, 110, 7, 0xa);
  one.group = {5};
  one.group_size = 2;
  job.ranks[0].collectives = {one};
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 1U);
  EXPECT_FALSE(found.instances[0].is_complete);
  EXPECT_TRUE(found.instances[0].is_of_all);
}

TEST(MatchCollectives, WithoutIssueTheExecutionArrives) {
  JobData job = two_ranks();
  job.ranks[0].collectives = {event(false, 120, 500, 7)};
  job.ranks[1].collectives = {event(false, 320, 510, 7)};
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 1U);
  EXPECT_EQ(found.instances[0].ranks[0].arrive_ns, 120);
}

TEST(MatchCollectives, PartialOnesAreKeptButNotComplete) {
  JobData job = two_ranks();
  job.ranks[0].collectives = {event(true, 100, 110, 7), event(true, 200, 210, 8)};
  job.ranks[1].collectives = {event(true, 205, 210, 8)};
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 2U);
  EXPECT_FALSE(found.instances[0].is_complete);
  EXPECT_TRUE(found.instances[1].is_complete);
  ASSERT_EQ(job.notes.size(), 1U);
}

// Two groups count on their own: equal sequence numbers are two collectives, and an execution
// without a group belongs to the issue before it.
TEST(MatchCollectives, ProcessGroupsAreKeptApart) {
  JobData job = two_ranks();
  for (std::size_t r = 0; r < 2; ++r) {
    const auto shift = static_cast<std::int64_t>(r);
    job.ranks[r].collectives = {
        event(true, 100 + shift, 105, 7, 0xa + r), event(false, 110 + shift, 190, 7),
        event(true, 300 + shift, 305, 7, 0x1a + r), event(false, 310 + shift, 390, 7)};
  }
  const Collectives found = match_collectives(job);
  ASSERT_EQ(found.instances.size(), 2U);
  EXPECT_EQ(found.instances[0].ranks[1].end_ns, 190);
  EXPECT_EQ(found.instances[1].ranks[0].arrive_ns, 300);
  EXPECT_EQ(found.instances[1].ranks[0].end_ns, 390);
}

TEST(MatchCollectives, AmbiguousKeysAreDropped) {
  JobData job = two_ranks();
  job.ranks[0].collectives = {event(true, 100, 110, 7), event(true, 150, 160, 7)};
  job.ranks[1].collectives = {event(true, 105, 110, 7)};
  EXPECT_FALSE(match_collectives(job).instances.at(0).is_complete);
}

// Sequences that repeat agree at many shifts; time decides. Every shift within the bound is found.
TEST(BestShift, FindsTheLostTail) {
  Rng rng(4);
  std::vector<TimedWord> base;
  for (std::int64_t i = 0; i < 400; ++i)
    base.push_back({static_cast<std::uint64_t>(i % 3), 1000 * i});
  for (const int lost : {0, 1, 3, 17, 64}) {
    std::vector<TimedWord> shorter(base.begin(), base.end() - lost);
    for (TimedWord& word : shorter)
      word.end_ns += static_cast<std::int64_t>(rng.below(300));
    EXPECT_EQ(best_shift(base, shorter, 64), -lost);
    EXPECT_EQ(best_shift(shorter, base, 64), lost);
  }
}

TEST(BestShift, EmptySidesGiveZero) {
  EXPECT_EQ(best_shift({}, {}, 64), 0);
  EXPECT_EQ(best_shift({{1, 5}}, {}, 64), 0);
}

}  // namespace
}  // namespace kansoku::diagnose
