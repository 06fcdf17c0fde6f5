// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trace/proto_for_test.h"

namespace kansoku::trace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class T>
bool is_prefix(const std::vector<T>& part, const std::vector<T>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

std::vector<std::string> names_of(const Trace& trace, const std::vector<StringId>& ids) {
  std::vector<std::string> names;
  for (const StringId id : ids)
    names.emplace_back(trace.str(id));
  return names;
}

// True if every table of `part` is the beginning of that of `whole`; slices may lack their end.
bool is_beginning(const Trace& part, const Trace& whole) {
  for (std::size_t i = 0; i < std::min(part.slices.size(), whole.slices.size()); ++i) {
    const std::int64_t ns = part.slices.duration_ns[i];
    if (ns != kOpenDuration && ns != whole.slices.duration_ns[i]) return false;
  }
  return is_prefix(part.slices.start_ns, whole.slices.start_ns) &&
         is_prefix(names_of(part, part.slices.name), names_of(whole, whole.slices.name)) &&
         is_prefix(part.instants.time_ns, whole.instants.time_ns) &&
         is_prefix(names_of(part, part.instants.name), names_of(whole, whole.instants.name)) &&
         is_prefix(part.counters.value, whole.counters.value) &&
         is_prefix(part.samples.time_ns, whole.samples.time_ns) &&
         is_prefix(part.samples.state, whole.samples.state) &&
         is_prefix(part.switches.time_ns, whole.switches.time_ns) &&
         is_prefix(part.wakes.time_ns, whole.wakes.time_ns) &&
         is_prefix(part.flows.id, whole.flows.id);
}

// Offsets at which the packets of a file end.
std::vector<std::size_t> packet_ends(std::string_view bytes) {
  std::vector<std::size_t> ends;
  const char* at = bytes.data();
  const char* end = at + bytes.size();
  while (at < end) {
    ++at;
    const std::uint64_t length = protozero::decode_varint(&at, end);
    at += length;
    ends.push_back(static_cast<std::size_t>(at - bytes.data()));
  }
  return ends;
}

TEST(Reader, RefusesWhatIsNoTrace) {
  EXPECT_EQ(read_fails("").code, Code::kCorrupt);
  EXPECT_EQ(read_fails("").what, "read trace at offset 0: the file is empty");
  for (const std::string_view bytes : {"{\"traceEvents\": []}",
                                       "\x7f"
                                       "ELF",
                                       "\n\n\n", "hello world, this is text"}) {
    const Error error = read_fails(bytes);
    EXPECT_EQ(error.code, Code::kCorrupt);
    EXPECT_THAT(error.what, HasSubstr("read trace at offset 0"));
  }
  EXPECT_EQ(read_fails(std::string(1 << 16, '\0')).code, Code::kCorrupt);
  EXPECT_EQ(read_fails("\x0a").what, "read trace at offset 0: shorter than its first packet");
}

TEST(Reader, TakesAFileOfEmptyPackets) {
  const Trace trace = read_ok(std::string("\x0a\x00\x0a\x00", 4));
  EXPECT_EQ(trace.begin_ns, 0);
  EXPECT_EQ(trace.end_ns, 0);
  EXPECT_THAT(trace.losses, IsEmpty());
  EXPECT_EQ(trace.stacks.size(), 0U);
}

// Cuts the file at every byte.
TEST(Reader, ReadsEverythingBeforeATornTail) {
  for (const int level : {0, 1}) {
    SCOPED_TRACE(level);
    const std::string bytes =
        bytes_of(write_everything, {.chunk_bytes_max = 300, .deflate_level = level});
    const Trace whole = read_ok(bytes);
    const auto ends = packet_ends(bytes);
    ASSERT_EQ(ends.back(), bytes.size());
    ASSERT_GT(ends.size(), 4U);
    std::size_t whole_packets = 0;
    for (std::size_t size = 1; size <= bytes.size(); ++size) {
      if (size == ends[whole_packets]) ++whole_packets;
      if (whole_packets == 0) {
        EXPECT_EQ(read_fails(bytes.substr(0, size)).what,
                  "read trace at offset 0: shorter than its first packet");
        continue;
      }
      const Trace part = read_ok(bytes.substr(0, size));
      ASSERT_TRUE(is_beginning(part, whole)) << "cut at " << size;
      const bool is_torn = size != ends[whole_packets - 1];
      ASSERT_EQ(count_of(part, trace_truncated_tail), is_torn ? 1U : 0U) << "cut at " << size;
      EXPECT_FALSE(is_torn && part.losses.at("trace_truncated_tail").advice.empty());
    }
  }
}

TEST(Reader, LeavesSlicesOpenWhoseEndWasTornOff) {
  File file;
  const auto slice = [&](std::uint64_t type, std::uint64_t time) {
    file.event(1, time, [&](pbf_writer& e) {
      e.add_enum(event::kType, static_cast<std::int32_t>(type));
      e.add_uint64(event::kTrack, 1);
    });
  };
  slice(event::kBegin, 10);
  slice(event::kBegin, 20);
  slice(event::kEnd, 30);
  slice(event::kEnd, 40);
  const Trace whole = read_ok(file.bytes);
  EXPECT_THAT(whole.slices.duration_ns, ElementsAre(30, 10));
  const Trace torn = read_ok(std::string_view(file.bytes).substr(0, file.bytes.size() - 1));
  EXPECT_THAT(torn.slices.duration_ns, ElementsAre(kOpenDuration, 10));
  EXPECT_EQ(torn.end_ns, 30);
  EXPECT_EQ(count_of(torn, trace_truncated_tail), 1U);
}

TEST(Reader, SurvivesEverySingleBitFlip) {
  for (const int level : {0, 1}) {
    SCOPED_TRACE(level);
    std::string bytes = bytes_of(write_everything, {.deflate_level = level});
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const char before = bytes[bit / 8];
      bytes[bit / 8] = static_cast<char>(before ^ (1 << (bit % 8)));
      if (const auto trace = read(bytes); !trace) {
        ++refused;
        ASSERT_THAT(trace.error().what, HasSubstr("read trace at offset ")) << "bit " << bit;
        ASSERT_EQ(trace.error().code, Code::kCorrupt) << "bit " << bit;
      }
      bytes[bit / 8] = before;
    }
    EXPECT_GT(refused, bytes.size());
    EXPECT_TRUE(read(bytes));
  }
}

