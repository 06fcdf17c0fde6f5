// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "common/rng.h"
#include "trace/reader.h"
#include "trace/traces_for_test.h"

namespace kansoku::trace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kBase = kBaseForTest.time_since_epoch().count();

Trace read_back(const std::string& bytes) {
  auto trace = read_trace(as_bytes(bytes));
  EXPECT_TRUE(trace) << trace.error().what;
  EXPECT_EQ(problem_of(*trace), "");
  return std::move(trace).value();
}

Trace round_trip(const std::function<void(Writer&)>& fill, WriterOptions options = {}) {
  return read_back(bytes_of(fill, options));
}

STAT(test_stat, kNotice, kCapture, "why");

ProcessInfo info_of(std::int32_t pid, std::string_view name = {}, std::string_view text = {}) {
  ProcessInfo info;
  info.pid = pid;
  info.name = name;
  info.cmdline = info.job = info.role = text;
  return info;
}

// A sink that refuses one call, or that call and all after it.
class FailingSink final : public ByteSink {
 public:
  FailingSink(std::size_t fail_at, bool once) : fail_at_(fail_at), once_(once) {}
  Result<void> append(ByteSpan bytes) override {
    const std::size_t call = calls++;
    if (call == fail_at_ || (call > fail_at_ && !once_)) {
      return Error{Code::kLimit, fmt::format("write trace: no space left at call {}", call)};
    }
    data.append(as_text(bytes));
    return {};
  }
  std::size_t calls{0};
  std::string data;

 private:
  std::size_t fail_at_;
  bool once_;
};

TEST(Writer, KeepsOneOfEverything) {
  const std::string expected =
      "track 3 parent 4294967295 pid 0 tid 0 'kansoku'\n"
      "track 0 parent 4294967295 pid 100 tid 0 'rank 0 python'\n"
      "track 1 parent 1 pid 100 tid 100 'python'\n"
      "track 3 parent 2 pid 0 tid 0 'lane'\n"
      "track 2 parent 2 pid 0 tid 0 'memory'\n"
      "process 100 of 1 'rank 0 python' 'python train.py' job '127.0.0.1:29500' rank 0 0/2\n"
      "loss test_lost_rows 4 data_loss 'advice for the reader'\n"
      "loss test_odd_rows 2 notice 'nothing to do'\n"
      "metadata kansoku.version='1.2.3'\n"
      "from 1000000000000 to 1000000000122\n"
      "slice 1000000000010 + 30 on 2 'step' 'step'\n"
      "slice 1000000000020 + 10 on 2 'gloo::allreduce' 'collective' bytes=u18446744073709551615"
      " delta=i-9223372036854775808 ratio=f0.25 dtype='float32' result=i-1\n"
      "slice 1000000000025 + -1 on 3 'gloo::allreduce' 'collective'\n"
      "slice 1000000000050 + -1 on 2 'step' 'collective'\n"
      "instant 1000000000000 on 0 'metadata' 'kansoku.meta' key='kansoku.version'"
      " value='1.2.3'\n"
      "instant 1000000000070 on 3 'retransmit' 'tcp' reason='retry'\n"
      "instant 1000000000120 on 0 'loss' 'kansoku.loss' stat='test_lost_rows' count=u1"
      " severity='data_loss' advice='advice for the reader'\n"
      "instant 1000000000121 on 0 'loss' 'kansoku.loss' stat='test_lost_rows' count=u4"
      " severity='data_loss' advice='advice for the reader'\n"
      "instant 1000000000122 on 0 'loss' 'kansoku.loss' stat='test_odd_rows' count=u2"
      " severity='notice' advice='nothing to do'\n"
      "counter 1000000000060 on 4 1.5\n"
      "flow 77 of 1\n"
      "flow 77 of 2\n"
      "sample 1000000000100 100/100 0 gil 0: main(/app/train.py:3) forward(/app/net.py:0)"
      " matmul(:0)\n"
      "sample 1000000000100 100/101 0 gil 1:\n"
      "sample 1000000000101 100/100 1 gil 0: main(/app/train.py:3) forward(/app/net.py:0)"
      " matmul(:0)\n"
      "sample 1000000000101 100/101 1 gil 1:\n"
      "sample 1000000000102 100/100 2 gil 0: main(/app/train.py:3) forward(/app/net.py:0)"
      " matmul(:0)\n"
      "sample 1000000000102 100/101 2 gil 1:\n"
      "sample 1000000000103 100/100 3 gil 0: main(/app/train.py:3) forward(/app/net.py:0)"
      " matmul(:0)\n"
      "sample 1000000000103 100/101 3 gil 1:\n"
      "sample 1000000000104 100/100 4 gil 0: main(/app/train.py:3) forward(/app/net.py:0)"
      " matmul(:0)\n"
      "sample 1000000000104 100/101 4 gil 1:\n"
      "native sample 1000000000105 100/101 1 gil 0: main(/app/train.py:3)"
      " forward(/app/net.py:0) matmul(:0)\n"
      "switch 1000000000110 cpu 3 100 (2) -> 0\n"
      "wake 1000000000115 100 by 101\n";
  for (const int level : {0, 1, 6, 9}) {
    SCOPED_TRACE(level);
    const Trace trace = round_trip(write_everything, {.deflate_level = level});
    EXPECT_EQ(dump(trace), expected);
    EXPECT_TRUE(trace.is_lossy());
  }
}

