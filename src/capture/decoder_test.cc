// SPDX-License-Identifier: Apache-2.0
#include "capture/decoder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "trace/reader.h"

namespace kansoku::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::uint32_t kPid = 100;
constexpr std::uint32_t kTid = 101;

CaptureDef capture(const std::string& name, const std::string& expression) {
  return parse_capture(name, expression).value();
}

class DecoderTest : public ::testing::Test {
 protected:
  DecoderTest() : writer_(trace::Writer::create(sink_, boot_time(0)).value()) {}

  std::uint32_t probe(const std::string& title, ProbeKind kind = ProbeKind::kCall,
                      std::vector<CaptureDef> captures = {}) {
    ProbeInfo info;
    info.title = title;
    info.category = "category";
    info.kind = kind;
    info.captures = std::move(captures);
    probes_.push_back(std::move(info));
    return static_cast<std::uint32_t>(probes_.size() - 1);
  }

  static wire_event head(int kind, std::uint64_t time, std::uint32_t probe = 0,
                         int layout = WIRE_PLAIN) {
    wire_event event{};
    event.t_boot_ns = time;
    event.tgid = kPid;
    event.tid = kTid;
    event.probe = probe;
    event.kind = static_cast<std::uint8_t>(kind);
    event.layout = static_cast<std::uint8_t>(layout);
    return event;
  }
  static wire_text text(int kind, std::uint64_t time, std::uint32_t probe,
                        const std::vector<std::uint64_t>& args, const char* text = nullptr) {
    wire_text record{};
    record.head = head(kind, time, probe, text == nullptr ? WIRE_WITH_ARGS : WIRE_WITH_TEXT);
    std::copy(args.begin(), args.end(), record.args);
    if (text != nullptr) std::memcpy(record.text, text, ::strnlen(text, sizeof(record.text)));
    return record;
  }
  static wire_switch change(int kind, std::uint64_t time, std::uint32_t next_tgid = 0,
                            std::uint32_t next_tid = 0) {
    wire_switch record{};
    record.head = head(kind, time);
    record.next_tgid = next_tgid;
    record.next_tid = next_tid;
    record.cpu = 3;
    record.prev_state = 2;
    std::memset(record.prev_comm, 'p', sizeof(record.prev_comm));  // no NUL
    std::memset(record.next_comm, 'n', sizeof(record.next_comm));
    return record;
  }

  // The first `bytes` of a record, at an address as aligned as those of the ring.
  template <class T>
  void feed(const T& record, std::size_t bytes = sizeof(T)) {
    alignas(8) std::array<std::byte, sizeof(wire_stack)> aligned{};
    std::memcpy(aligned.data(), &record, std::min(bytes, sizeof(T)));
    decoder_.on_record(std::span(aligned).first(bytes));
  }
  void begin(std::uint32_t probe, std::uint64_t time) { feed(head(WIRE_BEGIN, time, probe)); }
  void end(std::uint32_t probe, std::uint64_t time) { feed(head(WIRE_END, time, probe)); }

  trace::Trace& trace() {
    EXPECT_TRUE(writer_->flush());
    trace_ = trace::read_trace(as_bytes(sink_.data())).value();
    return trace_;
  }
  // "title 10+5 key=value" a slice.
  std::vector<std::string> slices() {
    const trace::Trace& t = trace();
    std::vector<std::string> out;
    for (std::size_t i = 0; i < t.slices.size(); ++i) {
      out.push_back(fmt::format("{} {}+{}{}", t.str(t.slices.name[i]), t.slices.start_ns[i],
                                t.slices.duration_ns[i],
                                args(t.slices.arg_begin[i], t.slices.arg_count[i])));
    }
    return out;
  }
  std::vector<std::string> instants() {
    const trace::Trace& t = trace();
    std::vector<std::string> out;
    for (std::size_t i = 0; i < t.instants.size(); ++i) {
      out.push_back(fmt::format("{} {}{}", t.str(t.instants.name[i]), t.instants.time_ns[i],
                                args(t.instants.arg_begin[i], t.instants.arg_count[i])));
    }
    return out;
  }
  [[nodiscard]] std::string args(std::uint32_t first, std::uint32_t count) const {
    std::string out;
    for (std::uint32_t i = first; i < first + count; ++i) {
      const trace::ArgValue& arg = trace_.args[i];
      out += fmt::format(" {}=", trace_.str(arg.key));
      if (arg.kind == trace::ArgValue::Kind::kString) out += trace_.str(arg.text);
      if (arg.kind == trace::ArgValue::Kind::kInt) out += fmt::format("{}", arg.i64);
      if (arg.kind == trace::ArgValue::Kind::kUint) out += fmt::format("{}u", arg.u64);
    }
    return out;
  }
  [[nodiscard]] std::uint64_t bad() const { return decoder_.counters().bad_records; }