TEST(Reader, NamesTheOffsetOfDamage) {
  const std::string good = File().instant(1, "one").instant(2, "two").bytes;
  EXPECT_EQ(read_fails(good + "garbage").what,
            fmt::format("read trace at offset {}: not a trace packet", good.size()));
  // A packet whose event says it is longer than the packet.
  const std::string bad = File().add("\x5a\x7f").bytes;
  EXPECT_THAT(read_fails(good + bad + good).what,
              HasSubstr(fmt::format("read trace at offset {}: damaged packet", good.size())));
  const Error inner = read_fails(good + compressed(good + bad));
  EXPECT_THAT(inner.what, AllOf(HasSubstr(fmt::format("at offset {}: damaged packet {} bytes into",
                                                      good.size(), good.size()))));
  const Error torn = read_fails(compressed(good.substr(0, good.size() - 1)));
  EXPECT_THAT(torn.what, HasSubstr("into the compressed packets"));
  const Error no_zlib = read_fails(
      File()
          .packet([](pbf_writer& p) { p.add_bytes(packet::kCompressed, "this is not zlib"); })
          .bytes);
  EXPECT_EQ(no_zlib.what, "read trace at offset 0: inflate: not a whole zlib stream");
}

// Wherever a text may stand in a trace, it counts.
TEST(Reader, SkipsUnknownFieldsEverywhere) {
  const auto add_unknown = [](pbf_writer& m) {
    m.add_uint64(9001, 1);
    m.add_fixed64(9002, 2);
    m.add_fixed32(9003, 3);
    m.add_string(9004, "unknown");
  };
  const Trace trace =
      read_ok(File()
                  .packet([&](pbf_writer& p) {
                    add_unknown(p);
                    p.add_message(packet::kDescriptor, message([&](pbf_writer& d) {
                                    d.add_uint64(1, 5);
                                    add_unknown(d);
                                    d.add_message(3, message([&](pbf_writer& process) {
                                                    add_unknown(process);
                                                    process.add_int32(1, 42);
                                                  }));
                                  }));
                  })
                  .packet([&](pbf_writer& p) {
                    p.add_uint64(packet::kTimestamp, 10);
                    add_unknown(p);
                    p.add_message(packet::kEvent, message([&](pbf_writer& e) {
                                    add_unknown(e);
                                    e.add_enum(event::kType, event::kInstant);
                                    e.add_uint64(event::kTrack, 5);
                                    e.add_message(event::kAnnotation, message([&](pbf_writer& a) {
                                                    add_unknown(a);
                                                    a.add_string(10, "key");
                                                    a.add_int64(4, -3);
                                                  }));
                                  }));
                  })
                  .packet([&](pbf_writer& p) {
                    p.add_message(packet::kFtrace, message([&](pbf_writer& f) {
                                    add_unknown(f);
                                    f.add_uint32(1, 2);
                                    f.add_message(2, message([&](pbf_writer& e) {
                                                    add_unknown(e);
                                                    e.add_uint64(1, 20);
                                                    e.add_message(4, message([&](pbf_writer& s) {
                                                                    add_unknown(s);
                                                                    s.add_int32(2, 7);
                                                                    s.add_int64(4, 1);
                                                                    s.add_int32(6, 8);
                                                                  }));
                                                  }));
                                  }));
                  })
                  .bytes);
  EXPECT_EQ(trace.processes.at(0).pid, 42);
  EXPECT_THAT(trace.instants.time_ns, ElementsAre(10));
  EXPECT_EQ(trace.args.at(0).i64, -3);
  EXPECT_THAT(trace.switches.prev_tid, ElementsAre(7));
  EXPECT_THAT(trace.losses, IsEmpty());
}