TEST(Writer, RefusesACompressionLevelThatDoesNotExist) {
  MemorySink sink;
  const auto writer = Writer::create(sink, kBaseForTest, {.deflate_level = 13});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, Code::kUnavailable);
  EXPECT_THAT(writer.error().what, HasSubstr("level 13"));
}

TEST(Writer, KeepsCounterValuesToTheBit) {
  const std::array values{0.0,
                          -0.0,
                          0.1,
                          5e-324,
                          std::numeric_limits<double>::max(),
                          std::numeric_limits<double>::infinity(),
                          -std::numeric_limits<double>::infinity(),
                          std::nan("")};
  const Trace trace = round_trip([&](Writer& w) {
    const TrackHandle track = w.counter_track({}, "c", "");
    for (const double value : values)
      w.counter(track, kBaseForTest, value);
  });
  ASSERT_EQ(trace.counters.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(trace.counters.value[i]),
              std::bit_cast<std::uint64_t>(values.at(i)));
  }
}

TEST(Writer, KeepsEveryPrevState) {
  const Trace trace = round_trip([](Writer& w) {
    for (const std::uint32_t state : {0U, 1U, 2U, 0x80U, 0xffffffffU}) {
      w.sched_switch({at_for_test(state), 0, 1, 2, state, "a name that is far too long", ""});
    }
  });
  EXPECT_THAT(trace.switches.prev_state, ElementsAre(0, 1, 2, 0x80, 0xffffffff));
}

TEST(Writer, KeepsTheSchedulerRowsOfEachProcessorInTheirOrder) {
  const Trace trace = round_trip([](Writer& w) {
    w.sched_switch({at_for_test(1), 7, 1, 2, 0, "", ""});
    w.sched_switch({at_for_test(2), 0, 3, 4, 0, "", ""});
    w.sched_wake(at_for_test(3), 7, 5, "", 6);
    w.sched_switch({at_for_test(4), 7, 2, 1, 1, "", ""});
  });
  EXPECT_THAT(trace.switches.cpu, ElementsAre(0, 7, 7));
  EXPECT_THAT(trace.switches.next_tid, ElementsAre(4, 2, 1));
  EXPECT_THAT(trace.wakes.time_ns, ElementsAre(kBase + 3));
}

TEST(Writer, KeepsTimesBeforeTheBase) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle track = w.thread_track(1, 1, "t");
    w.slice_begin(track, at_for_test(-5), w.name("early"), {});
    w.slice_end(track, at_for_test(5));
    w.slice_begin(track, boot_time(0), w.name("boot"), {});
    w.slice_end(track, boot_time(1));
    w.instant(track, boot_time(-7), w.name("impossible"), {});
    w.sched_switch({boot_time(3), 0, 1, 2, 0, "", ""});
  });
  EXPECT_THAT(trace.slices.start_ns, ElementsAre(kBase - 5, 0));
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(10, 1));
  EXPECT_THAT(trace.instants.time_ns, ElementsAre(0));  // boot time starts at 0
  EXPECT_EQ(trace.begin_ns, 0);
  EXPECT_EQ(trace.end_ns, kBase + 5);
}

