// SPDX-License-Identifier: Apache-2.0
#include "capture/hang/flight_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kansoku::capture::hang {
namespace {

using ::testing::ElementsAre;

/// c10::SmallVector<int64, N> as it lies in memory.
template <std::size_t N>
struct SmallNumbers {
  std::int64_t* begin{inline_};
  std::uint32_t size{0}, room{N};
  std::int64_t inline_[N]{};
  void set(std::initializer_list<std::int64_t> values) {
    size = 0;
    for (const std::int64_t value : values)
      inline_[size++] = value;
  }
};

/// The recorder's Entry of PyTorch 2.15 as it lies in memory, with libstdc++'s own strings.
struct EntryInMemory {
  std::uint64_t id{0}, reset_epoch{0}, group_id{0};
  std::string description, group;
  std::uint64_t collective_seq{0}, p2p_seq{0}, op_id{0};
  std::string name;
  void* traceback[2]{};
  void* events[2]{};
  std::int64_t created{0}, timeout{0};
  bool is_p2p{false};
  char durations[47]{};
  SmallNumbers<4> input_dims;
  std::vector<std::int8_t> input_types;
  SmallNumbers<4> output_dims;
  std::vector<std::int8_t> output_types;
  SmallNumbers<8> sizes;
  std::uint64_t thread{0};
  std::string thread_name;
  bool is_retired{false};
};
static_assert(sizeof(EntryInMemory) == 512 && offsetof(EntryInMemory, is_retired) == 504 &&
              offsetof(EntryInMemory, sizes) == 384 && offsetof(EntryInMemory, name) == 112);

using GroupsInMemory = std::map<std::tuple<std::string, std::string>, std::vector<std::uint64_t>>;

struct RecorderInMemory {
  bool enabled{true}, stacks{false};
  char mutex[40]{};
  alignas(8) EntryInMemory* begin{nullptr};
  EntryInMemory* end{nullptr};
  EntryInMemory* room{nullptr};
  std::uint64_t most{2000}, next{0}, made{0}, epoch{0};
  char starts[56]{}, status[48]{};
  GroupsInMemory groups;
  std::string version;
  int rank{-1};
};
static_assert(sizeof(RecorderInMemory) == 296);

/// The same of PyTorch 2.9, which counts no resets.
struct OldEntryInMemory {
  std::uint64_t id{0}, group_id{0};
  std::string description, group;
  std::uint64_t collective_seq{0}, p2p_seq{0}, op_id{0};
  std::string name;
  void* traceback[2]{};
  void* events[2]{};
  std::int64_t created{0}, timeout{0};
  bool is_p2p{false};
  char durations[47]{};
  SmallNumbers<4> input_dims;
  std::vector<std::int8_t> input_types;
  SmallNumbers<4> output_dims;
  std::vector<std::int8_t> output_types;
  SmallNumbers<8> sizes;
  std::uint64_t thread{0};
  std::string thread_name;
  bool is_retired{false};
};
static_assert(sizeof(OldEntryInMemory) == 504 && offsetof(OldEntryInMemory, is_retired) == 496);

struct OldRecorderInMemory {
  bool enabled{true}, stacks{false};
  char mutex[40]{};
  alignas(8) OldEntryInMemory* begin{nullptr};
  OldEntryInMemory* end{nullptr};
  OldEntryInMemory* room{nullptr};
  std::uint64_t most{2000}, next{0}, made{0};
  char status[48]{};
  GroupsInMemory groups;
  std::string version;
};
static_assert(sizeof(OldRecorderInMemory) == 224);

class FlightMemoryTest : public ::testing::Test {
 protected:
  FlightMemoryTest() {
    entries_.resize(3);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      EntryInMemory& entry = entries_[i];
      entry.id = 5000 - i;  // a ring that has gone round
      entry.group_id = 1;
      entry.group = "0";
      entry.description = "a description that is too long for the string itself";
      entry.name = i == 2 ? "gloo:recv 0<-1" : "gloo:all_reduce";
      entry.is_p2p = i == 2;
      entry.collective_seq = 70 + i;
      entry.created = 1'000'000'000 - static_cast<std::int64_t>(i);
      entry.input_dims.set({1, 2});
      entry.output_dims.set({1});
      entry.sizes.set({4, 2, 8, 16});
      entry.is_retired = i > 0;
    }
    recorder_.begin = entries_.data();
    recorder_.end = recorder_.room = entries_.data() + entries_.size();
    recorder_.made = 5001;
    recorder_.groups[{"0", "default"}] = {0, 1};
    recorder_.groups[{"1", "stage"}] = {1};
    recorder_.groups[{"2", "copy"}] = {0};
  }

