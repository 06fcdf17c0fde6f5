// SPDX-License-Identifier: Apache-2.0
#include "diagnose/flight_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using trace::import::DumpEntry;
using trace::import::FlightDump;

constexpr std::int64_t kOneSecond = 1'000'000'000, kBegin = 1'000 * kOneSecond;
constexpr std::int64_t kCalls = 40, kEachNs = kOneSecond / 10;

/// Three ranks, 40 calls a tenth of a second apart, then one in which the others wait for rank 2;
/// looked at 20 s later.
class FlightCallsTest : public ::testing::Test {
 protected:
  FlightCallsTest() {
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      FlightDump& dump = dumps_.emplace_back();
      dump.rank = rank;
      dump.groups.push_back({"0", "default_pg", {0, 1, 2}});
      for (std::int64_t i = 0; i < kCalls; ++i)
        add_call(dump, i, true);
      if (rank != 2) add_call(dump, kCalls, false);
      job_.rank_numbers.push_back(rank);
      RankPlace& place = job_.places.emplace_back();
      place.rank = rank;
      place.waits = rank != 2;
      place.function = rank == 2 ? "search" : "step";
      place.file = "/app/train.py";
      place.line = 7;
    }
    place_of_2().is_at_work = place_of_2().stands_still = true;
  }

  static DumpEntry& add_call(FlightDump& dump, std::int64_t number, bool is_done,
                             const char* name = "gloo:all_reduce") {
    DumpEntry& entry = dump.entries.emplace_back();
    entry.group_name = "0";
    entry.group_description = "default_pg";
    entry.name = name;
    entry.state = is_done ? "completed" : "scheduled";
    entry.is_retired = is_done;
    entry.collective_seq = entry.op_id = number + 1;
    entry.created_ns = kBegin + number * kEachNs;
    entry.input_sizes = entry.output_sizes = "[[8]]";
    return entry;
  }

  RankPlace& place_of_2() { return job_.places[2]; }

  void join(std::int64_t after_ns = 20 * kOneSecond) {
    FlightCalls calls;
    calls.dumps = dumps_;
    calls.read_ns = kBegin + kCalls * kEachNs + after_ns;
    calls.first_read_ns = first_read_ns_;
    calls.with_storage = with_storage_;
    join_flight_calls(calls, job_);
  }

  std::vector<FlightDump> dumps_;
  std::set<std::int32_t> with_storage_;
  std::int64_t first_read_ns_{0};
  Diagnosis job_;
};

TEST_F(FlightCallsTest, ARankAtWorkInOnePlaceFarBeyondItsPausesHangs) {
  job_.standstill_note = "who may come yet";
  job_.notes = {"of something else", "who may come yet"};
  join();
  EXPECT_THAT(job_.notes, ElementsAre("of something else"));
  ASSERT_EQ(job_.findings.size(), 1U);
  const Finding& finding = job_.findings.front();
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.function, "search");
  EXPECT_EQ(finding.verdict, "missing_rank");
  EXPECT_DOUBLE_EQ(finding.cost_ms_per_step, 20'000);
  EXPECT_THAT(finding.evidence,
              Contains("rank 2 has made no call for 20.1 s; its longest pause in 40 calls before "
                       "was 0.10 s"));
  EXPECT_THAT(finding.evidence,
              Contains("waited for in gloo:all_reduce 41 of group 0 (default_pg) by rank 0, 1"));
  EXPECT_THAT(job_.victims, ElementsAre(0, 1));
}

TEST_F(FlightCallsTest, OneThatHasPausedAsLongMayComeYet) {
  dumps_[2].entries[10].created_ns -= 5 * kOneSecond;
  for (std::size_t i = 0; i < 10; ++i)
    dumps_[2].entries[i].created_ns -= 5 * kOneSecond + 4 * kOneSecond;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, Contains(HasSubstr("its longest pause in 40 calls before was 5.10 s")));
}

TEST_F(FlightCallsTest, OneWhosePlaceMovesMayComeYet) {
  job_.notes = {job_.standstill_note = "who may come yet"};
  place_of_2().stands_still = false;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, Contains(HasSubstr("rank 2 has made no call for 20.1 s")));
  EXPECT_THAT(job_.notes, Contains("who may come yet"));
}

TEST_F(FlightCallsTest, OneThatWritesFilesMayComeYet) {
  with_storage_ = {2};
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, Contains(HasSubstr("and it reads or writes files")));
}

// It waits for a program of its own, say.
TEST_F(FlightCallsTest, OneThatWaitsForSomebodyOutsideMayComeYet) {
  place_of_2().is_at_work = false;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, Contains(HasSubstr("rank 2 has made no call for 20.1 s")));
}

