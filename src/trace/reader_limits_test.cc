// SPDX-License-Identifier: Apache-2.0
// Limits on the cost of a hostile file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <vector>

#include "trace/proto_for_test.h"
#include "trace/reader.h"

namespace kansoku::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReaderLimits, RefusesALengthOfFourGigabytes) {
  const std::string good = File().instant(1, "one").bytes;
  for (const std::string_view claim : {std::string_view("\x0a\xff\xff\xff\xff\x0f", 6),
                                       std::string_view("\x0a\x81\x80\x80\x20", 5),
                                       std::string_view("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                                        "\x01",
                                                        11),
                                       std::string_view("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                                        "\xff\x01",
                                                        12)}) {
    for (const std::string& before : {std::string(), good}) {
      const Error error = read_fails(before + std::string(claim) + "body");
      EXPECT_EQ(error.code, Code::kCorrupt);
      EXPECT_EQ(error.what,
                fmt::format("read trace at offset {}: not a trace packet", before.size()));
    }
  }
  // 64 MiB is believed, so that is a torn tail.
  EXPECT_EQ(count_of(read_ok(good + std::string("\x0a\x80\x80\x80\x20", 5)), trace_truncated_tail),
            1U);
  // The same claim inside a packet.
  EXPECT_THAT(read_fails(File().add("\x5a\xff\xff\xff\xff\x0f").bytes).what,
              HasSubstr("damaged packet"));
}

TEST(ReaderLimits, StopsAtTheLimitOfAnInflatedChunk) {
  const std::string raw = File().instant(1, std::string(5000, 'x')).bytes;
  const std::string bytes = compressed(raw);
  for (const std::size_t limit : {raw.size() + 1, raw.size()})
    EXPECT_EQ(read_ok(bytes, {.inflated_chunk_bytes_max = limit}).instants.size(), 1U);
  for (const std::size_t limit : {raw.size() - 1, std::size_t{1}, std::size_t{0}}) {
    const Error error = read_fails(bytes, {.inflated_chunk_bytes_max = limit});
    EXPECT_EQ(error.code, Code::kLimit);
    EXPECT_EQ(error.what,
              fmt::format("read trace at offset 0: inflate: more than {} bytes", limit));
  }
}

