// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/derived_tracks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "gpu/activity/internal/idle_tracks.h"
#include "gpu/activity/kineto.h"
#include "gpu/activity/planted_for_test.h"
#include "gpu/activity/recording_for_test.h"
#include "trace/reader.h"
#include "trace/traces_for_test.h"

namespace kansoku::gpu::activity {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A recording, its report and its copy with tracks.
struct Copied {
  trace::Trace trace, copy;
  WorkReport report;
  TracksWritten written;
  std::vector<ProcessSteps> steps;

  [[nodiscard]] WorkReport report_of_copy() const {
    Options options;
    options.steps = steps;
    return *report_of(copy, options);
  }
};

trace::Trace read(const std::string& bytes) {
  auto trace = trace::read_trace(as_bytes(bytes));
  EXPECT_TRUE(trace.has_value());
  EXPECT_EQ(trace::problem_of(*trace), "");
  return std::move(*trace);
}

std::string bytes_of(const std::function<void(Recording&)>& fill) {
  return trace::bytes_of([&](trace::Writer& writer) {
    Recording recording(writer);
    fill(recording);
  });
}

Copied copied(const std::string& bytes, std::vector<ProcessSteps> steps = {}) {
  Copied out;
  out.steps = std::move(steps);
  out.trace = read(bytes);
  Options options;
  options.steps = out.steps;
  options.with_tracks = true;
  out.report = *report_of(out.trace, options);
  MemorySink sink;
  const auto written = write_tracks(out.trace, out.report, as_bytes(bytes), sink);
  EXPECT_TRUE(written.has_value()) << written.error().what;
  out.written = *written;
  EXPECT_TRUE(sink.data().starts_with(bytes));
  out.copy = read(sink.data());
  return out;
}

Copied copied_plan(const Plan& plan) {
  std::vector<ProcessSteps> steps;
  const std::string bytes = bytes_of([&](Recording& r) { steps = write_planted(plan, r); });
  return copied(bytes, steps);
}

struct Seen {
  std::string track, parent, name, function;
  double begin_us{0}, end_us{0};
  std::int32_t pid{0};
};

double us_at(std::int64_t ns) {
  return static_cast<double>(ns - ns_for_test(0)) / 1e3;
}

/// The slices of a category of the copy.
std::vector<Seen> slices_of(const trace::Trace& copy, std::string_view category) {
  std::vector<Seen> out;
  const trace::StringId function = copy.strings.find("function");
  for (std::uint32_t i = 0; i < copy.slices.size(); ++i) {
    if (copy.str(copy.slices.category[i]) != category) continue;
    const trace::Track& track = copy.tracks.at(copy.slices.track[i].raw);
    Seen seen{.track = std::string(copy.str(track.name)),
              .parent = {},
              .name = std::string(copy.str(copy.slices.name[i])),
              .function = {},
              .begin_us = us_at(copy.slices.start_ns[i]),
              .end_us = us_at(copy.slices.start_ns[i] + copy.slices.duration_ns[i])};
    if (track.parent.raw < copy.tracks.size()) seen.pid = copy.tracks[track.parent.raw].pid;
    if (const auto* arg = copy.slice_arg(i, function)) seen.function = copy.str(arg->text);
    out.push_back(seen);
  }
  return out;
}

/// Works 10..1,000 and 3,000..4,000; in between the program is in a function of its own.
void work_around_a_gap(Recording& r) {
  r.kernel(100, 7, "a", {0, 5}, {10, 1000});
  r.host(100, 100, "python", "prepare", {1100, 2900});
  r.kernel(100, 7, "b", {2990, 2995}, {3000, 4000});
}

TEST(DerivedTracksTest, AGapIsASliceBelowItsProcess) {
  const Copied c = copied(bytes_of(work_around_a_gap));
  const auto seen = slices_of(c.copy, "kansoku.idle");
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].track, "GPU 0 idle");
  EXPECT_EQ(seen[0].pid, 100);
  EXPECT_EQ(seen[0].name, "runs the program's own code");
  EXPECT_EQ(seen[0].function, "prepare");
  EXPECT_DOUBLE_EQ(seen[0].begin_us, 1000);
  EXPECT_DOUBLE_EQ(seen[0].end_us, 3000);
  EXPECT_EQ(c.written.idle_track_count, 1U);
  EXPECT_EQ(c.written.gap_count, 1U);
  EXPECT_EQ(c.copy.metadata.at("kansoku.tracks.100.idle.0"), "gaps=1 left_out=0 left_out_us=0");
}

TEST(DerivedTracksTest, StepsAreNumberedAsThePageNumbersThem) {
  Plan plan;
  plan.steps = 3;
  const Copied c = copied_plan(plan);
  const auto seen = slices_of(c.copy, "kansoku.step");
  ASSERT_THAT(seen, SizeIs(3));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].name, "step " + std::to_string(i + 1));
    EXPECT_EQ(seen[i].track, "steps");
    EXPECT_EQ(seen[i].pid, 100);
    EXPECT_DOUBLE_EQ(seen[i].begin_us, us_at(c.steps[0].steps[i].begin_ns));
  }
  EXPECT_THAT(slices_of(copied(bytes_of(work_around_a_gap)).copy, "kansoku.step"), IsEmpty());
}