  MemorySink sink_;
  std::unique_ptr<trace::Writer> writer_;
  ProbeTable probes_;
  sys::Procfs procfs_{"/no/such/folder"};
  Decoder decoder_{*writer_, probes_, procfs_};
  trace::Trace trace_;
};

TEST_F(DecoderTest, MakesSlicesOfPairsAndOfWholeCalls) {
  const auto outer = probe("outer");
  const auto inner = probe("inner");
  begin(outer, 10);
  begin(inner, 12);
  end(inner, 15);
  end(outer, 20);
  feed(wire_slice{head(WIRE_SLICE, 30, inner), 7});
  EXPECT_THAT(slices(), ElementsAre("outer 10+10", "inner 12+3", "inner 30+7"));
  EXPECT_EQ(trace_.tracks[trace_.slices.track[0].raw].pid, static_cast<std::int32_t>(kPid));
  EXPECT_EQ(trace_.tracks[trace_.slices.track[0].raw].tid, static_cast<std::int32_t>(kTid));
  EXPECT_EQ(trace_.str(trace_.slices.category[0]), "category");
  EXPECT_EQ(decoder_.counters().records, 5U);
  EXPECT_EQ(bad(), 0U);
}

TEST_F(DecoderTest, ReadsArgumentsAsTheirTypeSays) {
  const auto call =
      probe("call", ProbeKind::kCall,
            {capture("a", "arg0"), capture("b", "arg1:u32"), capture("c", "arg2:i32"),
             capture("d", "arg3:i64"), capture("t", "arg4:str"), capture("r", "ret:i32")});
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  feed(text(WIRE_BEGIN, 1, call, {all, all, all, all, 0, 99}, "hello"));
  feed(text(WIRE_END, 2, call, {5, 5, 5, 5, 5, 0xfffffff0}));
  EXPECT_THAT(slices(), ElementsAre("call 1+1 a=18446744073709551615u b=4294967295u c=-1 d=-1 "
                                    "t=hello r=-16"));
}

TEST_F(DecoderTest, TakesTextWithoutAnEnd) {
  const auto call = probe("call", ProbeKind::kInstant, {capture("t", "arg0:str")});
  feed(text(WIRE_INSTANT, 1, call, {}, std::string(200, 'x').c_str()));
  EXPECT_THAT(instants(), ElementsAre("call 1 t=" + std::string(WIRE_TEXT_BYTES, 'x')));
}

TEST_F(DecoderTest, CountsArgumentsThatCouldNotBeRead) {
  const auto call = probe("call", ProbeKind::kCall,
                          {capture("a", "arg0"), capture("b", "arg1"), capture("t", "arg2:str")});
  wire_text record = text(WIRE_BEGIN, 1, call, {7, 8, 0}, "text");
  record.head.failed_args = 0b101;
  feed(record);
  end(call, 2);
  // The text was not read at all: its record has numbers only.
  feed(text(WIRE_BEGIN, 3, call, {7, 8, 0}));
  end(call, 4);
  EXPECT_THAT(slices(), ElementsAre("call 1+1 b=8u", "call 3+1 a=7u b=8u"));
  EXPECT_EQ(decoder_.counters().unread_args, 3U);
}