TEST(ReaderLimits, StopsAtADecompressionBomb) {
  const std::string bomb = compressed(std::string(64 << 20, '\0'));
  EXPECT_LT(bomb.size(), 128U * 1024);
  EXPECT_EQ(read_fails(bomb).code, Code::kLimit);
  // Well-formed packets inside: the number of events is what stops it.
  std::string packets;
  for (int i = 0; i < 1000; ++i)
    packets += File().instant(1, "x").bytes;
  std::string chunks;
  for (int i = 0; i < 50; ++i)
    chunks += compressed(packets);
  EXPECT_EQ(read_ok(chunks).instants.size(), 50'000U);
  EXPECT_EQ(read_fails(chunks, {.events_max = 40'000}).code, Code::kLimit);
}

TEST(ReaderLimits, StopsAtTheLimitOfEvents) {
  File file;
  for (std::uint64_t i = 0; i < 10; ++i)
    file.instant(i, "x");
  EXPECT_EQ(read_fails(file.bytes, {.events_max = 9}).code, Code::kLimit);
  EXPECT_EQ(read_fails(file.bytes, {.events_max = 9}).what, "read trace: more than 9 events");
  EXPECT_EQ(read_ok(file.bytes, {.events_max = 10}).instants.size(), 10U);
  EXPECT_EQ(read_ok(file.bytes, {.events_max = 11}).instants.size(), 10U);
  EXPECT_EQ(read_fails(file.bytes, {.events_max = 0}).code, Code::kLimit);
}

TEST(ReaderLimits, CountsWhatTakesMemoryAsEvents) {
  const std::string bytes = bytes_of(write_everything);
  std::uint64_t least = 0;
  while (!read(bytes, {.events_max = least}))
    ++least;
  const Trace trace = read_ok(bytes, {.events_max = least});
  const std::size_t rows = trace.slices.size() + trace.instants.size() + trace.counters.size() +
                           trace.samples.size() + trace.switches.size() + trace.wakes.size();
  EXPECT_GE(least, rows + trace.args.size() - 4 + trace.tracks.size() + trace.frames.size() +
                       trace.stacks.size() + trace.stacks.frames.size());
}

TEST(ReaderLimits, CountsArgumentsAndStackFramesAsEvents) {
  const std::string event_bytes =
      File()
          .event(1, 1,
                 [](pbf_writer& e) {
                   e.add_enum(event::kType, event::kInstant);
                   for (int i = 0; i < 7; ++i) {
                     e.add_message(event::kAnnotation,
                                   message([](pbf_writer& a) { a.add_uint64(3, 1); }));
                   }
                 })
          .bytes;
  EXPECT_EQ(read_fails(event_bytes, {.events_max = 7}).code, Code::kLimit);
  EXPECT_EQ(read_ok(event_bytes, {.events_max = 8}).args.size(), 7U);
  const std::string stack_bytes =
      File()
          .packet([](pbf_writer& p) {
            p.add_message(packet::kInterned, message([](pbf_writer& d) {
                            d.add_message(interned::kFrame,
                                          message([](pbf_writer& f) { f.add_uint64(1, 1); }));
                            const std::array<std::uint64_t, 9> frames{1, 1, 1, 1, 1, 1, 1, 1, 1};
                            d.add_message(interned::kStack, message([&](pbf_writer& s) {
                                            s.add_packed_uint64(2, frames.begin(), frames.end());
                                          }));
                          }));
          })
          .bytes;
  EXPECT_EQ(read_fails(stack_bytes, {.events_max = 10}).code, Code::kLimit);  // 1 + 1 + 9
  EXPECT_EQ(read_ok(stack_bytes, {.events_max = 11}).stacks.frames.size(), 9U);
}

TEST(ReaderLimits, StopsAtTheLimitOfStrings) {
  constexpr std::size_t kCostOfAString = 32;
  const std::size_t cost = 3 * (10 + kCostOfAString);
  // The same text again is free, wherever it comes.
  const std::string bytes = File()
                                .instant(1, "aaaaaaaaaa")
                                .instant(2, "bbbbbbbbbb")
                                .instant(3, "aaaaaaaaaa")
                                .instant(4, "cccccccccc")
                                .bytes;
  EXPECT_EQ(read_fails(bytes, {.strings_bytes_max = cost - 1}).code, Code::kLimit);
  EXPECT_EQ(read_fails(bytes, {.strings_bytes_max = cost - 1}).what,
            fmt::format("read trace: more than {} bytes of names", cost - 1));
  EXPECT_EQ(read_ok(bytes, {.strings_bytes_max = cost}).instants.size(), 4U);
  EXPECT_EQ(read_ok(bytes, {.strings_bytes_max = cost + 1}).instants.size(), 4U);
}

TEST(ReaderLimits, CountsTheTextsOfAllPlaces) {
  const std::string text(1000, 'x');
  const auto in_packet = [](std::uint32_t field, std::initializer_list<std::uint32_t> path,
                            std::string body) {
    File file;
    for (auto inner = std::rbegin(path); inner != std::rend(path); ++inner)
      body = message([&](pbf_writer& m) { m.add_message(*inner, body); });
    file.packet([&](pbf_writer& p) { p.add_message(field, body); });
    return file.bytes;
  };
  const std::array bytes{
      in_packet(packet::kEvent, {event::kName}, text),
      in_packet(packet::kEvent, {event::kCategory}, text),
      in_packet(packet::kEvent, {event::kAnnotation, 6}, text),   // string_value
      in_packet(packet::kEvent, {event::kAnnotation, 10}, text),  // name
      in_packet(packet::kDescriptor, {2}, text),                  // name
      in_packet(packet::kDescriptor, {3, 2}, text),               // process cmdline
      in_packet(packet::kDescriptor, {3, 6}, text),               // process name
      in_packet(packet::kDescriptor, {3, 8}, "job=" + text),      // process label
      in_packet(packet::kDescriptor, {3, 8}, "role=" + text),     // process label
      in_packet(packet::kDescriptor, {4, 5}, text),               // thread name
      in_packet(packet::kInterned, {interned::kCategory, 2}, text),
      in_packet(packet::kInterned, {interned::kEventName, 2}, text),
      in_packet(packet::kInterned, {interned::kAnnotationName, 2}, text),
      in_packet(packet::kInterned, {interned::kFunction, 2}, text),
      in_packet(packet::kInterned, {interned::kPath, 2}, text),
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(read_fails(bytes.at(i), {.strings_bytes_max = 999}).code, Code::kLimit);
    EXPECT_TRUE(read(bytes.at(i), {.strings_bytes_max = 1200}));
  }
}

TEST(ReaderLimits, CutsStacksAtTheLimitAndCountsIt) {
  const std::string bytes = bytes_of([](Writer& w) {
    std::vector<FrameHandle> frames;
    for (std::uint32_t line = 1; line <= 5; ++line)
      frames.push_back(w.frame("f", "", line));
    w.sample(1, 1, kBaseForTest, w.stack(frames), SampleState::kRunning, false);
  });
  for (const std::uint32_t limit : {4U, 5U, 6U}) {
    const Trace trace = read_ok(bytes, {.stack_frames_max = limit});
    EXPECT_EQ(trace.stacks.at(trace.samples.stack[0]).size(), std::min(limit, 5U));
    EXPECT_EQ(count_of(trace, trace_cut_events), limit < 5 ? 1U : 0U);
    EXPECT_EQ(trace.is_lossy(), limit < 5);
  }
}

TEST(ReaderLimits, CutsArgumentsAndFlowsAtTheLimitAndCountsIt) {
  const std::string bytes =
      File()
          .event(1, 1,
                 [](pbf_writer& e) {
                   e.add_enum(event::kType, event::kBegin);
                   for (std::uint64_t i = 0; i < 10; ++i)
                     e.add_fixed64(event::kFlow, i);
                   for (std::uint64_t i = 0; i < 5; ++i) {
                     e.add_message(event::kAnnotation,
                                   message([&](pbf_writer& a) { a.add_uint64(3, i); }));
                   }
                 })
          .bytes;
  for (const std::uint32_t limit : {0U, 4U, 5U, 6U}) {
    const Trace trace = read_ok(bytes, {.args_per_event_max = limit});
    EXPECT_EQ(trace.slices.arg_count[0], std::min(limit, 5U));
    EXPECT_EQ(trace.flows.size(), 8U);
    EXPECT_EQ(count_of(trace, trace_cut_events), 2 + (5 - std::min(limit, 5U)));
  }
}

TEST(ReaderLimits, StopsAtTheLimitOfSequences) {
  File file;
  for (std::uint32_t i = 1; i <= 5; ++i) {
    file.event(i, 1, [](pbf_writer& e) { e.add_enum(event::kType, event::kInstant); });
    file.event(i, 2, [](pbf_writer& e) { e.add_enum(event::kType, event::kInstant); });
  }
  EXPECT_EQ(read_fails(file.bytes, {.sequences_max = 4}).code, Code::kLimit);
  EXPECT_EQ(read_ok(file.bytes, {.sequences_max = 5}).instants.size(), 10U);
  EXPECT_EQ(read_ok(file.bytes, {.sequences_max = 6}).instants.size(), 10U);
}

TEST(ReaderLimits, DoesNotFollowDeepNesting) {
  std::string nested = File().instant(1, "inner").bytes;
  for (int i = 0; i < 50; ++i)
    nested = compressed(nested);
  EXPECT_THAT(read_ok(nested).instants.time_ns, IsEmpty());
  // Nested values of annotations are no values of ours: skipped at any depth.
  constexpr std::uint32_t kNestedValue = 8, kDictEntries = 11;
  for (const std::uint32_t field : {kNestedValue, kDictEntries}) {
    std::string value = message([](pbf_writer& a) { a.add_uint64(3, 1); });
    for (int i = 0; i < 2000; ++i)
      value = message([&](pbf_writer& a) { a.add_message(field, value); });
    const Trace trace = read_ok(File()
                                    .event(1, 1,
                                           [&](pbf_writer& e) {
                                             e.add_enum(event::kType, event::kInstant);
                                             e.add_message(event::kAnnotation, value);
                                           })
                                    .bytes);
    EXPECT_EQ(trace.instants.arg_count[0], 0U);
  }
}

TEST(ReaderLimits, SurvivesTimesFarApart) {
  File file;
  const auto slice = [&](std::uint64_t type, std::uint64_t time) {
    file.event(1, time,
               [&](pbf_writer& e) { e.add_enum(event::kType, static_cast<std::int32_t>(type)); });
  };
  constexpr std::uint64_t kMostNegative = std::uint64_t{1} << 63;
  slice(event::kBegin, kMostNegative);
  slice(event::kEnd, kInt64Max);
  slice(event::kBegin, kInt64Max);
  slice(event::kEnd, kMostNegative);
  slice(event::kBegin, kUint64Max);  // -1
  slice(event::kEnd, 0);
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(kInt64Max, 0, 1));
  EXPECT_EQ(trace.end_ns, kInt64Max);
}

TEST(ReaderLimits, KeepsOnlySoManyLossesAndSoMuchOfTheirText) {
  File file;
  for (std::uint64_t i = 0; i < 1500; ++i) {
    for (const bool is_loss : {true, false}) {
      file.event(1, i, [&](pbf_writer& e) {
        const auto arg = [&](const char* key, const std::string& value) {
          e.add_message(event::kAnnotation, message([&](pbf_writer& a) {
                          a.add_string(10, key);
                          a.add_string(6, value);
                        }));
        };
        e.add_enum(event::kType, event::kInstant);
        e.add_string(event::kCategory, is_loss ? "kansoku.loss" : "kansoku.meta");
        arg(is_loss ? "stat" : "key", fmt::format("n{}", i));
        arg(is_loss ? "advice" : "value", std::string(10'000, 'x'));
      });
    }
  }
  const Trace trace = read_ok(file.bytes);
  EXPECT_EQ(trace.losses.size(), 1024U);
  EXPECT_EQ(trace.metadata.size(), 1024U);
  EXPECT_EQ(trace.losses.at("n0").advice.size(), 4096U);
  EXPECT_EQ(trace.metadata.at("n0").size(), 4096U);
}

}  // namespace
}  // namespace kansoku::trace