TEST(Writer, KeepsTheLatestTimeThereIs) {
  const BootTime last = boot_time(std::numeric_limits<std::int64_t>::max());
  const Trace trace = round_trip([&](Writer& w) {
    const TrackHandle track = w.thread_track(1, 1, "t");
    w.slice_begin(track, boot_time(0), w.name("all"), {});
    w.slice_end(track, last);
    w.instant(track, last, w.name("end"), {});
  });
  EXPECT_EQ(trace.slices.duration_ns[0], std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(trace.instants.time_ns[0], std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(trace.end_ns, std::numeric_limits<std::int64_t>::max());
}

TEST(Writer, LeavesSlicesOpenWhoseEndIsNotWritten) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle track = w.thread_track(1, 1, "t");
    w.slice_begin(track, at_for_test(1), w.name("outer"), {});
    w.slice_begin(track, at_for_test(2), w.name("inner"), {});
    w.slice_end(track, at_for_test(3));
  });
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(kOpenDuration, 1));
  EXPECT_EQ(trace.end_ns, kBase + 3);
}

TEST(Writer, TakesSlicesOfATrackInAnyOrderOfTime) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle track = w.thread_track(1, 1, "t");
    for (const std::int64_t start : {500, 100, 300}) {
      w.slice_begin(track, at_for_test(start), w.name("call"), {});
      w.slice_end(track, at_for_test(start + 10));
    }
  });
  EXPECT_THAT(trace.slices.start_ns, ElementsAre(kBase + 500, kBase + 100, kBase + 300));
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(10, 10, 10));
}

TEST(Writer, GivesAnEndBeforeItsBeginNoDuration) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle track = w.thread_track(1, 1, "t");
    w.slice_begin(track, at_for_test(9), w.name("call"), {});
    w.slice_end(track, at_for_test(4));
  });
  EXPECT_THAT(trace.slices.duration_ns, ElementsAre(0));
}

TEST(Writer, KeepsTheLatestFactsOfAProcess) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle first = w.process_track(info_of(7, "python", "old"));
    ProcessInfo later = info_of(7, "rank 5");
    later.parent_pid = 3;
    later.job = "slurm-1.0";
    later.role = "worker";
    later.rank = 5;
    later.local_rank = 1;
    later.world_size = 8;
    EXPECT_EQ(first, w.process_track(later));
    EXPECT_NE(first, w.process_track(info_of(8)));
  });
  ASSERT_EQ(trace.processes.size(), 2U);
  const Process& process = trace.processes[0];
  EXPECT_EQ(process.pid, 7);
  EXPECT_EQ(process.parent_pid, 3);
  EXPECT_EQ(trace.str(process.name), "rank 5");
  EXPECT_EQ(trace.str(process.cmdline), "");
  EXPECT_EQ(trace.str(process.job), "slurm-1.0");
  EXPECT_EQ(trace.str(process.role), "worker");
  EXPECT_EQ(process.rank, 5);
  EXPECT_EQ(process.local_rank, 1);
  EXPECT_EQ(process.world_size, 8);
  EXPECT_EQ(trace.processes[1].rank, kNoRank);
  EXPECT_EQ(trace.processes[1].world_size, kNoRank);
}

