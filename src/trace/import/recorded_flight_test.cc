// SPDX-License-Identifier: Apache-2.0
#include "trace/import/recorded_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "common/bytes.h"
#include "trace/reader.h"

namespace kansoku::trace::import {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

RecordedFlight flight_of(std::int32_t pid) {
  RecordedFlight out{pid, 1'700'000'000'000'000'001, RecordedFlight::Storage::kMoves, {}};
  out.dump.bad_entries = 3;
  out.dump.groups.push_back({"0", "default_pg", {}});
  for (std::int32_t rank = 0; rank < 250; ++rank)
    out.dump.groups[0].ranks.push_back(1000 + rank);
  out.dump.groups.push_back({"1", "stage", {0, 1}});
  out.dump.groups.push_back({"2", "empty", {}});
  for (std::int64_t i = 0; i < 2000; ++i) {
    DumpEntry& entry = out.dump.entries.emplace_back();
    entry.local_id = 7;
    entry.group_name = "0";
    entry.group_description = "default_pg";
    entry.name = i % 2 == 0 ? "gloo:all_reduce" : "gloo:send 0->1";
    entry.state = i == 1999 ? "scheduled" : "completed";
    entry.is_retired = i != 1999;
    entry.is_p2p = i % 2 == 1;
    entry.collective_seq = 5000 + i;
    entry.p2p_seq = i;
    entry.op_id = 9000 + i;
    entry.created_ns = 1'600'000'000'000'000'000 + i;
    entry.timeout_ms = 1'800'000;
    entry.input_sizes = "[[2048, 5120], [8]]";
    entry.output_sizes = "[]";
  }
  return out;
}

class RecordedFlightTest : public ::testing::Test {
 protected:
  RecordedFlightTest() : writer_(std::move(Writer::create(sink_, BootTime{})).value()) {}
  std::vector<RecordedFlight> read() {
    EXPECT_TRUE(writer_->flush());
    const auto trace = read_trace(as_bytes(sink_.data()));
    EXPECT_TRUE(trace);
    return trace ? read_recorded_flight(*trace) : std::vector<RecordedFlight>();
  }
  static constexpr BootTime kNow{Nanos{5}};
  MemorySink sink_;
  std::unique_ptr<Writer> writer_;
};

auto all_of(const DumpEntry& entry) {
  return std::tuple(entry.local_id, entry.group_name, entry.group_description, entry.name,
                    entry.state, entry.collective_seq, entry.p2p_seq, entry.op_id, entry.is_p2p,
                    entry.is_retired, entry.created_ns, entry.timeout_ms, entry.input_sizes,
                    entry.output_sizes);
}

TEST_F(RecordedFlightTest, ReadsWhatItWrites) {
  const RecordedFlight one = flight_of(41);
  write_recorded_flight(*writer_, flight_of(42), kNow);
  write_recorded_flight(*writer_, one, kNow);
  const auto found = read();
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].pid, 41);
  EXPECT_EQ(found[1].pid, 42);
  EXPECT_EQ(found[0].read_ns, one.read_ns);
  EXPECT_EQ(found[0].storage, one.storage);
  EXPECT_EQ(found[0].dump.bad_entries, 3U);
  ASSERT_THAT(found[0].dump.groups, SizeIs(3));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[0].dump.groups[i].name, one.dump.groups[i].name);
    EXPECT_EQ(found[0].dump.groups[i].description, one.dump.groups[i].description);
    EXPECT_EQ(found[0].dump.groups[i].ranks, one.dump.groups[i].ranks);
  }
  ASSERT_THAT(found[0].dump.entries, SizeIs(2000));
  for (std::size_t i = 0; i < 2000; ++i)
    ASSERT_EQ(all_of(found[0].dump.entries[i]), all_of(one.dump.entries[i])) << i;
  EXPECT_TRUE(found[0].dump.entries.back().is_pending());
}

TEST_F(RecordedFlightTest, TheLastReadingOfAProcessCounts) {
  write_recorded_flight(*writer_, flight_of(41), kNow);
  RecordedFlight later = flight_of(41);
  later.dump.entries.resize(5);
  write_recorded_flight(*writer_, later, kNow);
  const auto found = read();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].dump.entries, SizeIs(5));
}

TEST_F(RecordedFlightTest, OddEventsAreCountedOrLeftOut) {
  const TrackHandle track = writer_->thread_track(41, 41, "");
  const auto odd = [&] {
    writer_->instant(track, kNow, writer_->name("gloo:all_reduce"),
                     writer_->category(kFlightCategory), {});
  };
  odd();  // of no reading
  write_recorded_flight(*writer_, flight_of(41), kNow);
  odd();
  const auto found = read();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].dump.bad_entries, 4U);
  EXPECT_THAT(found[0].dump.entries, SizeIs(2000));
}

TEST_F(RecordedFlightTest, OtherRecordingsHoldNone) {
  EXPECT_THAT(read(), IsEmpty());
}

}  // namespace
}  // namespace kansoku::trace::import
