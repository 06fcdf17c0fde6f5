// SPDX-License-Identifier: Apache-2.0
#include "simulate/trace_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "trace/reader.h"

namespace kansoku::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Experiments of these tests name no files.
class NoFiles final : public Loader {
 public:
  Result<Workload> workload(const std::string& path) override { return none(path); }
  Result<std::vector<NodeSpec>> nodes(const std::string& path) override { return none(path); }
  Result<Json> json(const std::string& path) override { return none(path); }

 private:
  static Error none(const std::string& path) { return {Code::kNotFound, path}; }
};

Experiment experiment_of(const std::string& toml) {
  NoFiles loader;
  auto parsed = parse_experiment(toml, "test.toml", {}, loader);
  EXPECT_TRUE(parsed) << parsed.error().what;
  return std::move(parsed).value();
}

constexpr const char* kBusy = R"(
horizon = 2000
seed = 3
[clusters.small]
slots = 3
[clusters.big]
slots = 30
[pipelines.build]
arrivals = { kind = "renewal", interarrival = { family = "exponential", scale = 4.0 } }
[[pipelines.build.tasks]]
name = "prepare"
cluster = "big"
duration = { family = "exponential", scale = 9.0 }
[[pipelines.build.tasks]]
name = "train"
cluster = "small"
duration = { family = "exponential", scale = 11.0 }
)";

Replication run_one(const Experiment& experiment) {
  RunControl control;
  auto run = run_replication(experiment, 0, {.records = true, .series_points = 50}, control);
  EXPECT_TRUE(run) << run.error().what;
  return std::move(run).value();
}

struct Written {
  TraceOutCounts counts;
  std::string bytes;
  trace::Trace trace;
};

Written write(const Experiment& experiment, const Replication& replication,
              const TraceOutOptions& options = {}) {
  MemorySink sink;
  const auto counts = write_trace(experiment, replication, sink, options);
  EXPECT_TRUE(counts) << counts.error().what;
  auto trace = trace::read_trace(as_bytes(sink.data()));
  EXPECT_TRUE(trace) << trace.error().what;
  return {*counts, sink.data(), std::move(trace).value()};
}

/// A replication made by hand: (queued, started, ended) in nanoseconds.
Replication replication_of(const std::vector<std::array<std::int64_t, 3>>& times) {
  Replication out;
  out.records = std::make_shared<Records>(times.size());
  for (std::uint32_t i = 0; i < times.size(); ++i) {
    TaskRecord record;
    record.queued = Nanos{times[i][0]};
    record.started = Nanos{times[i][1]};
    record.ended = Nanos{times[i][2]};
    record.run = i;
    out.records->add(record);
  }
  return out;
}

const char* const kOneTask = R"(
horizon = 1
[clusters.c]
slots = 1
[pipelines.p]
arrivals = { kind = "constant", every = 1 }
[[pipelines.p.tasks]]
name = "t"
cluster = "c"
duration = 1
)";

/// "track begin-end" of each slice, in file order.
std::vector<std::string> slices_of(const trace::Trace& trace) {
  std::vector<std::string> out;
  const trace::SliceTable& slices = trace.slices;
  for (std::size_t i = 0; i < slices.size(); ++i)
    out.push_back(std::string(trace.str(trace.tracks[slices.track[i].raw].name)) + " " +
                  std::to_string(slices.start_ns[i]) + "-" +
                  std::to_string(slices.start_ns[i] + slices.duration_ns[i]));
  return out;
}

TEST(TraceOut, KeepsEveryRecordAndCounter) {
  const Experiment experiment = experiment_of(kBusy);
  const Replication replication = run_one(experiment);
  const Written written = write(experiment, replication);
  EXPECT_EQ(written.counts.executions, replication.records->size());
  EXPECT_GT(written.counts.waits, 100U);
  EXPECT_EQ(written.counts.no_lane + written.counts.over_limit, 0U);
  EXPECT_EQ(written.trace.slices.size(), written.counts.executions + written.counts.waits);
  ASSERT_EQ(written.trace.processes.size(), 2U);
  EXPECT_EQ(written.trace.str(written.trace.processes[0].name), "cluster big");
  EXPECT_EQ(written.trace.counters.size(), 4 * 50U);  // utilisation and queue of two clusters
  EXPECT_FALSE(written.trace.is_lossy());
  EXPECT_EQ(written.trace.metadata.at("kansoku.simulation.seed"), "3");
}

TEST(TraceOut, SlicesOfALaneNeverOverlapAndLanesDoNotExceedTheSlots) {
  const Experiment experiment = experiment_of(kBusy);
  const Written written = write(experiment, run_one(experiment));
  const trace::SliceTable& slices = written.trace.slices;
  std::map<std::uint32_t, std::vector<std::pair<std::int64_t, std::int64_t>>> by_track;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    ASSERT_GE(slices.duration_ns[i], 0);
    by_track[slices.track[i].raw].emplace_back(slices.start_ns[i],
                                               slices.start_ns[i] + slices.duration_ns[i]);
  }
  std::map<std::string, int> lanes;
  for (auto& [track, spans] : by_track) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].second, spans[i].first);
    const trace::Track& of = written.trace.tracks[track];
    const trace::Track& parent = written.trace.tracks[of.parent.raw];
    const std::string name(written.trace.str(of.name));
    ++lanes[std::string(written.trace.str(parent.name)) + " " + name.substr(0, name.find(' '))];
  }
  EXPECT_EQ(lanes["cluster small lane"], 3);
  EXPECT_LE(lanes["cluster big lane"], 30);
  EXPECT_GT(lanes["cluster small queue"], 0);
}

