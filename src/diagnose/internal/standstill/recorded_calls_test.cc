// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/recorded_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "trace/import/recorded_flight.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trace::import::RecordedFlight;

/// A recording of two ranks: rank 0 waits in the 41st call, which rank 1 has not made for 20 s.
class RecordedCallsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCallsMade = 40, kPauseNs = 100'000'000,
                                kFirstNs = 1'700'000'000'000'000'000, kStandsNs = 20'000'000'000;

  RecordedCallsTest() {
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      job_.rank_numbers.push_back(rank);
      job_.rank_pids.push_back({100 + rank});
      RankPlace& place = job_.places.emplace_back();
      place.rank = rank;
      place.waits = rank == 0;
      place.is_at_work = place.stands_still = rank == 1;
      place.function = rank == 1 ? "search" : "step";
    }
  }

  void add(std::int32_t rank, RecordedFlight::Storage storage) {
    RecordedFlight& flight = recorded_.emplace_back();
    flight.pid = 100 + rank;
    flight.read_ns = kFirstNs + kCallsMade * kPauseNs + kStandsNs;
    flight.storage = storage;
    flight.dump.groups.push_back({"0", "default_pg", {0, 1}});
    for (std::int64_t i = 0; i < kCallsMade + 1 - rank; ++i) {
      trace::import::DumpEntry& entry = flight.dump.entries.emplace_back();
      entry.group_name = "0";
      entry.group_description = "default_pg";
      entry.name = "gloo:all_reduce";
      entry.state = i == kCallsMade ? "scheduled" : "completed";
      entry.is_retired = i != kCallsMade;
      entry.collective_seq = entry.op_id = i + 1;
      entry.created_ns = kFirstNs + i * kPauseNs;
      entry.input_sizes = entry.output_sizes = "[[8]]";
    }
  }

  std::vector<RecordedFlight> recorded_;
  Diagnosis job_;
};

TEST_F(RecordedCallsTest, CallsMeetTheRankOfTheirProcess) {
  add(1, RecordedFlight::Storage::kStill);
  add(0, RecordedFlight::Storage::kUnknown);
  join_recorded_calls(recorded_, job_);
  ASSERT_EQ(job_.findings.size(), 1U);
  EXPECT_THAT(job_.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(job_.findings[0].function, "search");
  EXPECT_THAT(job_.findings[0].evidence,
              Contains("rank 1 has made no call for 20.1 s; its longest pause in 40 calls before "
                       "was 0.10 s"));
  EXPECT_THAT(job_.findings[0].evidence,
              Contains("waited for in gloo:all_reduce 41 of group 0 (default_pg) by rank 0"));
}

TEST_F(RecordedCallsTest, OneThatUsesStorageMayComeYet) {
  add(0, RecordedFlight::Storage::kStill);
  add(1, RecordedFlight::Storage::kMoves);
  join_recorded_calls(recorded_, job_);
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, Contains(HasSubstr("and it reads or writes files")));
}

TEST_F(RecordedCallsTest, ThoseOfOtherProcessesSayNothing) {
  add(2, RecordedFlight::Storage::kStill);
  add(3, RecordedFlight::Storage::kStill);
  join_recorded_calls(recorded_, job_);
  EXPECT_THAT(job_.findings, IsEmpty());
  EXPECT_THAT(job_.notes, IsEmpty());
}

}  // namespace
}  // namespace kansoku::diagnose