  std::optional<FlightHead> head(std::uint64_t most = 2000) const {
    const auto found = flight_heads(std::as_bytes(std::span(&recorder_, 1)), most);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  std::vector<EntryInMemory> entries_;
  RecorderInMemory recorder_;
};

TEST_F(FlightMemoryTest, CallsAreReadInTheirOrder) {
  const auto* const object = reinterpret_cast<const char*>(&recorder_);
  ASSERT_EQ(reinterpret_cast<const char*>(&recorder_.begin) - object, 48);
  ASSERT_EQ(reinterpret_cast<const char*>(&recorder_.groups) - object, 208);
  ASSERT_TRUE(head());
  const FlightMemory found = read_flight_object(::getpid(), *head());
  EXPECT_EQ(found.dump.bad_entries, 0U);
  ASSERT_EQ(found.dump.entries.size(), 3U);
  EXPECT_EQ(found.dump.entries[0].name, "gloo:recv 0<-1");
  EXPECT_TRUE(found.dump.entries[0].is_p2p);
  EXPECT_TRUE(found.dump.entries[0].is_retired);
  EXPECT_EQ(found.dump.entries[0].state, "completed");
  const trace::import::DumpEntry& last = found.dump.entries[2];
  EXPECT_EQ(last.group_name, "0");
  EXPECT_EQ(last.group_description, "a description that is too long for the string itself");
  EXPECT_EQ(last.collective_seq, 70);
  EXPECT_EQ(last.created_ns, 1'000'000'000);
  EXPECT_FALSE(last.is_retired);
  EXPECT_EQ(last.state, "scheduled");
  EXPECT_EQ(last.input_sizes, "[[4], [2, 8]]");
  EXPECT_EQ(last.output_sizes, "[[16]]");
}

TEST_F(FlightMemoryTest, ThatOfAnOlderPyTorchHasAnotherLayout) {
  std::vector<OldEntryInMemory> entries(3);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].id = i;
    entries[i].group = "0";
    entries[i].description = "default_pg";
    entries[i].name = "gloo:all_reduce";
    entries[i].collective_seq = 70 + i;
    entries[i].created = 5;
    entries[i].input_dims.set({1});
    entries[i].sizes.set({4});
    entries[i].is_retired = i < 2;
  }
  OldRecorderInMemory recorder;
  recorder.begin = entries.data();
  recorder.end = recorder.room = entries.data() + entries.size();
  recorder.made = 3;
  recorder.groups[{"default_pg", "0"}] = {0, 1};
  std::array<std::byte, 296> bytes{};
  std::memcpy(bytes.data(), &recorder, sizeof recorder);
  const auto heads = flight_heads(bytes, 2000);
  ASSERT_EQ(heads.size(), 1U);
  const FlightMemory found = read_flight_object(::getpid(), heads.front());
  EXPECT_EQ(found.dump.bad_entries, 0U);
  ASSERT_EQ(found.dump.entries.size(), 3U);
  const trace::import::DumpEntry& last = found.dump.entries[2];
  EXPECT_EQ(last.collective_seq, 72);
  EXPECT_EQ(last.group_description, "default_pg");
  EXPECT_EQ(last.input_sizes, "[[4]]");
  EXPECT_TRUE(last.is_pending());
  EXPECT_TRUE(found.dump.entries[1].is_retired);
  ASSERT_EQ(found.dump.groups.size(), 1U);
  EXPECT_THAT(found.dump.groups[0].ranks, ElementsAre(0, 1));
}

// 64 entries of the one are 63 of the other.
TEST_F(FlightMemoryTest, WhatFitsTwoLayoutsHasAHeaderOfEach) {
  OldRecorderInMemory recorder;
  recorder.begin = reinterpret_cast<OldEntryInMemory*>(std::uintptr_t{4096});
  recorder.end = recorder.room = recorder.begin + 64;
  recorder.made = 64;
  std::array<std::byte, 296> bytes{};
  std::memcpy(bytes.data(), &recorder, sizeof recorder);
  EXPECT_EQ(flight_heads(bytes, 2000).size(), 2U);
}

