// SPDX-License-Identifier: Apache-2.0
#include "trace/append.h"

#include <gmock/gmock.h>

#include <array>

#include "trace/proto_for_test.h"

namespace kansoku::trace {
namespace {

using testing::HasSubstr;

Trace read_whole(const std::string& bytes) {
  auto trace = read_trace(as_bytes(bytes));
  EXPECT_TRUE(trace) << trace.error().what;
  EXPECT_EQ(problem_of(*trace), "");
  return std::move(trace).value();
}

/// The file with a slice below process 100, by a writer of its own.
std::string appended(const std::string& file) {
  const auto point = append_point(as_bytes(file));
  EXPECT_TRUE(point.has_value());
  MemorySink sink;
  EXPECT_TRUE(sink.append(as_bytes(file).first(point->whole_bytes)));
  auto writer = Writer::create(sink, kBaseForTest, point->options);
  const TrackHandle track = (*writer)->custom_track(point->processes.at(100), "derived");
  const std::array args{Arg::str((*writer)->name("why"), "because")};
  (*writer)->slice_begin(track, at_for_test(10), (*writer)->name("new"),
                         (*writer)->category("kansoku.new"), args);
  (*writer)->slice_end(track, at_for_test(20));
  EXPECT_TRUE((*writer)->flush());
  return sink.data();
}

TEST(AppendTest, WhatIsAppendedStandsBesideWhatWasThere) {
  for (const int level : {0, 1}) {
    const std::string file = bytes_of(
        [](Writer& writer) {
          write_everything(writer);
          ProcessInfo info;
          info.pid = 100;
          writer.process_track(info);
        },
        {.deflate_level = level});
    const Trace before = read_whole(file), after = read_whole(appended(file));
    ASSERT_EQ(after.slices.size(), before.slices.size() + 1);
    for (std::size_t i = 0; i < before.slices.size(); ++i) {
      EXPECT_EQ(after.str(after.slices.name[i]), before.str(before.slices.name[i]));
      EXPECT_EQ(after.slices.start_ns[i], before.slices.start_ns[i]);
      EXPECT_EQ(after.slices.duration_ns[i], before.slices.duration_ns[i]);
      EXPECT_EQ(after.slices.track[i], before.slices.track[i]);
    }
    const std::size_t last = before.slices.size();
    EXPECT_EQ(after.str(after.slices.name[last]), "new");
    EXPECT_EQ(after.slices.start_ns[last], at_for_test(10).time_since_epoch().count());
    EXPECT_EQ(after.slices.duration_ns[last], 10);
    const Track& track = after.tracks.at(after.slices.track[last].raw);
    EXPECT_EQ(after.str(track.name), "derived");
    ASSERT_LT(track.parent.raw, before.tracks.size());
    EXPECT_EQ(after.tracks[track.parent.raw].pid, 100);
    EXPECT_EQ(after.processes.size(), before.processes.size());
    EXPECT_EQ(after.metadata, before.metadata);
    EXPECT_EQ(after.samples.stack, before.samples.stack);
    EXPECT_EQ(after.stacks.frames, before.stacks.frames);
  }
}

TEST(AppendTest, TakesNoNumberThatTheFileHas) {
  const std::string once = bytes_of([](Writer& writer) {
    ProcessInfo info;
    info.pid = 100;
    writer.process_track(info);
  });
  const auto first = append_point(as_bytes(once));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->options.sequence, 2U);
  EXPECT_FALSE(first->is_torn);
  EXPECT_EQ(first->whole_bytes, once.size());
  const auto second = append_point(as_bytes(appended(once)));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->options.sequence, 3U);
  // The second writer's own track, and "derived".
  EXPECT_EQ(second->options.first_uuid, first->options.first_uuid + 2);
}

TEST(AppendTest, ATornPacketIsCutOff) {
  const std::string whole = bytes_of(
      [](Writer& writer) {
        ProcessInfo info;
        info.pid = 100;
        writer.process_track(info);
      },
      {.deflate_level = 0});
  const std::string torn = whole + "\x0a\x20torn";
  const auto point = append_point(as_bytes(torn));
  ASSERT_TRUE(point.has_value());
  EXPECT_TRUE(point->is_torn);
  EXPECT_EQ(point->whole_bytes, whole.size());
  EXPECT_EQ(read_whole(appended(torn)).slices.size(), 1U);
}

TEST(AppendTest, NumbersOfAnotherWriterAreRefused) {
  const auto with_uuid = [](std::uint64_t uuid) {
    File file;
    file.packet([&](pbf_writer& packet) {
      packet.add_message(packet::kDescriptor,
                         message([&](pbf_writer& track) { track.add_uint64(1, uuid); }));
    });
    return file.bytes;
  };
  EXPECT_TRUE(append_point(as_bytes(with_uuid(1000))).has_value());
  const auto refused = append_point(as_bytes(with_uuid(kUint64Max)));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  File undeclared;
  undeclared.packet([](pbf_writer& packet) {
    packet.add_message(packet::kEvent,
                       message([](pbf_writer& of) { of.add_uint64(event::kTrack, 77); }));
  });
  EXPECT_EQ(append_point(as_bytes(undeclared.bytes))->options.first_uuid, 78U);
  File crowded;
  for (std::uint32_t id = 1; id < 128; ++id)
    crowded.packet([&](pbf_writer& packet) { packet.add_uint32(packet::kSequence, id); });
  EXPECT_FALSE(append_point(as_bytes(crowded.bytes)).has_value());
}

TEST(AppendTest, DamageNamesItsOffset) {
  const auto point = append_point(as_bytes("no trace"));
  ASSERT_FALSE(point.has_value());
  EXPECT_EQ(point.error().code, Code::kCorrupt);
  EXPECT_THAT(point.error().what, HasSubstr("at offset 0"));
}

}  // namespace
}  // namespace kansoku::trace