TEST(Reader, SkipsKnownFieldsOfAnotherWireType) {
  // The numbers of the schema, each as a fixed32, which none of them is.
  const auto add_wrong = [](pbf_writer& m) {
    for (std::uint32_t field = 1; field <= 70; ++field)
      m.add_fixed32(field, 0xffffffff);
  };
  const auto wrong = message(add_wrong);
  const Trace trace = read_ok(File()
                                  .add(wrong)
                                  .packet([&](pbf_writer& p) {
                                    for (const std::uint32_t field :
                                         {packet::kFtrace, packet::kClockSnapshot, packet::kEvent,
                                          packet::kInterned, packet::kDefaults, packet::kDescriptor,
                                          packet::kSample}) {
                                      p.add_message(field, wrong);
                                    }
                                  })
                                  .bytes);
  EXPECT_THAT(trace.instants.time_ns, IsEmpty());
  EXPECT_THAT(trace.slices.start_ns, IsEmpty());
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 1U);  // the sample has no stack
}

// Absolute boot times without clocks or defaults, names in the events, random track ids.
TEST(Reader, ReadsATraceWithoutInterning) {
  constexpr std::uint64_t kThread = 0xfedcba9876543210;
  constexpr std::uint64_t kProcess = 0x123456789abcdef0;
  File file;
  file.packet([](pbf_writer& p) {
    p.add_uint64(packet::kTimestamp, 1000);
    p.add_message(packet::kDescriptor, message([](pbf_writer& d) {
                    d.add_uint64(1, kThread);
                    d.add_uint64(5, kProcess);
                    d.add_message(4, message([](pbf_writer& t) {
                                    t.add_int32(1, 10);
                                    t.add_int32(2, 11);
                                    t.add_string(5, "worker");
                                  }));
                  }));
  });
  file.packet([](pbf_writer& p) {
    p.add_message(packet::kDescriptor, message([](pbf_writer& d) {
                    d.add_uint64(1, kProcess);
                    d.add_message(3, message([](pbf_writer& t) {
                                    t.add_int32(1, 10);
                                    t.add_string(2, "python");
                                    t.add_string(2, "a.py");
                                    t.add_string(6, "python");
                                  }));
                  }));
  });
  const auto slice = [&](std::uint64_t time, std::uint64_t type,
                         const std::function<void(pbf_writer&)>& more) {
    file.event(9, time, [&](pbf_writer& e) {
      e.add_enum(event::kType, static_cast<std::int32_t>(type));
      e.add_uint64(event::kTrack, kThread);
      more(e);
    });
  };
  slice(2000, event::kBegin, [](pbf_writer& e) {
    e.add_string(event::kCategory, "gpu");
    e.add_string(event::kName, "kernel");
    e.add_message(event::kAnnotation, message([](pbf_writer& a) {
                    a.add_string(10, "flag");
                    a.add_bool(2, true);
                  }));
    e.add_message(event::kAnnotation, message([](pbf_writer& a) {
                    a.add_string(10, "ratio");
                    a.add_double(5, 0.5);
                  }));
  });
  slice(2500, event::kEnd, [](pbf_writer&) {});
  slice(2600, event::kCount, [](pbf_writer& e) { e.add_int64(event::kCounter, -7); });
  slice(2700, event::kCount, [](pbf_writer& e) { e.add_double(event::kDoubleCounter, 0.25); });
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(dump(trace),
              AllOf(HasSubstr("slice 2000 + 500 on 0 'kernel' 'gpu' flag=u1 ratio=f0.5\n"),
                    HasSubstr("track 1 parent 1 pid 10 tid 11 'worker'\n"),
                    HasSubstr("process 10 of 0 'python' 'python a.py' job ''  -1 -1/-1\n"),
                    HasSubstr("from 2000 to 2700\n")));
  EXPECT_THAT(trace.counters.value, ElementsAre(-7, 0.25));
  EXPECT_THAT(trace.losses, IsEmpty());
}