TEST_F(DecoderTest, CountsEndsWithoutABegin) {
  const auto call = probe("call");
  const auto other = probe("other");
  end(call, 1);
  begin(call, 2);
  end(other, 3);
  end(call, 4);
  end(call, 5);
  EXPECT_THAT(slices(), ElementsAre("call 2+2"));
  EXPECT_EQ(decoder_.counters().unmatched_ends, 3U);
}

TEST_F(DecoderTest, EndsInnerCallsWhoseEndWasLost) {
  const auto outer = probe("outer");
  const auto inner = probe("inner");
  begin(outer, 1);
  begin(inner, 2);
  begin(inner, 3);
  end(outer, 9);
  begin(inner, 10);
  end(inner, 11);
  EXPECT_THAT(slices(), ElementsAre("outer 1+8", "inner 2+7", "inner 3+6", "inner 10+1"));
  EXPECT_EQ(decoder_.counters().unmatched_ends, 0U);
}

TEST_F(DecoderTest, KeepsThreadsApart) {
  const auto call = probe("call");
  wire_event first = head(WIRE_BEGIN, 1, call);
  wire_event second = head(WIRE_BEGIN, 2, call);
  second.tid = kTid + 1;
  wire_event other_process = head(WIRE_END, 3, call);
  other_process.tgid = kPid + 1;
  feed(first);
  feed(second);
  feed(other_process);
  first.kind = second.kind = WIRE_END;
  first.t_boot_ns = 10;
  second.t_boot_ns = 20;
  feed(first);
  feed(second);
  EXPECT_THAT(slices(), ElementsAre("call 1+9", "call 2+18"));
  EXPECT_EQ(decoder_.counters().unmatched_ends, 1U);
}

TEST_F(DecoderTest, LeavesOutCallsThatAreNestedTooDeep) {
  constexpr std::uint64_t kOpenMax = 512;
  const auto call = probe("call");
  const auto deep = probe("deep");
  for (std::uint64_t i = 0; i < kOpenMax - 1; ++i)
    begin(call, 1);
  begin(deep, 2);  // the last that fits
  EXPECT_EQ(decoder_.counters().too_deep, 0U);
  begin(deep, 3);
  EXPECT_EQ(decoder_.counters().too_deep, 1U);
  end(deep, 4);
  begin(deep, 5);
  EXPECT_EQ(decoder_.counters().too_deep, 1U);
  EXPECT_EQ(slices().size(), kOpenMax + 1);
}

TEST_F(DecoderTest, RefusesRecordsThatAreCutOff) {
  const auto call = probe("call", ProbeKind::kCall, {capture("t", "arg0:str")});
  const auto try_all = [&](const auto& record, std::size_t bytes_needed) {
    for (std::size_t bytes = 0; bytes <= sizeof(record); ++bytes) {
      const auto before = bad();
      feed(record, bytes);
      EXPECT_EQ(bad() - before, bytes < bytes_needed ? 1U : 0U)
          << record.head.kind << " cut to " << bytes;
    }
  };
  try_all(wire_slice{head(WIRE_SLICE, 1, call), 1}, sizeof(wire_slice));
  for (const int kind : {WIRE_BEGIN, WIRE_END, WIRE_INSTANT}) {
    wire_text record = text(kind, 1, call, {1, 2}, "x");
    try_all(record, sizeof(wire_text));
    record.head.layout = WIRE_WITH_ARGS;
    try_all(record, sizeof(wire_args));
    record.head.layout = WIRE_PLAIN;
    try_all(record, sizeof(wire_event));
  }
  for (const int kind : {WIRE_SWITCH, WIRE_WAKE, WIRE_FORK})
    try_all(change(kind, 1), sizeof(wire_switch));
  for (const int kind : {WIRE_EXEC, WIRE_EXIT})
    try_all(change(kind, 1), sizeof(wire_event));
  wire_stack stack{};
  stack.head = head(WIRE_STACK, 1);
  stack.frame_count = 1;
  try_all(stack, sizeof(wire_stack));
}