TEST(Writer, CutsProcessTextsThatAreTooLong) {
  const std::string text(70'000, 'x');
  const Trace trace = round_trip([&](Writer& w) {
    w.process_track(info_of(7, text, text));
    w.thread_track(7, 7, text);
    w.custom_track({}, text);
    w.counter_track({}, text, text);
  });
  EXPECT_EQ(trace.str(trace.processes[0].name).size(), 256U);
  EXPECT_EQ(trace.str(trace.processes[0].cmdline).size(), 1024U);
  EXPECT_EQ(trace.str(trace.processes[0].job).size(), 256U);
  for (const Track& track : trace.tracks)
    EXPECT_LE(trace.str(track.name).size(), 256U);
}

TEST(Writer, GivesAThreadOneTrackAndKeepsItsName) {
  const Trace trace = round_trip([](Writer& w) {
    const TrackHandle unnamed = w.thread_track(7, 8, "");
    EXPECT_EQ(unnamed, w.thread_track(7, 8, "loader"));
    EXPECT_EQ(unnamed, w.thread_track(7, 8, ""));
    EXPECT_NE(unnamed, w.thread_track(8, 8, ""));
    w.process_track(info_of(9));
    w.thread_track(9, 9, "main");
  });
  ASSERT_EQ(trace.tracks.size(), 5U);  // the writer's own is the first
  EXPECT_EQ(trace.str(trace.tracks[1].name), "loader");
  EXPECT_EQ(trace.tracks[1].tid, 8);
  EXPECT_EQ(trace.tracks[1].parent, kNoTrack);
  EXPECT_EQ(trace.tracks[4].parent, TrackId{3});
}

TEST(Writer, InternsTheSameTextOnce) {
  const std::string bytes = bytes_of(
      [](Writer& w) {
        const NameId name = w.name("a name worth counting");
        EXPECT_EQ(name, w.name("a name worth counting"));
        EXPECT_NE(name, w.name("another"));
        EXPECT_NE(name, NameId{});
        EXPECT_NE(w.name(""), NameId{});
        EXPECT_EQ(w.category("x"), w.category("x"));
        const FrameHandle frame = w.frame("f", "a.py", 1);
        EXPECT_EQ(frame, w.frame("f", "a.py", 1));
        EXPECT_NE(frame, w.frame("f", "a.py", 2));
        EXPECT_NE(frame, w.frame("f", "b.py", 1));
        const std::array one{frame};
        const std::array two{frame, frame};
        EXPECT_EQ(w.stack(one), w.stack(one));
        EXPECT_NE(w.stack(one), w.stack(two));
      },
      {.deflate_level = 0});
  const std::string text = "a name worth counting";
  const auto first = bytes.find(text);
  const auto second = bytes.find(text, first + 1);  // as an event name and as an argument name
  EXPECT_NE(second, std::string::npos);
  EXPECT_EQ(bytes.find(text, second + 1), std::string::npos);
}

TEST(Writer, KeepsTextsOfAnyBytes) {
  const std::string odd("\0\xff\n\"=", 5);
  const Trace trace = round_trip([&](Writer& w) {
    const std::array args{Arg::str(w.name(odd), odd)};
    const TrackHandle track = w.custom_track({}, odd);
    w.instant(track, kBaseForTest, w.name(odd), w.category(odd), args);
    w.instant(track, kBaseForTest, w.name(""), w.category(""));
    w.metadata(odd, odd, kBaseForTest);
  });
  EXPECT_EQ(trace.str(trace.instants.name[0]), odd);
  EXPECT_EQ(trace.str(trace.instants.category[0]), odd);
  EXPECT_EQ(trace.str(trace.args[0].key), odd);
  EXPECT_EQ(trace.str(trace.args[0].text), odd);
  EXPECT_EQ(trace.metadata.at(odd), odd);
  EXPECT_EQ(trace.str(trace.instants.name[1]), "");
}

TEST(Writer, CutsNamesAndArgumentsThatAreTooLong) {
  const std::string text(1 << 20, 'x');
  const Trace trace = round_trip([&](Writer& w) {
    std::vector<Arg> args;
    args.reserve(100);
    for (int i = 0; i < 100; ++i)
      args.push_back(Arg::str(w.name(fmt::format("{}{}", i, text)), text));
    const TrackHandle track = w.custom_track({}, "t");
    w.instant(track, kBaseForTest, w.name(text), w.category(text), args);
    const std::array frames{w.frame(text, text, 1)};
    w.sample(1, 1, kBaseForTest, w.stack(frames), SampleState::kRunning, false);
  });
  EXPECT_EQ(trace.str(trace.instants.name[0]).size(), 4096U);
  EXPECT_EQ(trace.instants.arg_count[0], 12U);
  EXPECT_EQ(trace.str(trace.args[0].text).size(), 1024U);
  const FrameId frame = trace.stacks.at(trace.samples.stack[0])[0];
  EXPECT_EQ(trace.str(trace.frames[frame.raw].file).size(), 4096U);
}

TEST(Writer, KeepsTheInnerFramesOfAStackThatIsTooDeep) {
  constexpr std::size_t kFramesMax = 2048;
  const Trace trace = round_trip([](Writer& w) {
    std::vector<FrameHandle> frames;
    for (std::uint32_t line = 1; line <= kFramesMax + 1; ++line)
      frames.push_back(w.frame("f", "f.py", line));
    const auto sample = [&](std::size_t depth, std::int64_t at) {
      w.sample(1, 1, at_for_test(at), w.stack(std::span(frames).first(depth)),
               SampleState::kSleeping, true);
    };
    sample(kFramesMax - 1, 0);
    sample(kFramesMax, 1);
    sample(kFramesMax + 1, 2);
  });
  const auto stack = [&](std::size_t row) { return trace.stacks.at(trace.samples.stack[row]); };
  EXPECT_EQ(stack(0).size(), kFramesMax - 1);
  EXPECT_EQ(stack(1).size(), kFramesMax);
  EXPECT_EQ(stack(2).size(), kFramesMax);
  EXPECT_EQ(trace.frames[stack(2).front().raw].line, 2U);
  EXPECT_EQ(trace.frames[stack(2).back().raw].line, kFramesMax + 1);
  EXPECT_EQ(trace.samples.holds_gil[2], 1);
  EXPECT_EQ(trace.samples.state[2], SampleState::kSleeping);
}

TEST(Writer, ShowsNamesOverTheLimitAsSuchAndCountsThem) {
  constexpr std::uint32_t kMax = 5;
  for (std::uint32_t count : {kMax - 1, kMax, kMax + 1, kMax + 20}) {
    SCOPED_TRACE(count);
    const Trace trace = round_trip(
        [&](Writer& w) {
          const TrackHandle track = w.custom_track({}, "t");
          for (std::uint32_t i = 0; i < count; ++i)
            w.instant(track, at_for_test(i), w.name(fmt::format("name {}", i)), w.category("c"));
        },
        {.strings_max = kMax});
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(trace.str(trace.instants.name[i]),
                i < kMax ? fmt::format("name {}", i) : "(too many names)");
    }
    EXPECT_EQ(trace.is_lossy(), count > kMax);
    if (count <= kMax) continue;
    const Loss& loss = trace.losses.at("trace_strings_over_limit");
    EXPECT_EQ(loss.count, count - kMax);
    EXPECT_EQ(loss.severity, Severity::kDataLoss);
    EXPECT_EQ(loss.advice, trace_strings_over_limit.advice);
  }
}