TEST(DerivedTracksTest, GapsAddUpToTheIdleTimeOfTheReport) {
  Plan plan;
  plan.ranks = 2;
  plan.syncs = 5;
  plan.steps = 12;
  const Copied c = copied_plan(plan);
  ASSERT_THAT(c.report.devices, SizeIs(2));
  for (const DeviceFigures& device : c.report.devices) {
    double us = 0;
    for (const Seen& gap : slices_of(c.copy, "kansoku.idle"))
      us += gap.pid == device.pid ? gap.end_us - gap.begin_us : 0;
    for (const IdleTrack& track : c.report.tracks.idle)
      us += track.pid == device.pid ? track.left_out_us : 0;
    EXPECT_NEAR(us, *device.idle_us, 1e-3 * *device.idle_us);
  }
}

/// An export without the names of its rows: it names those without events, too.
std::string without_names(const std::string& json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t end = std::min(json.find('\n', at), json.size() - 1) + 1;
    const std::string line = json.substr(at, end - at);
    if (line.find("\"thread_name\"") == std::string::npos) out += line;
    at = end;
  }
  return out;
}

/// A report and an export of the copy equal those of the recording.
TEST(DerivedTracksTest, TheReportOfTheCopyIsThatOfTheRecording) {
  Plan syncs, allocations, loader, slow;
  syncs.syncs = 4;
  allocations.allocations = 3;
  loader.loader_us = 900;
  loader.marks_steps = true;
  slow.ranks = 4;
  slow.slow_rank = 2;
  slow.slow_ratio = 1.1;
  for (Plan plan : {syncs, allocations, loader, slow}) {
    plan.steps = 25;
    const Copied c = copied_plan(plan);
    EXPECT_GT(c.written.gap_count, 0U);
    const WorkReport again = c.report_of_copy();
    EXPECT_EQ(to_json(again, 1000).dump(), to_json(c.report, 1000).dump());
    EXPECT_EQ(to_text(again, 1000), to_text(c.report, 1000));
    EXPECT_EQ(c.copy.begin_ns, c.trace.begin_ns);
    EXPECT_EQ(c.copy.end_ns, c.trace.end_ns);
    MemorySink of_recording, of_copy;
    const auto ranks = ranks_of(c.trace);
    const KinetoOptions one{.rank = ranks.empty() ? std::nullopt : std::optional(ranks.front())};
    ASSERT_TRUE(write_kineto(c.trace, one, of_recording));
    ASSERT_TRUE(write_kineto(c.copy, one, of_copy));
    EXPECT_TRUE(without_names(of_copy.data()) == without_names(of_recording.data()));
  }
}

TEST(DerivedTracksTest, CostsAreTotalsAtTheEnd) {
  const Copied c = copied(bytes_of([](Recording& r) {
    work_around_a_gap(r);
    r.meta("kansoku.cuda.100.cost", "timed=2 every_n=1 own_ns=350 mode=all");
    r.meta("kansoku.cuda.100.program2.cost", "timed=1");
    r.meta("kansoku.cuda.100.entry.cost", "calls=1");  // a function of that name
    r.meta("kansoku.source.cuda", "cpu_s=0.25 polls=7");
  }));
  EXPECT_EQ(c.written.cost_count, 3U);
  std::map<std::string, std::string> found;
  const trace::InstantTable& table = c.copy.instants;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (c.copy.str(table.category[i]) != "kansoku.cost") continue;
    EXPECT_EQ(table.time_ns[i], c.trace.end_ns);
    const trace::Track& track = c.copy.tracks.at(table.track[i].raw);
    EXPECT_EQ(c.copy.str(track.name), "Kansoku's own cost");
    std::string text = track.parent == trace::kNoTrack ? "top:" : "process:";
    for (std::uint32_t k = 0; k < table.arg_count[i]; ++k) {
      const trace::ArgValue& arg = c.copy.args.at(table.arg_begin[i] + k);
      text += " " + std::string(c.copy.str(arg.key)) + "=";
      if (arg.kind == trace::ArgValue::Kind::kUint) text += std::to_string(arg.u64);
      if (arg.kind == trace::ArgValue::Kind::kDouble) text += std::to_string(arg.f64);
      if (arg.kind == trace::ArgValue::Kind::kString) text += c.copy.str(arg.text);
    }
    found[std::string(c.copy.str(table.name[i]))] = text;
  }
  EXPECT_EQ(found.at("timing of device work"), "process: timed=2 every_n=1 own_ns=350 mode=all");
  EXPECT_EQ(found.at("timing of device work, program2"), "process: timed=1");
  EXPECT_EQ(found.at("source cuda"), "top: cpu_s=0.250000 polls=7");
}