TEST_F(DecoderTest, RefusesLayoutsThatDoNotExist) {
  const auto call = probe("call", ProbeKind::kCall, {capture("a", "arg0")});
  for (int layout = 3; layout < 256; ++layout) {
    wire_text record = text(WIRE_BEGIN, 1, call, {1}, "x");
    record.head.layout = static_cast<std::uint8_t>(layout);
    feed(record);
  }
  EXPECT_EQ(bad(), 253U);
  EXPECT_THAT(slices(), IsEmpty());
}

TEST_F(DecoderTest, RefusesKindsThatDoNotExist) {
  probe("call");
  for (const int kind : {0, 13, 14, 128, 255}) {
    const auto before = bad();
    wire_stack record{};
    record.head = head(kind, 1);
    feed(record);
    EXPECT_EQ(bad(), before + 1) << kind;
  }
  EXPECT_THAT(slices(), IsEmpty());
  EXPECT_THAT(instants(), IsEmpty());
}

TEST_F(DecoderTest, RefusesProbesThatDoNotExist) {
  const auto last = probe("call");
  for (const std::uint32_t index : {last + 1, last + 2, 0xffffffffU}) {
    const auto before = bad();
    for (const int kind : {WIRE_BEGIN, WIRE_END, WIRE_INSTANT})
      feed(head(kind, 1, index));
    feed(wire_slice{head(WIRE_SLICE, 1, index), 1});
    EXPECT_EQ(bad(), before + 4) << index;
  }
  wire_switch record = change(WIRE_SWITCH, 1);
  record.head.probe = 0xffffffff;  // means nothing there
  feed(record);
  EXPECT_EQ(bad(), 12U);
}

TEST_F(DecoderTest, RefusesTimesThatCannotBe) {
  const auto call = probe("call");
  constexpr std::uint64_t kTimeMax = (1ULL << 62) - 1;
  feed(wire_slice{head(WIRE_SLICE, kTimeMax, call), kTimeMax});
  EXPECT_EQ(bad(), 0U);
  feed(wire_slice{head(WIRE_SLICE, kTimeMax + 1, call), 0});
  feed(wire_slice{head(WIRE_SLICE, 0, call), kTimeMax + 1});
  feed(head(WIRE_BEGIN, std::numeric_limits<std::uint64_t>::max(), call));
  EXPECT_EQ(bad(), 3U);
  EXPECT_EQ(slices().size(), 1U);
}

TEST_F(DecoderTest, AddsNotesToTheEnclosingCall) {
  const auto call = probe("call", ProbeKind::kCall, {capture("r", "ret")});
  const auto note =
      probe("note", ProbeKind::kAnnotate, {capture("x", "arg0:i32"), capture("seq", "ret:u32")});
  feed(text(WIRE_BEGIN, 1, note, {1, 0}));  // nothing encloses it
  feed(text(WIRE_END, 2, note, {0, 1}));
  begin(call, 10);
  feed(text(WIRE_BEGIN, 11, note, {0xffffffff, 0}));
  feed(text(WIRE_END, 12, note, {0, 5}));
  feed(text(WIRE_END, 20, call, {3}));
  EXPECT_THAT(slices(), ElementsAre("call 10+10 r=3u x=-1 seq=5u"));
  EXPECT_EQ(decoder_.counters().unmatched_ends, 0U);
}

TEST_F(DecoderTest, KeepsOnlySoManyNotes) {
  const auto call = probe("call");
  const auto note = probe("note", ProbeKind::kAnnotate, {capture("seq", "ret")});
  begin(call, 1);
  for (std::uint64_t i = 0; i < 100; ++i)
    feed(text(WIRE_END, 2, note, {i}));
  end(call, 3);
  EXPECT_THAT(slices(), ElementsAre("call 1+2 seq=0u seq=1u seq=2u seq=3u seq=4u seq=5u"));
}