TEST(Writer, KeepsLossesAndMetadataWhenNamesAreOverTheLimit) {
  const Trace trace = round_trip(
      [](Writer& w) {
        for (int i = 0; i < 10; ++i)
          static_cast<void>(w.name(fmt::format("name {}", i)));
        for (int i = 0; i < 10; ++i)
          static_cast<void>(w.category(fmt::format("category {}", i)));
        w.metadata("kansoku.version", "9", kBaseForTest);
        w.loss(test_stat, 3, kBaseForTest);
      },
      {.strings_max = 2});
  EXPECT_EQ(trace.metadata.at("kansoku.version"), "9");
  EXPECT_EQ(trace.losses.at("test_stat").count, 3U);
  EXPECT_EQ(trace.losses.at("test_stat").advice, "why");
  EXPECT_EQ(trace.losses.at("trace_strings_over_limit").count, 16U);
}

TEST(Writer, ShowsArgumentNamesOverTheLimitAsSuch) {
  const Trace trace = round_trip(
      [](Writer& w) {
        const TrackHandle track = w.custom_track({}, "t");
        const std::array args{Arg::uint(w.name("a"), 1), Arg::uint(w.name("b"), 2),
                              Arg::uint(w.name("c"), 3), Arg::uint(w.name("d"), 4)};
        w.instant(track, kBaseForTest, {}, {}, args);
      },
      {.strings_max = 2});
  std::vector<std::string_view> keys;
  for (std::uint32_t i = 0; i < 4; ++i)
    keys.push_back(trace.str(trace.args[trace.instants.arg_begin[0] + i].key));
  EXPECT_THAT(keys, ElementsAre("a", "b", "(too many names)", "(too many names)"));
}

TEST(Writer, ShowsFramesOverTheLimitAsSuchAndCountsThem) {
  constexpr std::uint32_t kMax = 4;
  const Trace trace = round_trip(
      [](Writer& w) {
        std::vector<FrameHandle> frames;
        for (std::uint32_t line = 1; line <= kMax + 3; ++line)
          frames.push_back(w.frame("f", "f.py", line));
        w.sample(1, 1, kBaseForTest, w.stack(frames), SampleState::kStopped, true);
      },
      {.strings_max = kMax});
  const auto stack = trace.stacks.at(trace.samples.stack.at(0));
  ASSERT_EQ(stack.size(), kMax + 3);
  for (std::uint32_t i = 0; i < kMax + 3; ++i) {
    const Frame& frame = trace.frames[stack[i].raw];
    EXPECT_EQ(trace.str(frame.function), i < kMax ? "f" : "(too many names)");
    EXPECT_EQ(frame.line, i < kMax ? i + 1 : 0);
  }
  EXPECT_EQ(trace.samples.state[0], SampleState::kStopped);
  EXPECT_EQ(trace.losses.at("trace_strings_over_limit").count, 3U);
}