// Sequences intern for themselves, may do so in the packet of the event, and forget when told to.
TEST(Reader, KeepsTheInternedDataOfSequencesApart) {
  File file;
  const auto event_with = [&](std::uint32_t sequence, const std::string& interned_data) {
    file.packet([&](pbf_writer& p) {
      p.add_uint32(packet::kSequence, sequence);
      p.add_message(packet::kEvent, message([](pbf_writer& e) {
                      e.add_enum(event::kType, event::kInstant);
                      e.add_uint64(event::kNameIid, 1);
                      e.add_uint64(event::kCategoryIid, 1);
                    }));
      if (!interned_data.empty()) p.add_message(packet::kInterned, interned_data);
    });
  };
  const auto names = [](const std::string& text) {
    return message([&](pbf_writer& d) {
      d.add_message(interned::kEventName, entry(1, text));
      d.add_message(interned::kCategory, entry(1, "category of " + text));
    });
  };
  event_with(1, names("one"));
  event_with(2, names("two"));
  event_with(1, "");
  event_with(2, "");
  event_with(3, "");  // has declared nothing
  file.packet([](pbf_writer& p) {
    p.add_uint32(packet::kSequence, 1);
    p.add_uint32(packet::kFlags, 1);  // incremental state cleared
  });
  event_with(1, "");
  event_with(2, "");
  file.packet([](pbf_writer& p) {
    p.add_uint32(packet::kSequence, 2);
    p.add_bool(packet::kCleared, true);
  });
  event_with(2, "");
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(names_of(trace, trace.instants.name),
              ElementsAre("one", "two", "one", "two", "", "", "two", ""));
  EXPECT_EQ(trace.str(trace.instants.category[3]), "category of two");
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 6U);  // three names, three categories
  EXPECT_TRUE(trace.is_lossy());
}