TEST_F(DecoderTest, DerivesBytesAndCountsCalls) {
  const auto gloo = probe("gloo", ProbeKind::kCall,
                          {capture("elements", "arg0"), capture("element_bytes", "arg1")});
  const auto nccl =
      probe("nccl", ProbeKind::kCall,
            {capture("count", "arg0"), capture("nccl_type", "arg1:u32"), capture("pg", "arg2")});
  probes_[gloo].bytes = {"elements", "element_bytes"};
  probes_[nccl].bytes = {"count"};
  probes_[nccl].type = "nccl_type";
  probes_[nccl].type_values = {{"int8", 1}, {"float16", 2}};
  probes_[nccl].ordinal_by = "pg";
  const auto call = [&](std::uint32_t index, const std::vector<std::uint64_t>& values) {
    feed(text(WIRE_BEGIN, 1, index, values));
    end(index, 2);
  };
  call(gloo, {10, 8});
  call(nccl, {10, 1, 0xa});
  call(nccl, {10, 0, 0xb});
  call(nccl, {10, 2, 0xa});  // a type that the pack does not know
  EXPECT_THAT(slices(),
              ElementsAre("gloo 1+1 elements=10u element_bytes=8u bytes=80u",
                          "nccl 1+1 count=10u nccl_type=1u pg=10u bytes=20u dtype=float16 seq=0u",
                          "nccl 1+1 count=10u nccl_type=0u pg=11u bytes=10u dtype=int8 seq=0u",
                          "nccl 1+1 count=10u nccl_type=2u pg=10u seq=1u"));
}

TEST_F(DecoderTest, TellsPlacesInProcessGroups) {
  const std::vector<CaptureDef> captures{capture("pg", "arg0"), capture("rank", "arg1:u32"),
                                         capture("size", "arg2:u32")};
  const auto call = probe("call", ProbeKind::kCall, captures);
  const auto made = probe("made", ProbeKind::kInstant, captures);
  probes_[call].group = probes_[made].group = {"pg", "rank", "size"};
  feed(text(WIRE_INSTANT, 1, made, {0xa, 3, 4}));
  for (const std::vector<std::uint64_t>& values : std::vector<std::vector<std::uint64_t>>{
           {0xb, 1, 2}, {0xb, 0, 2}, {0xc, 0, 0}, {0xd, 4, 4}, {0xe, 0, 1U << 21U}}) {
    feed(text(WIRE_BEGIN, 1, call, values));
    end(call, 2);
  }
  const auto pid = static_cast<std::int32_t>(head(WIRE_BEGIN, 1, call).tgid);
  EXPECT_THAT(decoder_.take_seats(),
              ElementsAre(GroupSeat{pid, 0xa, 3, 4}, GroupSeat{pid, 0xb, 0, 2}))
      << "what a group says last; none of what cannot be";
  EXPECT_THAT(decoder_.take_seats(), IsEmpty());
  EXPECT_THAT(slices(),
              ElementsAre("call 1+1 pg=11u rank=1u size=2u", "call 1+1 pg=11u rank=0u size=2u",
                          "call 1+1 pg=12u", "call 1+1 pg=13u", "call 1+1 pg=14u"))
      << "of another layout";
}

TEST_F(DecoderTest, TellsTheNameOfAGroupWhereItHasOne) {
  CaptureDef name = capture("name", "arg3:str");
  const auto call = probe(
      "call", ProbeKind::kCall,
      {capture("pg", "arg0"), capture("rank", "arg1:u32"), capture("size", "arg2:u32"), name});
  probes_[call].group = {"pg", "rank", "size", "name"};
  feed(text(WIRE_BEGIN, 1, call, {0xa, 1, 2, 1}, "stage"));
  end(call, 2);
  feed(text(WIRE_BEGIN, 3, call, {0xa, 1, 0, 1}, "junk"));  // of another layout
  end(call, 4);
  feed(text(WIRE_BEGIN, 5, call, {0xa, 1, 0, 1}));
  end(call, 6);
  EXPECT_EQ(decoder_.counters().unread_args, 0U);
  feed(text(WIRE_BEGIN, 7, call, {0xa, 1, 2, 1}));  // a name that could not be read
  end(call, 8);
  EXPECT_EQ(decoder_.counters().unread_args, 1U);
  EXPECT_THAT(slices(), ElementsAre("call 1+1 pg=10u rank=1u size=2u name=stage", "call 3+1 pg=10u",
                                    "call 5+1 pg=10u", "call 7+1 pg=10u rank=1u size=2u"));
}