TEST(Writer, ShowsStacksOverTheLimitAsSuchAndKeepsTheirState) {
  const Trace trace = round_trip(
      [](Writer& w) {
        const FrameHandle f = w.frame("f", "", 0);
        const FrameHandle g = w.frame("g", "", 0);
        for (const std::vector<FrameHandle>& frames :
             {std::vector{f}, {g}, {f, g}, {g, f}, {f}, {g, f}}) {
          w.sample(1, 1, kBaseForTest, w.stack(frames), SampleState::kDisk, true);
        }
      },
      {.strings_max = 2});
  const std::string text = dump(trace);
  EXPECT_THAT(text, HasSubstr("3 gil 1: f(:0)\nsample 1000000000000 1/1 3 gil 1: g(:0)\n"));
  EXPECT_THAT(text, HasSubstr("3 gil 1: (too many names)(:0)\n"
                              "sample 1000000000000 1/1 3 gil 1: (too many names)(:0)\n"
                              "sample 1000000000000 1/1 3 gil 1: f(:0)\n"));
  EXPECT_GE(trace.losses.at("trace_strings_over_limit").count, 3U);
}

TEST(Writer, GivesTheSameBytesForTheSameInput) {
  for (const int level : {0, 1, 9}) {
    const WriterOptions options{.chunk_bytes_max = 700, .deflate_level = level};
    EXPECT_EQ(bytes_of(write_everything, options), bytes_of(write_everything, options));
  }
}

TEST(Writer, MakesTheSameTraceOfChunksOfAnySize) {
  const std::string whole = dump(round_trip(write_everything));
  for (const std::uint32_t bytes_max : {1U, 100U, 1000U, 1U << 20}) {
    SCOPED_TRACE(bytes_max);
    for (const int level : {0, 1}) {
      EXPECT_EQ(dump(round_trip(write_everything,
                                {.chunk_bytes_max = bytes_max, .deflate_level = level})),
                whole);
    }
  }
}

TEST(Writer, MakesWhatWasFlushedReadable) {
  MemorySink sink;
  auto writer = Writer::create(sink, kBaseForTest).value();
  const TrackHandle track = writer->thread_track(1, 1, "t");
  for (std::int64_t i = 0; i < 20; ++i) {
    writer->slice_begin(track, at_for_test(i), writer->name(fmt::format("s{}", i)), {});
    writer->sched_switch({at_for_test(i), 0, 1, 2, 0, "", ""});
    const std::array frames{writer->frame("f", "f.py", static_cast<std::uint32_t>(i))};
    writer->sample(1, 1, at_for_test(i), writer->stack(frames), SampleState::kDisk, false);
    ASSERT_TRUE(writer->flush());
    EXPECT_EQ(writer->bytes_pending(), 0U);
    EXPECT_EQ(writer->bytes_written(), sink.data().size());
    const Trace trace = read_back(sink.data());
    const auto count = static_cast<std::size_t>(i) + 1;
    EXPECT_EQ(trace.slices.size(), count);
    EXPECT_EQ(trace.samples.size(), count);
    EXPECT_EQ(trace.switches.size(), count);
    EXPECT_EQ(trace.str(trace.slices.name.back()), fmt::format("s{}", i));
  }
  EXPECT_EQ(writer->events_written(), 60U);
}

TEST(Writer, AppendsNothingWhenNothingIsPending) {
  MemorySink sink;
  auto writer = Writer::create(sink, kBaseForTest).value();
  EXPECT_TRUE(sink.data().empty());
  ASSERT_TRUE(writer->flush());
  const std::size_t size = sink.data().size();
  EXPECT_GT(size, 0U);
  ASSERT_TRUE(writer->flush());
  EXPECT_EQ(sink.data().size(), size);
  const Trace trace = read_back(sink.data());
  EXPECT_EQ(trace.begin_ns, 0);
  EXPECT_EQ(trace.end_ns, 0);
}