TEST(TraceOut, SaysOfEachSliceWhatTheRecordHolds) {
  const Experiment experiment = experiment_of(kOneTask);
  Replication replication = replication_of({{0, 1'500'000'000, 3'000'000'000}});
  const Written written = write(experiment, replication);
  const trace::Trace& trace = written.trace;
  ASSERT_THAT(slices_of(trace),
              ElementsAre("queue 1 0-1500000000", "lane 1 1500000000-3000000000"));
  EXPECT_EQ(trace.str(trace.slices.name[1]), "p.t");
  const auto arg = [&](std::string_view key) {
    return trace.slice_arg(1, trace.strings.find(key));
  };
  ASSERT_NE(arg("wait_s"), nullptr);
  EXPECT_EQ(arg("wait_s")->f64, 1.5);
  EXPECT_EQ(trace.str(arg("task")->text), "t");
  EXPECT_EQ(trace.str(arg("end")->text), "done");
  ASSERT_EQ(trace.flows.size(), 2U);
  EXPECT_EQ(trace.flows.id[0], trace.flows.id[1]);
}

TEST(TraceOut, TakesTheLowestFreeLane) {
  const Experiment experiment = experiment_of(kOneTask);
  const Written written =
      write(experiment,
            replication_of({{0, 0, 10}, {0, 0, 4}, {3, 3, 3}, {4, 4, 9}, {4, 4, 6}, {10, 10, 12}}));
  EXPECT_THAT(slices_of(written.trace), ElementsAre("lane 1 0-10", "lane 2 0-4", "lane 3 3-3",
                                                    "lane 2 4-9", "lane 3 4-6", "lane 1 10-12"));
}

TEST(TraceOut, CountsWhatFoundNoLane) {
  const Experiment experiment = experiment_of(kOneTask);
  const Replication replication =
      replication_of({{0, 5, 10}, {0, 5, 10}, {0, 5, 10}, {11, 11, 12}});
  const Written written = write(experiment, replication, {.lanes_max = 2, .queue_lanes_max = 1});
  EXPECT_EQ(written.counts.no_lane, 1U);
  EXPECT_EQ(written.counts.no_queue_lane, 2U);
  EXPECT_THAT(slices_of(written.trace),
              ElementsAre("queue 1 0-5", "lane 1 5-10", "lane 2 5-10", "lane 1 11-12"));
  EXPECT_TRUE(written.trace.is_lossy());
  EXPECT_EQ(written.trace.losses.at("simulation_no_lane").count, 1U);
  EXPECT_EQ(written.trace.losses.at("simulation_no_queue_lane").count, 2U);
}

TEST(TraceOut, KeepsTheEarliestSlicesAtTheLimit) {
  const Experiment experiment = experiment_of(kOneTask);
  std::vector<std::array<std::int64_t, 3>> times;
  for (std::int64_t i = 0; i < 100; ++i)
    times.push_back({99 - i, 99 - i, 100 - i});
  const Replication replication = replication_of(times);
  for (const std::uint64_t limit : {0U, 1U, 99U, 100U, 101U}) {
    const Written written = write(experiment, replication, {.slices_max = limit});
    const std::uint64_t kept = std::min<std::uint64_t>(limit, 100);
    EXPECT_EQ(written.counts.executions, kept);
    EXPECT_EQ(written.counts.over_limit, 100 - kept);
    EXPECT_EQ(written.trace.losses.contains("simulation_slices_over_limit"), kept < 100);
    if (kept == 0) continue;
    EXPECT_EQ(slices_of(written.trace).front(), "lane 1 0-1");
  }
}

TEST(TraceOut, SaysThatRecordsWereDropped) {
  Experiment experiment = experiment_of(kBusy);
  experiment.records_max = 10;
  const Written written = write(experiment, run_one(experiment));
  EXPECT_EQ(written.counts.executions, 10U);
  EXPECT_GT(written.trace.losses.at("simulation_records_dropped").count, 100U);
}

TEST(TraceOut, WritesCountersWithoutRecords) {
  const Experiment experiment = experiment_of(kOneTask);
  Replication replication;
  replication.series_step_s = 2;
  replication.series = {{"cluster.c.queue", {0, 3}}, {"models.m.performance", {1}}};
  const Written written = write(experiment, replication);
  ASSERT_EQ(written.trace.counters.size(), 3U);
  EXPECT_EQ(written.trace.counters.time_ns[1], 2'000'000'000);
  EXPECT_EQ(written.trace.counters.value[1], 3);
  ASSERT_EQ(written.trace.processes.size(), 2U);
  EXPECT_EQ(written.trace.str(written.trace.processes[1].name), "models");
}

TEST(TraceOut, GivesTheSameBytesForTheSameSeed) {
  const Experiment experiment = experiment_of(kBusy);
  const std::string first = write(experiment, run_one(experiment)).bytes;
  EXPECT_EQ(first, write(experiment, run_one(experiment)).bytes);
  Experiment other = experiment_of(kBusy);
  other.seed = 4;
  EXPECT_NE(first, write(other, run_one(other)).bytes);
}

TEST(TraceOut, PassesAFullDiskOn) {
  const Experiment experiment = experiment_of(kBusy);
  MemorySink sink(1000);
  const auto written = write_trace(experiment, run_one(experiment), sink);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::kLimit);
  EXPECT_THAT(written.error().what, HasSubstr("no space left"));
}

TEST(Run, KeepsRecordsOfTheFirstReplicationAlone) {
  const Experiment experiment = experiment_of(kBusy);
  RunControl control;
  const auto runs = run_replications(experiment, 2, 1, {.records_of_first = true}, control);
  ASSERT_TRUE(runs);
  EXPECT_NE(runs->finished[0].records, nullptr);
  EXPECT_EQ(runs->finished[1].records, nullptr);
}

}  // namespace
}  // namespace kansoku::simulate