TEST_F(DecoderTest, CountsCallsOfEachProcess) {
  const auto call = probe("call");
  probes_[call].ordinal_by = "";
  for (const std::uint32_t pid : {1U, 1U, 2U, 1U}) {
    wire_event record = head(WIRE_BEGIN, 1, call);
    record.tgid = pid;
    feed(record);
    record.kind = WIRE_END;
    feed(record);
  }
  EXPECT_THAT(slices(), ElementsAre("call 1+0 seq=0u", "call 1+0 seq=1u", "call 1+0 seq=0u",
                                    "call 1+0 seq=2u"));
}

TEST_F(DecoderTest, ReadsScopes) {
  const auto scope =
      probe("scope", ProbeKind::kScope,
            {capture("op", "arg0"), capture("scope", "arg1:str"), capture("arg_count", "arg2")});
  constexpr std::uint64_t kEnter = 0x10;
  constexpr std::uint64_t kExit = 0x20;
  feed(text(WIRE_INSTANT, 1, scope, {kExit, 0, 1}));  // no scope is open
  feed(text(WIRE_INSTANT, 2, scope, {kEnter, 0, 2}, "step"));
  feed(text(WIRE_INSTANT, 3, scope, {kEnter, 0, 2}, "Optimizer.step#SGD.step"));
  feed(text(WIRE_INSTANT, 4, scope, {0x30, 0, 3}, "other op"));      // takes three arguments
  feed(text(WIRE_INSTANT, 5, scope, {kEnter, 0, 1}));                // an enter is no exit
  feed(text(WIRE_INSTANT, 6, scope, {0x40, 0, 2}, "\x01\x02\x03"));  // not printable
  feed(text(WIRE_INSTANT, 7, scope, {0x40, 0, 2}, "ab"));            // too short
  feed(text(WIRE_INSTANT, 8, scope, {kExit, 0, 1}));
  feed(text(WIRE_INSTANT, 9, scope, {kExit, 0, 1}));
  wire_text unread = text(WIRE_INSTANT, 10, scope, {kEnter, 0, 2}, "unread");
  unread.head.failed_args = 0b010;
  feed(unread);
  feed(head(WIRE_INSTANT, 11, scope));  // without its arguments
  feed(text(WIRE_INSTANT, 12, scope, {kExit, 0, 1}));
  EXPECT_THAT(slices(),
              ElementsAre("step 2+7", "Optimizer.step#SGD.step 3+5", "unnamed scope 10+2"));
  EXPECT_EQ(bad(), 0U);
}

TEST_F(DecoderTest, IgnoresAScopeProbeThatDoesNotCaptureWhatItNeeds) {
  const auto scope = probe("scope", ProbeKind::kScope, {capture("op", "arg0")});
  feed(text(WIRE_INSTANT, 1, scope, {1, 0, 2}, "step"));
  EXPECT_THAT(slices(), IsEmpty());
}

TEST_F(DecoderTest, EndsAScopeThatACallLeft) {
  const auto call = probe("call");
  const auto scope =
      probe("scope", ProbeKind::kScope,
            {capture("op", "arg0"), capture("scope", "arg1:str"), capture("arg_count", "arg2")});
  begin(call, 1);
  feed(text(WIRE_INSTANT, 2, scope, {1, 0, 2}, "scope"));
  end(call, 5);
  feed(text(WIRE_INSTANT, 6, scope, {2, 0, 1}));
  EXPECT_THAT(slices(), ElementsAre("call 1+4", "scope 2+3"));
}