TEST_F(FlightCallsTest, OneWithFewCallsMayComeYet) {
  dumps_[2].entries.erase(dumps_[2].entries.begin(), dumps_[2].entries.end() - 5);
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
}

TEST_F(FlightCallsTest, AFindingOfStacksIsKeptAndGetsItsCalls) {
  place_of_2().is_at_work = false;
  Finding asleep;
  asleep.kind = "hang";
  asleep.ranks = {2};
  asleep.function = "sleep_here";
  asleep.cost_ms_per_step = 4000;
  asleep.evidence = {
      "it stood still when the recording began, 4.0 s before its end: since when is "
      "not known"};
  job_.findings = {asleep};
  join();
  ASSERT_EQ(job_.findings.size(), 1U);
  EXPECT_EQ(job_.findings.front().function, "sleep_here");
  EXPECT_DOUBLE_EQ(job_.findings.front().cost_ms_per_step, 20'000);
  EXPECT_THAT(job_.findings.front().evidence, Not(Contains(HasSubstr("is not known"))));
  EXPECT_THAT(
      job_.findings.front().evidence,
      Contains(
          "rank 2: its last call, gloo:all_reduce 40 of group 0 (default_pg), was 20.1 s before"));
}

// All wait, in calls of one name, and the one of rank 2 has another size.
TEST_F(FlightCallsTest, WhereStacksNameNobodyCallsDo) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  place_of_2().function = "push_metrics";
  add_call(dumps_[2], kCalls, false).input_sizes = "[[4]]";
  join();
  ASSERT_EQ(job_.findings.size(), 1U);
  EXPECT_EQ(job_.findings.front().verdict, "mismatched_collective");
  EXPECT_THAT(job_.findings.front().ranks, ElementsAre(2));
  EXPECT_EQ(job_.findings.front().function, "push_metrics");
  EXPECT_THAT(job_.findings.front().evidence, Not(Contains(HasSubstr("next:"))));
}

// Peers have completed the operation that two wait in: their call counts as well.
TEST_F(FlightCallsTest, CompletedCallsOfTheSameOperationCount) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  for (FlightDump& dump : dumps_)
    dump.entries.resize(kCalls);
  add_call(dumps_[0], kCalls, true, "gloo:broadcast");
  add_call(dumps_[1], kCalls, false, "gloo:broadcast");
  add_call(dumps_[2], kCalls, false, "gloo:broadcast").input_sizes = "[[4]]";
  join();
  ASSERT_EQ(job_.findings.size(), 1U);
  EXPECT_THAT(job_.findings.front().ranks, ElementsAre(2));
}

// Stacks tell only that one is in another call than most.
TEST_F(FlightCallsTest, CallsKnowBetterWhoIsInAnotherCall) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  add_call(dumps_[2], kCalls, false).input_sizes = "[[4]]";
  Finding of_stacks;
  of_stacks.kind = "hang";
  of_stacks.verdict = "mismatched_collective";
  of_stacks.ranks = {1};
  job_.findings = {of_stacks};
  join();
  ASSERT_EQ(job_.findings.size(), 1U);
  EXPECT_THAT(job_.findings.front().ranks, ElementsAre(2));
}

TEST_F(FlightCallsTest, RanksOfOtherHostsAreNotBlamed) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  add_call(dumps_[2], kCalls, false);
  for (FlightDump& dump : dumps_)
    dump.groups.front().ranks = {0, 1, 2, 3, 4, 5};
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
}

// They are read one after the other, and a slow job goes on meanwhile.
TEST_F(FlightCallsTest, RanksThatHaveMovedSinceTheFirstWasReadAreNotNamed) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  add_call(dumps_[2], kCalls, false).input_sizes = "[[4]]";
  first_read_ns_ = dumps_[2].entries.back().created_ns - 1;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  first_read_ns_ = 0;
  join(kOneSecond);
  EXPECT_THAT(job_.findings, IsEmpty()) << "they have waited for a second";
}

TEST_F(FlightCallsTest, OneWhoseLastCallsWereLeftOutMayComeYet) {
  dumps_[2].bad_entries = 1;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
}

TEST_F(FlightCallsTest, NothingIsTakenFromTheCallsOfSomeRanksAlone) {
  place_of_2().is_at_work = false;
  place_of_2().waits = true;
  dumps_.pop_back();
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
}

TEST_F(FlightCallsTest, AJobThatMovesIsLeftAlone) {
  job_.moves = true;
  join();
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, IsEmpty());
}

}  // namespace
}  // namespace kansoku::diagnose