TEST(Reader, ReadsStacksOfAnotherProducer) {
  const auto frame = [](std::uint64_t iid, std::uint64_t function, std::uint64_t path) {
    return message([&](pbf_writer& f) {
      f.add_uint64(1, iid);
      f.add_uint64(2, function);
      f.add_uint64(4, 0xabcdef);  // rel_pc
      if (path != 0) f.add_uint64(5, path);
    });
  };
  File file;
  file.packet([&](pbf_writer& p) {
    p.add_uint64(packet::kTimestamp, 5);
    p.add_message(packet::kSample, message([](pbf_writer& s) {
                    s.add_uint32(1, 3);
                    s.add_uint32(2, 10);
                    s.add_uint32(3, 11);
                    s.add_uint64(4, kUint64Max);
                  }));
    p.add_message(packet::kInterned, message([&](pbf_writer& d) {
                    const std::array<std::uint64_t, 2> packed{70'000, 2};
                    d.add_message(interned::kFunction, entry(1, "outer"));
                    d.add_message(interned::kFunction, entry(2, "inner"));
                    d.add_message(interned::kPath, entry(1, "a.cc"));
                    d.add_message(interned::kFrame, frame(70'000, 1, 1));
                    d.add_message(interned::kFrame, frame(2, 2, 0));
                    d.add_message(interned::kStack, message([&](pbf_writer& s) {
                                    s.add_uint64(1, kUint64Max);
                                    s.add_packed_uint64(2, packed.begin(), packed.end());
                                    s.add_uint64(2, 2);
                                    s.add_uint64(2, 99);  // declared nowhere
                                  }));
                  }));
  });
  file.packet([&](pbf_writer& p) {
    p.add_message(packet::kSample, message([](pbf_writer& s) { s.add_uint64(4, 1); }));
  });
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(dump(trace), HasSubstr("native sample 5 10/11 1 gil 0: outer(a.cc:0) inner(:0) "
                                     "inner(:0)\n"));
  EXPECT_EQ(trace.samples.size(), 1U);
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 2U);
}

TEST(Reader, TakesPseudoFramesOffAtTheInnerEndOnly) {
  const std::string bytes = bytes_of([](Writer& w) {
    const FrameHandle gil = w.frame("[gil]", "", 0);
    const FrameHandle disk = w.frame("[disk]", "", 0);
    const FrameHandle f = w.frame("f", "", 0);
    for (const std::vector<FrameHandle>& frames :
         {std::vector{gil, disk, f}, {f, gil}, {f, disk}, {f, gil, disk}, {f, disk, gil}, {}}) {
      w.sample(1, 1, kBaseForTest, w.stack(frames), SampleState::kRunning, false);
    }
  });
  const Trace trace = read_ok(bytes);
  std::vector<std::size_t> depths;
  for (const StackId stack : trace.samples.stack)
    depths.push_back(trace.stacks.at(stack).size());
  EXPECT_THAT(depths, ElementsAre(3, 1, 1, 1, 2, 0));
  EXPECT_THAT(trace.samples.holds_gil, ElementsAre(0, 1, 0, 1, 1, 0));
  EXPECT_THAT(trace.samples.state,
              ElementsAre(SampleState::kRunning, SampleState::kRunning, SampleState::kDisk,
                          SampleState::kDisk, SampleState::kRunning, SampleState::kRunning));
}

std::string clock(std::uint32_t id, std::uint64_t time, bool is_incremental = false,
                  std::uint64_t unit_ns = 0) {
  return message([&](pbf_writer& c) {
    c.add_uint32(1, id);
    c.add_uint64(2, time);
    if (is_incremental) c.add_bool(3, true);
    if (unit_ns != 0) c.add_uint64(4, unit_ns);
  });
}

File& add_clocks(File& file, std::uint32_t sequence, const std::vector<std::string>& clocks,
                 std::uint32_t default_clock = 0) {
  return file.packet([&](pbf_writer& p) {
    p.add_uint32(packet::kSequence, sequence);
    p.add_message(packet::kClockSnapshot, message([&](pbf_writer& s) {
                    for (const std::string& one : clocks)
                      s.add_message(1, one);
                  }));
    if (default_clock != 0) {
      p.add_message(packet::kDefaults,
                    message([&](pbf_writer& d) { d.add_uint32(58, default_clock); }));
    }
  });
}

File& instant_on(File& file, std::uint32_t sequence, std::uint64_t time, std::uint32_t clock_id) {
  return file.packet([&](pbf_writer& p) {
    p.add_uint32(packet::kSequence, sequence);
    p.add_uint64(packet::kTimestamp, time);
    if (clock_id != 0) p.add_uint32(packet::kClock, clock_id);
    p.add_message(packet::kEvent,
                  message([](pbf_writer& e) { e.add_enum(event::kType, event::kInstant); }));
  });
}

TEST(Reader, RelatesClocksToBootTime) {
  File file;
  add_clocks(file, 1, {clock(6, 10'000), clock(3, 4'000)});
  instant_on(file, 1, 4'500, 3);  // monotonic
  instant_on(file, 2, 3'900, 3);  // from another sequence, before the snapshot
  instant_on(file, 1, 7, 0);      // no default: boot time
  instant_on(file, 1, 8, 6);      // boot time by name
  instant_on(file, 1, 9, 77);     // a clock nobody declared
  add_clocks(file, 1, {clock(6, 20'000), clock(3, 5'000)});
  instant_on(file, 1, 5'001, 3);
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.instants.time_ns, ElementsAre(10'500, 9'900, 7, 8, 9, 20'001));
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 1U);
}

TEST(Reader, KeepsTheOwnClocksOfSequencesApart) {
  File file;
  add_clocks(file, 1, {clock(6, 1'000), clock(64, 0)}, 64);
  add_clocks(file, 2, {clock(6, 2'000), clock(64, 0)}, 64);
  instant_on(file, 1, 5, 0);
  instant_on(file, 2, 5, 0);
  instant_on(file, 3, 5, 64);
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.instants.time_ns, ElementsAre(1'005, 2'005, 5));
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 1U);
}

TEST(Reader, AddsUpIncrementalClocks) {
  File file;
  add_clocks(file, 1, {clock(6, 1'000'000), clock(65, 100, true, 1000)}, 65);
  instant_on(file, 1, 0, 0);
  instant_on(file, 1, 2, 0);
  instant_on(file, 1, 999, 6);  // another clock does not move it
  instant_on(file, 1, 3, 0);
  // Nor does a packet without an event stand still.
  file.packet([](pbf_writer& p) {
    p.add_uint32(packet::kSequence, 1);
    p.add_uint64(packet::kTimestamp, 10);
    p.add_message(packet::kDescriptor, message([](pbf_writer& d) { d.add_uint64(1, 5); }));
  });
  instant_on(file, 1, 1, 0);
  EXPECT_THAT(read_ok(file.bytes).instants.time_ns,
              ElementsAre(1'000'000, 1'002'000, 999, 1'005'000, 1'016'000));
}

TEST(Reader, IgnoresClocksWithoutBootTime) {
  File file;
  add_clocks(file, 1, {clock(3, 4'000)}, 3);
  instant_on(file, 1, 4'500, 0);
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.instants.time_ns, ElementsAre(4'500));
  EXPECT_EQ(count_of(trace, trace_unknown_reference), 1U);
}

TEST(Reader, SurvivesClocksThatWrap) {
  File file;
  add_clocks(file, 1, {clock(6, kUint64Max), clock(64, kUint64Max, true, kUint64Max)}, 64);
  for (int i = 0; i < 4; ++i)
    instant_on(file, 1, kUint64Max, 0);
  instant_on(file, 1, kUint64Max, 6);
  EXPECT_EQ(read_ok(file.bytes).instants.size(), 5U);
}

TEST(Reader, UsesTheDefaultTrackOfASequence) {
  File file;
  file.packet([](pbf_writer& p) {
    p.add_uint32(packet::kSequence, 1);
    p.add_message(packet::kDefaults, message([](pbf_writer& d) {
                    d.add_message(11, message([](pbf_writer& e) { e.add_uint64(11, 42); }));
                  }));
    p.add_message(packet::kDescriptor, message([](pbf_writer& d) {
                    d.add_uint64(1, 42);
                    d.add_string(2, "default");
                  }));
  });
  instant_on(file, 1, 1, 0);
  instant_on(file, 2, 2, 0);
  const Trace trace = read_ok(file.bytes);
  EXPECT_EQ(trace.str(trace.tracks[trace.instants.track[0].raw].name), "default");
  EXPECT_NE(trace.instants.track[0], trace.instants.track[1]);
}

TEST(Reader, CountsEndsWithoutABegin) {
  File file;
  const auto slice = [&](std::uint64_t track, std::uint64_t type, std::uint64_t time) {
    file.event(1, time, [&](pbf_writer& e) {
      e.add_enum(event::kType, static_cast<std::int32_t>(type));
      e.add_uint64(event::kTrack, track);
    });
  };
  slice(1, event::kEnd, 1);
  slice(1, event::kBegin, 2);
  slice(2, event::kEnd, 3);  // another track
  slice(1, event::kEnd, 4);
  slice(1, event::kEnd, 5);
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(2));
  EXPECT_EQ(count_of(trace, trace_end_without_begin), 3U);
  EXPECT_FALSE(trace.is_lossy());  // a notice, as at the begin of every recording
}

TEST(Reader, JoinsTheArgumentsOfBeginAndEnd) {
  const std::string bytes = bytes_of([](Writer& w) {
    const TrackHandle track = w.custom_track({}, "t");
    const auto arg = [&](std::uint64_t value) {
      return std::array{Arg::uint(w.name("a"), value), Arg::uint(w.name("b"), value)};
    };
    w.slice_begin(track, kBaseForTest, w.name("outer"), {}, arg(1));
    w.slice_begin(track, kBaseForTest, w.name("inner"), {}, arg(2));
    w.slice_end(track, kBaseForTest, arg(3));
    w.slice_end(track, kBaseForTest, arg(4));
    w.slice_begin(track, kBaseForTest, w.name("plain"), {});
    w.slice_end(track, kBaseForTest, arg(5));
  });
  const Trace trace = read_ok(bytes);
  EXPECT_THAT(dump(trace), AllOf(HasSubstr("'outer' '' a=u1 b=u1 a=u4 b=u4\n"),
                                 HasSubstr("'inner' '' a=u2 b=u2 a=u3 b=u3\n"),
                                 HasSubstr("'plain' '' a=u5 b=u5\n")));
  const ArgValue* found = trace.slice_arg(0, trace.strings.find("b"));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->u64, 1U);
  EXPECT_EQ(trace.slice_arg(0, trace.strings.find("outer")), nullptr);
}

TEST(Reader, DoesNotLetAFileHideWhatReadingItLost) {
  std::string bytes = bytes_of([](Writer& w) {
    w.loss(trace_truncated_tail, 0, kBaseForTest);
    w.loss({"", Severity::kInfo, Origin::kCapture, ""}, 3, kBaseForTest);
  });
  bytes += '\x0a';
  const Trace trace = read_ok(bytes);
  EXPECT_EQ(trace.losses.at("trace_truncated_tail").count, 1U);
  EXPECT_EQ(trace.losses.at("").count, 3U);
}

TEST(Reader, TakesALossOfUnknownSeverityAsDataLoss) {
  const Trace trace = read_ok(bytes_of([](Writer& w) {
    const std::array args{Arg::str(w.name("stat"), "odd"), Arg::sint(w.name("count"), 2),
                          Arg::str(w.name("severity"), "catastrophe")};
    w.instant(w.custom_track({}, "t"), kBaseForTest, w.name("loss"), w.category("kansoku.loss"),
              args);
  }));
  EXPECT_EQ(trace.losses.at("odd").severity, Severity::kDataLoss);
  EXPECT_EQ(trace.losses.at("odd").count, 2U);
  EXPECT_TRUE(trace.is_lossy());
}

TEST(Reader, TakesProcessLabelsThatMakeNoSense) {
  File file;
  file.packet([](pbf_writer& p) {
    p.add_message(packet::kDescriptor, message([](pbf_writer& d) {
                    d.add_message(3, message([](pbf_writer& t) {
                                    t.add_int32(1, -5);
                                    for (const char* label :
                                         {"rank", "rank=", "=3", "rank=x", "rank=99999999999999",
                                          "local_rank=-7", "world_size=4", "world_size=0x9",
                                          "job==", "color=red"}) {
                                      t.add_string(8, label);
                                    }
                                  }));
                  }));
  });
  const Trace trace = read_ok(file.bytes);
  const Process& process = trace.processes.at(0);
  EXPECT_EQ(process.pid, -5);
  EXPECT_EQ(process.rank, kNoRank);
  EXPECT_EQ(process.local_rank, -7);
  EXPECT_EQ(process.world_size, 4);
  EXPECT_EQ(trace.str(process.job), "=");
}

TEST(Reader, ReadsWakingLikeWakeup) {
  File file;
  file.packet([](pbf_writer& p) {
    p.add_message(
        packet::kFtrace, message([](pbf_writer& f) {
          for (const std::uint32_t field : {17U, 20U}) {
            f.add_message(2, message([&](pbf_writer& e) {
                            e.add_uint64(1, field);
                            e.add_uint32(2, 9);
                            e.add_message(field, message([](pbf_writer& w) { w.add_int32(2, 7); }));
                          }));
          }
          f.add_uint32(1, 6);  // the processor may come last
          f.add_message(2, message([](pbf_writer& e) {
                          e.add_uint64(1, 30);
                          e.add_message(4, message([](pbf_writer& s) { s.add_int32(2, 1); }));
                        }));
        }));
  });
  const Trace trace = read_ok(file.bytes);
  EXPECT_THAT(trace.wakes.time_ns, ElementsAre(17, 20));
  EXPECT_THAT(trace.wakes.tid, ElementsAre(7, 7));
  EXPECT_THAT(trace.wakes.waker_tid, ElementsAre(9, 9));
  EXPECT_THAT(trace.switches.cpu, ElementsAre(6));
}

TEST(Reader, MixesCompressedAndPlainPackets) {
  const std::string one = File().instant(1, "one").bytes;
  const std::string two = File().instant(2, "two").bytes;
  const Trace trace = read_ok(compressed(one) + two + compressed(one + two));
  EXPECT_THAT(names_of(trace, trace.instants.name), ElementsAre("one", "two", "one", "two"));
}

TEST(Reader, ReadsTheSameTwice) {
  const std::string bytes = bytes_of(write_everything);
  EXPECT_EQ(dump(read_ok(bytes)), dump(read_ok(bytes)));
}

TEST(StringPool, KeepsEachTextOnceAndItsViewForEver) {
  StringPool pool;
  EXPECT_EQ(pool.intern(""), StringId{});
  const StringId first = pool.intern("first");
  const std::string_view view = pool.view(first);
  for (int i = 0; i < 10'000; ++i)
    static_cast<void>(pool.intern(std::to_string(i)));
  EXPECT_EQ(pool.view(first).data(), view.data());
  EXPECT_EQ(pool.intern("first"), first);
  EXPECT_EQ(pool.find("first"), first);
  EXPECT_EQ(pool.find("nobody wrote this"), StringId{});
  EXPECT_EQ(pool.size(), 10'002U);
  const StringPool moved = std::move(pool);
  EXPECT_EQ(moved.find("9999"), moved.find("9999"));
  EXPECT_EQ(moved.view(first), "first");
}

}  // namespace
}  // namespace kansoku::trace