TEST_F(DecoderTest, ReadsSystemCalls) {
  const auto call = probe("read");
  probes_[call].is_syscall = true;
  wire_args record{};
  record.head = head(WIRE_BEGIN, 1, call, WIRE_WITH_ARGS);
  record.args[0] = 3;
  record.args[2] = 4096;
  feed(record);
  record.head.kind = WIRE_END;
  record.head.t_boot_ns = 9;
  record.args[0] = static_cast<std::uint64_t>(-11);
  feed(record);
  EXPECT_THAT(slices(), ElementsAre("read 1+8 arg0=3u arg2=4096u result=-11"));
}

TEST_F(DecoderTest, PutsEventsOfTheHostOnATrackOfTheirOwn) {
  const auto host = probe("tcp_reset", ProbeKind::kInstant);
  probes_[host].is_host = true;
  feed(head(WIRE_INSTANT, 1, host));
  feed(head(WIRE_INSTANT, 2, host));
  EXPECT_THAT(instants(), ElementsAre("tcp_reset 1", "tcp_reset 2"));
  const trace::Track& track = trace_.tracks[trace_.instants.track[0].raw];
  EXPECT_EQ(trace_.str(track.name), "host");
  EXPECT_EQ(trace_.instants.track[0], trace_.instants.track[1]);
}

TEST_F(DecoderTest, ReadsTheScheduler) {
  feed(change(WIRE_SWITCH, 5, 200, 201));
  feed(change(WIRE_WAKE, 6, 200, 202));
  const trace::Trace& read = trace();
  EXPECT_THAT(read.switches.prev_tid, ElementsAre(static_cast<std::int32_t>(kTid)));
  EXPECT_THAT(read.switches.next_tid, ElementsAre(201));
  EXPECT_THAT(read.switches.prev_state, ElementsAre(2));
  EXPECT_THAT(read.switches.cpu, ElementsAre(3));
  EXPECT_THAT(read.wakes.tid, ElementsAre(202));
  EXPECT_THAT(read.wakes.waker_tid, ElementsAre(static_cast<std::int32_t>(kTid)));
}

// Those that are not observed, too: who has the processor while the job waits for it.
TEST_F(DecoderTest, NamesTheThreadsThatTheSchedulerTellsOf) {
  wire_switch record = change(WIRE_SWITCH, 5, 900, 901);
  std::memcpy(record.next_comm, "sshd", 5);
  feed(record);
  std::memcpy(record.next_comm, "bash", 5);  // it called exec
  feed(record);
  record.next_tid = 0;  // no thread: the processor is idle
  feed(record);
  std::vector<std::string> names;
  for (const trace::Track& track : trace().tracks)
    if (track.kind == trace::TrackKind::kThread)
      names.push_back(fmt::format("{}/{} {}", track.pid, track.tid, trace_.str(track.name)));
  EXPECT_THAT(names, UnorderedElementsAre(fmt::format("{}/{} {}", kPid, kTid, std::string(16, 'p')),
                                          "900/901 bash"));
}

TEST_F(DecoderTest, TellsOfProcessesInOrderAndOnce) {
  feed(change(WIRE_FORK, 1, 200, 200));
  feed(head(WIRE_EXEC, 2));
  feed(head(WIRE_EXIT, 3));
  const auto events = decoder_.take_lifecycle();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, LifecycleEvent::Kind::kFork);
  EXPECT_EQ(events[0].pid, 200);
  EXPECT_EQ(events[0].parent_pid, static_cast<std::int32_t>(kPid));
  EXPECT_EQ(events[1].kind, LifecycleEvent::Kind::kExec);
  EXPECT_EQ(events[2].kind, LifecycleEvent::Kind::kExit);
  EXPECT_EQ(events[2].time, boot_time(3));
  EXPECT_THAT(decoder_.take_lifecycle(), IsEmpty());
}