TEST_F(FlightMemoryTest, GroupsAreReadWithTheirRanks) {
  const FlightMemory found = read_flight_object(::getpid(), *head());
  std::map<std::string, std::vector<std::int32_t>> groups;
  for (const trace::import::DumpGroup& group : found.dump.groups)
    groups[group.name + " " + group.description] = group.ranks;
  EXPECT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups["0 default"], ElementsAre(0, 1));
  EXPECT_THAT(groups["1 stage"], ElementsAre(1));
  EXPECT_THAT(groups["2 copy"], ElementsAre(0));
}

TEST_F(FlightMemoryTest, AHeaderWhoseNumbersDoNotFitIsNone) {
  EXPECT_FALSE(head(1999));
  recorder_.enabled = false;
  EXPECT_FALSE(head());
  recorder_.enabled = true;
  recorder_.made = 2;
  EXPECT_FALSE(head());
  recorder_.made = 5001;
  recorder_.next = 2001;
  EXPECT_FALSE(head());
  recorder_.next = 0;
  recorder_.room = recorder_.begin + 1;
  EXPECT_FALSE(head());
  recorder_.end = recorder_.begin;
  EXPECT_FALSE(head());
  EXPECT_TRUE(flight_heads({}, 2000).empty());
}

TEST_F(FlightMemoryTest, EntriesThatLieAreCounted) {
  const std::uint64_t long_one = 400;  // which could be read
  entries_[0].id = std::uint64_t{1} << 60;
  std::memcpy(reinterpret_cast<char*>(&entries_[1].name) + 8, &long_one, 8);  // its length
  const FlightMemory found = read_flight_object(::getpid(), *head());
  const std::uint64_t right = 15;
  std::memcpy(reinterpret_cast<char*>(&entries_[1].name) + 8, &right, 8);
  EXPECT_EQ(found.dump.bad_entries, 2U);
  ASSERT_EQ(found.dump.entries.size(), 1U);
  EXPECT_EQ(found.dump.entries[0].name, "gloo:recv 0<-1");
}

TEST_F(FlightMemoryTest, OfALargeRingTheNewestAreRead) {
  constexpr std::uint64_t kRoom = 20'004, kMade = 30'000, kAt = 2;
  entries_.resize(kRoom);
  for (std::uint64_t i = 0; i < kRoom; ++i) {
    EntryInMemory& entry = entries_[i];
    entry = EntryInMemory();
    entry.id = entry.collective_seq = i < kAt ? kMade - kAt + i : kMade - kRoom + i - kAt;
    entry.group = "0";
    entry.name = "gloo:all_reduce";
    entry.created = 1;
    entry.input_dims.begin = entry.input_dims.inline_;
    entry.output_dims.begin = entry.output_dims.inline_;
    entry.sizes.begin = entry.sizes.inline_;
  }
  recorder_.begin = entries_.data();
  recorder_.end = recorder_.room = entries_.data() + kRoom;
  recorder_.most = kRoom;
  recorder_.made = kMade;
  recorder_.next = kAt;
  const auto found = read_flight_object(::getpid(), *head(kRoom));
  EXPECT_EQ(found.dump.bad_entries, 0U);
  ASSERT_EQ(found.dump.entries.size(), 20'000U);
  EXPECT_EQ(found.dump.entries.back().collective_seq, static_cast<std::int64_t>(kMade - 1));
  EXPECT_EQ(found.dump.entries.front().collective_seq, static_cast<std::int64_t>(kMade - 20'000));
}

TEST_F(FlightMemoryTest, OfTwoWithOneNumberOneIsTorn) {
  entries_[1].id = entries_[0].id;
  const FlightMemory found = read_flight_object(::getpid(), *head());
  EXPECT_EQ(found.dump.bad_entries, 1U);
  EXPECT_EQ(found.dump.entries.size(), 2U);
}

TEST_F(FlightMemoryTest, SizesThatPointNowhereAreUnknown) {
  entries_[0].sizes.begin = reinterpret_cast<std::int64_t*>(std::uintptr_t{8});
  entries_[0].input_dims.size = 1'000'000;
  const FlightMemory found = read_flight_object(::getpid(), *head());
  ASSERT_EQ(found.dump.entries.size(), 3U);
  EXPECT_EQ(found.dump.entries[2].input_sizes, "[]");
  EXPECT_EQ(found.dump.entries[2].output_sizes, "");
}

TEST_F(FlightMemoryTest, AProcessWithoutPyTorchHasNone) {
  EXPECT_FALSE(read_flight_memory(sys::Procfs(), ::getpid()));
  EXPECT_FALSE(read_flight_memory(sys::Procfs(), -1));
}

}  // namespace
}  // namespace kansoku::capture::hang