TEST(Writer, FlushesByItselfOnceAChunkIsFull) {
  constexpr std::uint32_t kChunkBytes = 4096;
  MemorySink sink;
  auto writer = Writer::create(sink, kBaseForTest, {.chunk_bytes_max = kChunkBytes}).value();
  const TrackHandle track = writer->thread_track(1, 1, "t");
  for (std::int64_t i = 0; i < 2000; ++i) {
    writer->instant(track, at_for_test(i), writer->name("i"), {});
    writer->sched_wake(at_for_test(i), static_cast<std::uint32_t>(i % 64), 1, "t", 2);
    ASSERT_LT(writer->bytes_pending(), kChunkBytes);
  }
  const Trace trace = read_back(sink.data());
  EXPECT_GT(trace.instants.size(), 1800U);
}

TEST(Writer, StaysBelowPerfettosLimitOfACompressedPacketWithDataThatDoesNotCompress) {
  const std::string bytes = bytes_of([](Writer& w) {
    Rng rng(1);
    const TrackHandle track = w.thread_track(1, 1, "t");
    std::string noise(1000, ' ');
    for (std::int64_t i = 0; i < 400; ++i) {
      for (char& c : noise)
        c = static_cast<char>(rng.below(256));
      const std::array args{Arg::str(w.name("noise"), noise)};
      w.instant(track, at_for_test(i), w.name("i"), {}, args);
    }
  });
  std::size_t at = 0;
  std::size_t packet_count = 0;
  while (at < bytes.size()) {
    ASSERT_EQ(bytes[at], 0x0a);
    std::size_t length = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(++at));
      length |= static_cast<std::size_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    EXPECT_LT(length, 512U * 1024);
    at += 1 + length;
    ++packet_count;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_GE(packet_count, 2U);
  EXPECT_EQ(read_back(bytes).instants.size(), 400U);
}

// Fails every append in turn, once and for good: the first error stays and nothing more is written.
TEST(Writer, KeepsTheErrorOfAFailedAppendAndWritesNoMore) {
  const auto work = [](Writer& w, std::vector<std::string>& errors) {
    for (int round = 0; round < 6; ++round) {
      write_everything(w);
      if (const auto flushed = w.flush(); !flushed) errors.push_back(flushed.error().what);
    }
  };
  const WriterOptions options{.chunk_bytes_max = 900};
  FailingSink whole(SIZE_MAX, false);
  std::vector<std::string> none;
  work(*Writer::create(whole, kBaseForTest, options).value(), none);
  EXPECT_TRUE(none.empty());
  ASSERT_GT(whole.calls, 6U);
  for (std::size_t fail_at = 0; fail_at < whole.calls; ++fail_at) {
    for (const bool once : {false, true}) {
      SCOPED_TRACE(fmt::format("fails at {}, once {}", fail_at, once));
      FailingSink sink(fail_at, once);
      auto writer = Writer::create(sink, kBaseForTest, options).value();
      std::vector<std::string> errors;
      work(*writer, errors);
      EXPECT_EQ(sink.calls, fail_at + 1);
      ASSERT_FALSE(errors.empty());
      for (const std::string& error : errors)
        EXPECT_THAT(error, EndsWith(fmt::format("no space left at call {}", fail_at)));
      EXPECT_EQ(writer->bytes_written(), sink.data.size());
      EXPECT_TRUE(whole.data.starts_with(sink.data));
      if (fail_at > 0) read_back(sink.data);
    }
  }
}

TEST(Writer, CountsNoEventsAndKeepsNoBytesAfterAFailedAppend) {
  FailingSink sink(0, false);
  auto writer = Writer::create(sink, kBaseForTest).value();
  ASSERT_FALSE(writer->flush());
  const auto event_count = writer->events_written();
  for (int i = 0; i < 1000; ++i) {
    write_everything(*writer);
    static_cast<void>(writer->name(fmt::format("name {}", i)));
    static_cast<void>(writer->flush());
  }
  EXPECT_EQ(writer->events_written(), event_count);
  EXPECT_EQ(writer->bytes_pending(), 0U);
}

TEST(Writer, CountsEventsAndNotItsOwnNotes) {
  MemorySink sink;
  auto writer = Writer::create(sink, kBaseForTest).value();
  EXPECT_EQ(writer->events_written(), 0U);
  writer->metadata("k", "v", kBaseForTest);
  EXPECT_EQ(writer->events_written(), 0U);
  const TrackHandle track = writer->thread_track(1, 1, "t");
  writer->slice_begin(track, kBaseForTest, writer->name("s"), {});
  writer->slice_end(track, kBaseForTest);
  writer->instant(track, kBaseForTest, writer->name("i"), {});
  EXPECT_EQ(writer->events_written(), 3U);
}

}  // namespace
}  // namespace kansoku::trace