TEST_F(DecoderTest, TellsWhoAskedAProcessToEnd) {
  wire_switch record = change(WIRE_SIGNAL, 5, 200, 201);
  record.prev_state = 15;
  feed(record);
  EXPECT_THAT(decoder_.take_lifecycle(), IsEmpty());
  EXPECT_THAT(decoder_.take_named_pids(), ElementsAre(static_cast<std::int32_t>(kPid)));
  const trace::Trace& read = trace();
  ASSERT_EQ(read.instants.size(), 1U);
  EXPECT_EQ(read.str(read.instants.name[0]), "asked to end");
  EXPECT_EQ(read.tracks[read.instants.track[0].raw].tid, 200);
  const auto& args = read.args;
  ASSERT_EQ(args.size(), 2U);
  EXPECT_EQ(read.str(args[0].key), "signal");
  EXPECT_EQ(args[0].u64, 15U);
  EXPECT_EQ(read.str(args[1].key), "sender");
  EXPECT_EQ(bad(), 0U);
}

TEST_F(DecoderTest, ForgetsTheCallsOfAProcessWithIt) {
  const auto outer = probe("allreduce"), inner = probe("wait");
  begin(outer, 10);
  begin(inner, 20);
  feed(head(WIRE_EXEC, 30));
  EXPECT_THAT(slices(), ElementsAre("allreduce 10+20", "wait 20+10"));
  begin(outer, 50);
  feed(head(WIRE_EXIT, 60));
  EXPECT_THAT(slices(), Contains("allreduce 50+-1"));  // it ended inside
  end(outer, 70);                                      // of a process that got the same number
  EXPECT_EQ(decoder_.counters().unmatched_ends, 1U);
}

TEST_F(DecoderTest, ForgetsOpenCallsOfProbesThatWereTakenOff) {
  const auto kept = probe("backward"), taken = probe("addmm");
  probes_[taken].is_window = true;
  begin(kept, 10);
  begin(taken, 20);
  decoder_.end_window();
  end(taken, 30);
  EXPECT_EQ(decoder_.counters().unmatched_ends, 1U);
  end(kept, 40);
  EXPECT_EQ(decoder_.counters().unmatched_ends, 1U);
}

TEST_F(DecoderTest, ASliceThatBeganBeforeItsProbesWereOnIsNone) {
  const auto taken = probe("addmm"), kept = probe("backward");
  probes_[taken].is_window = true;
  decoder_.begin_window(boot_time(20));
  feed(wire_slice{head(WIRE_SLICE, 10, taken), 50});
  feed(wire_slice{head(WIRE_SLICE, 30, taken), 5});
  feed(wire_slice{head(WIRE_SLICE, 11, kept), 60});
  EXPECT_THAT(slices(), UnorderedElementsAre("addmm 30+5", "backward 11+60"));
}

TEST_F(DecoderTest, KnowsWhoCommunicated) {
  const auto call = probe("allreduce");
  begin(call, 1);
  EXPECT_THAT(decoder_.take_communicating(), IsEmpty());
  for (const char* const category : {"collective", "message"}) {
    const auto other = probe("call");
    probes_[other].category = category;
    begin(other, 2);
    EXPECT_THAT(decoder_.take_communicating(), ElementsAre(static_cast<std::int32_t>(kPid)))
        << category;
    EXPECT_THAT(decoder_.take_communicating(), IsEmpty());
  }
}

TEST_F(DecoderTest, BelievesOnlySoManyFramesOfAStack) {
  wire_stack record{};
  record.head = head(WIRE_STACK, 1);
  for (std::uint64_t i = 0; i < WIRE_STACK_MAX; ++i)
    record.frames[i] = 0x1000 + i * 16;
  for (const std::uint32_t count : {0U, 1U, 63U, 64U, 65U, 0xffffffffU}) {
    record.frame_count = count;
    feed(record);
  }
  const trace::Trace& read = trace();
  std::vector<std::size_t> depths;
  for (const trace::StackId stack : read.samples.stack)
    depths.push_back(read.stacks.at(stack).size());
  EXPECT_THAT(depths, ElementsAre(1, 63, 64, 64, 64));
  EXPECT_THAT(read.samples.is_native, ElementsAre(1, 1, 1, 1, 1));
  EXPECT_GT(decoder_.unnamed_frames(), 0U);
  EXPECT_EQ(bad(), 0U);
}

}  // namespace
}  // namespace kansoku::capture
