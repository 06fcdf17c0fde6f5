// SPDX-License-Identifier: Apache-2.0
#include "trace/merge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "trace/reader.h"
#include "trace/traces_for_test.h"
#include "trace/writer.h"

namespace kansoku::trace {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// The trace of write_everything(), begun at a wall time (0: does not say).
Trace everything(std::int64_t unix_ns = 0) {
  const std::string bytes = bytes_of(
      [&](Writer& writer) {
        if (unix_ns != 0) {
          writer.metadata("kansoku.recorded_at_unix_ns", std::to_string(unix_ns), kBaseForTest);
          writer.metadata("kansoku.host", fmt::format("host{}", unix_ns % 10), kBaseForTest);
        }
        write_everything(writer);
      },
      {});
  return read_trace(as_bytes(bytes)).value();
}

TEST(HostMergerTest, OneHostStaysAsItIs) {
  HostMerger merger;
  ASSERT_TRUE(merger.add(everything()));
  EXPECT_EQ(dump(merger.take()), dump(everything()));
}

TEST(HostMergerTest, KeepsTheEventsOfBothApart) {
  const Trace one = everything();
  HostMerger merger;
  ASSERT_TRUE(merger.add(everything()));
  ASSERT_TRUE(merger.add(everything()));
  const Trace both = merger.take();
  EXPECT_EQ(problem_of(both), "");
  EXPECT_EQ(both.slices.size(), 2 * one.slices.size());
  EXPECT_EQ(both.samples.size(), 2 * one.samples.size());
  EXPECT_EQ(both.strings.size(), one.strings.size());
  ASSERT_EQ(both.processes.size(), 2 * one.processes.size());
  const Process& first = both.processes.front();
  const Process& second = both.processes[one.processes.size()];
  EXPECT_EQ(second.pid, first.pid + kPidsPerHost);
  EXPECT_EQ(host_of(second.pid), 1U);
  EXPECT_EQ(pid_on_host(second.pid), first.pid);
  EXPECT_EQ(both.str(second.job), both.str(first.job));
  for (std::size_t i = 0; i < one.slices.size(); ++i) {
    const std::size_t k = one.slices.size() + i;
    EXPECT_EQ(both.str(both.slices.name[k]), one.str(one.slices.name[i]));
    EXPECT_EQ(both.slices.start_ns[k], one.slices.start_ns[i]);
    const Track &track = both.tracks[both.slices.track[k].raw],
                &was = one.tracks[one.slices.track[i].raw];
    EXPECT_EQ(track.tid, was.tid == 0 ? 0 : was.tid + kPidsPerHost);
    ASSERT_EQ(both.slices.arg_count[k], one.slices.arg_count[i]);
    for (std::uint32_t a = 0; a < one.slices.arg_count[i]; ++a) {
      const ArgValue& arg = both.args[both.slices.arg_begin[k] + a];
      EXPECT_EQ(both.str(arg.key), one.str(one.args[one.slices.arg_begin[i] + a].key));
    }
  }
  for (std::size_t i = 0; i < one.samples.size(); ++i) {
    const auto was = one.stacks.at(one.samples.stack[i]);
    const auto is = both.stacks.at(both.samples.stack[one.samples.size() + i]);
    ASSERT_EQ(is.size(), was.size());
    for (std::size_t f = 0; f < was.size(); ++f) {
      EXPECT_EQ(both.str(both.frames[is[f].raw].function),
                one.str(one.frames[was[f].raw].function));
    }
  }
  EXPECT_EQ(both.switches.prev_tid.back(), one.switches.prev_tid.back() + kPidsPerHost);
  EXPECT_EQ(both.switches.next_tid.back(), 0);  // idle
  for (const auto& [name, loss] : one.losses)
    EXPECT_EQ(both.losses.at(name).count, 2 * loss.count);
}

TEST(HostMergerTest, ShiftsOneHostOnly) {
  const Trace one = everything();
  HostMerger merger;
  ASSERT_TRUE(merger.add(everything()));
  ASSERT_TRUE(merger.add(everything()));
  merger.shift(1, 1'000'000'000);
  EXPECT_EQ(merger.trace().slices.start_ns.front(), one.slices.start_ns.front());
  EXPECT_EQ(merger.trace().slices.start_ns.back(), one.slices.start_ns.back() + 1'000'000'000);
  EXPECT_EQ(merger.trace().wakes.time_ns.back(), one.wakes.time_ns.back() + 1'000'000'000);
  EXPECT_EQ(merger.trace().begin_ns, one.begin_ns);
  EXPECT_EQ(merger.trace().end_ns, one.end_ns + 1'000'000'000);
  merger.shift(1, kMax);  // saturates
  EXPECT_EQ(merger.trace().end_ns, kMax);
}

TEST(HostMergerTest, WallClocksBringBootClocksTogether) {
  HostMerger merger;
  ASSERT_TRUE(merger.add(everything(1'700'000'000'000'000'001)));
  ASSERT_TRUE(merger.add(everything(1'700'000'000'500'000'002)));  // booted half a second later
  const std::size_t count = merger.trace().slices.size() / 2;
  EXPECT_EQ(merger.trace().slices.start_ns[count], merger.trace().slices.start_ns[0] + 500'000'001);
  EXPECT_EQ(merger.trace().metadata.at("kansoku.host"), "host1, host2");
}

TEST(HostMergerTest, RefusesNumbersThatLinuxDoesNotGive) {
  HostMerger merger;
  ASSERT_TRUE(merger.add(everything()));
  for (const std::int32_t pid : {kPidsPerHost, -1}) {
    Trace odd = everything();
    odd.samples.tid.front() = pid;
    EXPECT_EQ(merger.add(std::move(odd)).error().code, Code::kUnsupported);
  }
  EXPECT_EQ(merger.host_count(), 1U);
  HostMerger alone;
  Trace odd = everything();
  odd.samples.tid.front() = kPidsPerHost;
  EXPECT_TRUE(alone.add(std::move(odd)));
  EXPECT_EQ(alone.add(everything()).error().code, Code::kUnsupported);
}

TEST(HostMergerTest, RefusesMoreHostsThanNumbers) {
  HostMerger merger;
  for (std::size_t host = 0; host < kHostsMax; ++host)
    ASSERT_TRUE(merger.add(Trace{}));
  EXPECT_EQ(merger.add(Trace{}).error().code, Code::kLimit);
}

}  // namespace
}  // namespace kansoku::trace