TEST(DerivedTracksTest, ADeviceClockHasNoIdleTrack) {
  const Copied c = copied(bytes_of([](Recording& r) {
    r.device_clock();
    work_around_a_gap(r);
  }));
  EXPECT_EQ(c.written.idle_track_count, 0U);
  EXPECT_THAT(slices_of(c.copy, "kansoku.idle"), IsEmpty());
}

TEST(DerivedTracksTest, ATornRecordingStaysOne) {
  const std::string bytes = bytes_of(work_around_a_gap) + "\x0a\x7ftorn";
  const trace::Trace trace = read(bytes);
  Options options;
  options.with_tracks = true;
  const WorkReport report = *report_of(trace, options);
  MemorySink sink;
  ASSERT_TRUE(write_tracks(trace, report, as_bytes(bytes), sink));
  const trace::Trace copy = read(sink.data());
  EXPECT_EQ(copy.losses.at("trace_truncated_tail").count, 1U);
  EXPECT_EQ(to_json(*report_of(copy, {}), 100).dump(), to_json(report, 100).dump());
  EXPECT_THAT(slices_of(copy, "kansoku.idle"), SizeIs(1));
}

TEST(DerivedTracksTest, RefusesACopyAndAFullDisk) {
  const std::string bytes = bytes_of(work_around_a_gap);
  const Copied c = copied(bytes);
  MemorySink sink;
  const auto again = write_tracks(c.copy, c.report, as_bytes(bytes), sink);
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().what, HasSubstr("already"));
  EXPECT_EQ(sink.data(), "");
  MemorySink full(10);
  EXPECT_EQ(write_tracks(c.trace, c.report, as_bytes(bytes), full).error().code, Code::kLimit);
}

IdleTrack track_of(const std::vector<std::int64_t>& lengths) {
  IdleTrack out;
  std::int64_t at = 0;
  for (const std::int64_t ns : lengths) {
    out.gaps.push_back({{at, at + ns}, IdleCause::kLock, {}});
    at += ns + 1;
  }
  return out;
}

std::vector<std::int64_t> lengths_of(const IdleTrack& track) {
  std::vector<std::int64_t> out;
  for (const IdleGap& gap : track.gaps)
    out.push_back(gap.time.end_ns - gap.time.begin_ns);
  return out;
}

TEST(DerivedTracksTest, TheLongestGapsOfAllDevicesAreKept) {
  std::vector<IdleTrack> tracks{track_of({5000, 2000, 9000}), track_of({2000, 7000, 2000})};
  keep_longest(tracks, 4);
  EXPECT_THAT(lengths_of(tracks[0]), ElementsAre(5000, 2000, 9000));
  EXPECT_THAT(lengths_of(tracks[1]), ElementsAre(7000));
  EXPECT_EQ(tracks[0].left_out_count, 0U);
  EXPECT_EQ(tracks[1].left_out_count, 2U);
  EXPECT_DOUBLE_EQ(tracks[1].left_out_us, 4);
  keep_longest(tracks, 4);
  EXPECT_EQ(tracks[1].left_out_count, 2U);
  keep_longest(tracks, 0);
  EXPECT_THAT(tracks[0].gaps, IsEmpty());
}

TEST(DerivedTracksTest, GapsStandBetweenTheOperationsAsRecorded) {
  // All device times are 150 us too late: the figures move them, the recording stays as it is.
  const Copied c = copied(bytes_of([](Recording& r) {
    for (int i = 0; i < 20; ++i) {
      const double us = 1000.0 * i;
      r.kernel(100, 7, "a", {us, us + 5}, {us + 160, us + 950});
      r.call(100, "cuStreamSynchronize", {us + 10, us + 802});
    }
    r.meta("kansoku.clock.cuda.100.0", "error_ns=300000");
  }));
  EXPECT_THAT(c.report.notes, testing::Contains(HasSubstr("were moved by")));
  const auto seen = slices_of(c.copy, "kansoku.idle");
  ASSERT_THAT(seen, SizeIs(19));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_NEAR(seen[i].begin_us, 1000.0 * static_cast<double>(i) + 950, 1e-6);
    EXPECT_NEAR(seen[i].end_us, 1000.0 * static_cast<double>(i) + 1160, 1e-6);
  }
}

TEST(DerivedTracksTest, GapsBelowAMicrosecondAreCountedAlone) {
  const Copied c = copied(bytes_of([](Recording& r) {
    r.kernel(100, 7, "a", {0, 5}, {10, 100});
    r.kernel(100, 7, "b", {5, 6}, {100.4, 200});
    r.kernel(100, 7, "c", {6, 7}, {201, 300});
  }));
  EXPECT_THAT(slices_of(c.copy, "kansoku.idle"), SizeIs(1));
  EXPECT_EQ(c.written.left_out_count, 1U);
  EXPECT_NEAR(c.written.left_out_us, 0.4, 1e-9);
}

}  // namespace
}  // namespace kansoku::gpu::activity
