// SPDX-License-Identifier: Apache-2.0
#include "simulate/run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "simulate/experiments_for_test.h"
#include "simulate/graphs.h"
#include "simulate/internal/level.h"
#include "simulate/internal/platform.h"
#include "simulate/summary.h"
#include "simulate/synthesize.h"

namespace kansoku::simulate {
namespace {

/// Replays jobs on a cluster whose tables are given.
struct Replayed {
  Experiment experiment;
  Replication run;
  [[nodiscard]] std::string text() const { return timeline(experiment, run); }
};

Replayed replay(const std::vector<TestJob>& jobs, const std::string& cluster,
                const std::string& pipeline = "") {
  MapLoader loader;
  loader.workloads["jobs"] = workload_of(jobs);
  auto experiment =
      parse_experiment("horizon = 10000\ndrain = true\n[clusters.c]\n" + cluster +
                           "\n[pipelines.p]\njobs = true\ncluster = \"c\"\n" + pipeline +
                           "\n[pipelines.p.arrivals]\nkind = \"trace\"\nfile = \"jobs\"\n",
                       "t.toml", {}, loader);
  if (!experiment) {
    ADD_FAILURE() << experiment.error().what;
    return {};
  }
  Replayed out{std::move(experiment).value(), {}};
  out.run = simulated(out.experiment);
  return out;
}

TEST(Run, QueuesGangsStrictly) {
  // 4 GPUs. 0 takes 3; 1 wants 2 and waits; 2 wants 1 and would fit, but stands behind.
  const Replayed replayed = replay({{0, 10, 3}, {1, 5, 2}, {2, 1, 1}}, "slots = 4");
  EXPECT_EQ(replayed.text(), "job0@0+0..10 job2@2+8..11 job1@1+9..15");
  EXPECT_EQ(metric(replayed.run, "task.p.job.wait_mean_s"), 17.0 / 3);
}

TEST(Run, BackfillsWithoutDelay) {
  const Replayed replayed =
      replay({{0, 10, 3}, {1, 5, 2}, {2, 1, 1}, {3, 20, 1}}, "slots = 4\nscheduler = \"backfill\"");
  // 2 ends before 10; 3 would not, but one GPU is spare then: 4 - 2 = 2 of which it takes 1.
  EXPECT_EQ(replayed.text(), "job2@2+0..3 job0@0+0..10 job1@1+9..15 job3@3+0..23");
}

TEST(Run, KeepsQuotasOfGroups) {
  const Replayed replayed = replay({{0, 10, 1, "a"}, {1, 10, 1, "a"}, {2, 10, 1, "b"}},
                                   "slots = 3\nquotas = {a = 1, b = 2}");
  EXPECT_EQ(replayed.text(), "job0@0+0..10 job2@2+0..12 job1@1+9..20");
}

TEST(Run, DropsWhatNeverFitsOrCutsItDown) {
  const Replayed dropped = replay({{0, 10, 9}, {1, 5, 1}}, "slots = 4");
  EXPECT_EQ(metric(dropped.run, "pipeline.p.dropped"), 1);
  EXPECT_EQ(metric(dropped.run, "pipeline.p.finished"), 1);
  const Replayed cut = replay({{0, 10, 9}, {1, 5, 1}}, "slots = 4", "clamp_oversized = true");
  EXPECT_EQ(cut.text(), "job0@0+0..10 job1@1+9..15");
}

TEST(Run, PlacesGangsOnNodes) {
  // Two nodes of 4. 6 GPUs become pods of 4 and 2... of 4 each: 8 in all; the next one waits.
  const Replayed replayed =
      replay({{0, 10, 6}, {1, 5, 2}}, "nodes = [{count = 2, gpus = 4}]", "gpus_per_pod = 3");
  EXPECT_EQ(replayed.text(), "job0@0+0..10 job1@1+9..15");
  EXPECT_DOUBLE_EQ(metric(replayed.run, "cluster.c.unit_hours"), (60 + 10) / 3600.0);
}

TEST(Run, GangsWaitUntilAllPodsFit) {
  // Three nodes of 4. First fit: 0 and 1 on the first node, 2 on the second: 2 + 4 are free, enough
  // GPUs for two pods of 3, but places for one only. At 20 the first node is empty.
  const Replayed replayed = replay({{0, 10, 2}, {0, 20, 2}, {0, 30, 2}, {1, 5, 6}},
                                   "nodes = [{count = 3, gpus = 4}]", "gpus_per_pod = 3");
  EXPECT_EQ(replayed.text(), "job0@0+0..10 job1@0+0..20 job3@1+19..25 job2@0+0..30");
}

TEST(Run, GangsGoAtTheSpeedOfTheSlowest) {
  const Replayed replayed =
      replay({{0, 10, 2}}, "nodes = [{gpus = 1, speed = 0.5}, {gpus = 1, speed = 2.0}]");
  EXPECT_EQ(replayed.text(), "job0@0+0..20");
}

TEST(Run, SlowNodesTakeLonger) {
  const Replayed replayed = replay({{0, 10, 1}, {0, 10, 1}},
                                   "nodes = [{gpus = 1, speed = 2.0}, {gpus = 1, speed = 0.5}]");
  EXPECT_EQ(replayed.text(), "job0@0+0..5 job1@0+0..20");
}

constexpr std::string_view kTwoPriorities = R"(horizon = 100
drain = true
[clusters.c]
slots = 1
scheduler = "priority"
preemptive = true
{}
[pipelines.batch]
arrivals = {{kind = "constant", every = 60}}
[[pipelines.batch.tasks]]
name = "batch"
cluster = "c"
duration = 20
priority = 5
[pipelines.urgent]
arrivals = {{kind = "constant", every = 70}}
[[pipelines.urgent.tasks]]
name = "urgent"
cluster = "c"
duration = 3
)";

TEST(Run, PreemptsAndLosesOrKeepsWork) {
  // Batch starts at 60, the urgent one comes at 70 and takes the slot until 73.
  const auto text = [](std::string_view lost) {
    const Experiment experiment = parsed(fmt::format(kTwoPriorities, lost));
    return timeline(experiment, simulated(experiment));
  };
  EXPECT_EQ(text(""), "urgent1@70+0..73 batch0@60+13..93!1");
  EXPECT_EQ(text("lost_work = \"none\""), "urgent1@70+0..73 batch0@60+13..83!1");
  EXPECT_EQ(text("lost_work = \"since_checkpoint\"\ncheckpoint = 4"),
            "urgent1@70+0..73 batch0@60+13..85!1");
}

TEST(Run, FailingNodesRestartTasksUpToTheLimit) {
  const std::string toml = R"(horizon = "30d"
drain = true
[clusters.c]
nodes = [{count = 4, gpus = 2}]
mtbf = "20h"
mttr = "1h"
retries_max = 2
[pipelines.p]
arrivals = {kind = "poisson", per_hour = 1}
[[pipelines.p.tasks]]
cluster = "c"
gpus = 1
duration = "4h"
)";
  const Experiment experiment = parsed(toml);
  const Replication run = simulated(experiment);
  EXPECT_GT(metric(run, "cluster.c.node_failures"), 50);
  EXPECT_GT(metric(run, "task.p.task0.restarts"), 20);
  EXPECT_GT(metric(run, "pipeline.p.failed"), 0);
  EXPECT_EQ(metric(run, "pipeline.p.failed"), metric(run, "task.p.task0.failed"));
  EXPECT_EQ(metric(run, "pipeline.p.arrived"),
            metric(run, "pipeline.p.finished") + metric(run, "pipeline.p.failed"));
  // A node is down 1 of 21 hours.
  EXPECT_NEAR(metric(run, "cluster.c.down_share"), 1.0 / 21, 0.02);
}

TEST(Run, RunsGraphsAndJoinsThem) {
  const Experiment experiment = parsed(R"(horizon = 15
drain = true
[clusters.c]
slots = 4
[pipelines.p]
arrivals = {kind = "constant", every = 10}
[[pipelines.p.tasks]]
name = "a"
cluster = "c"
duration = 1
after = []
[[pipelines.p.tasks]]
name = "b"
cluster = "c"
duration = 2
after = ["a"]
[[pipelines.p.tasks]]
name = "c"
cluster = "c"
duration = 5
after = ["a"]
[[pipelines.p.tasks]]
name = "d"
cluster = "c"
duration = 1
after = ["b", "c"]
)");
  EXPECT_EQ(timeline(experiment, simulated(experiment)),
            "a0@10+0..11 b0@11+0..13 c0@11+0..16 d0@16+0..17");
}

TEST(Run, MovesAssetsThroughStores) {
  const Experiment experiment = parsed(R"(horizon = 15
drain = true
[clusters.c]
slots = 4
[stores.s]
read_bandwidth = 100
write_bandwidth = 10
streams = 1
[pipelines.p]
asset_bytes = 300
arrivals = {kind = "constant", every = 7}
[[pipelines.p.tasks]]
cluster = "c"
duration = 1
store = "s"
reads = "asset"
writes = 20
)");
  const Replication run = simulated(experiment);
  // 7: reads 3 s, runs 1 s, writes 2 s; 14: the same, the stream is free again at 13.
  EXPECT_EQ(timeline(experiment, run), "task00@10+0..11 task01@17+0..18");
  EXPECT_EQ(metric(run, "store.s.bytes_read"), 600);
  EXPECT_DOUBLE_EQ(metric(run, "pipeline.p.sojourn_mean_s"), 6);
}

constexpr std::string_view kMmc = R"(horizon = 40000
warmup = 2000
[clusters.c]
slots = 5
[pipelines.p]
arrivals = {kind = "renewal", interarrival = {family = "exponential", scale = 0.2857142857142857}}
[[pipelines.p.tasks]]
cluster = "c"
duration = {family = "exponential", scale = 1.0}
)";

TEST(Run, AgreesWithErlangC) {
  // M/M/5 at load 0.7: Wq = C / (c mu (1 - rho)) = 0.251892.
  const Experiment experiment = parsed(kMmc);
  RunControl control;
  const auto runs = run_replications(experiment, 10, 2, {}, control);
  ASSERT_TRUE(runs);
  std::vector<double> waits;
  for (const Replication& run : runs->finished)
    waits.push_back(metric(run, "task.p.task0.wait_mean_s"));
  const Estimate of = estimate(waits);
  EXPECT_NEAR(of.mean, 0.251892, 4 * of.sd / std::sqrt(10));
  EXPECT_LT(of.sd, 0.02);
}

TEST(Run, GivesTheSameBytesOnAnyNumberOfThreads) {
  const Experiment experiment = parsed(kMmc, {{"horizon", "3000"}});
  const auto bytes = [&](int threads) {
    RunControl control;
    const auto runs = run_replications(experiment, 5, threads, {.records = true}, control);
    MemorySink sink;
    RecordWriter writer(sink);
    for (const Replication& run : runs->finished)
      EXPECT_TRUE(writer.write(experiment, run.index, *run.records));
    return sink.data() + summarize(experiment, *runs).dump();
  };
  const std::string one = bytes(1);
  EXPECT_GT(one.size(), 100'000U);
  EXPECT_EQ(one, bytes(2));
  EXPECT_EQ(one, bytes(8));
}

TEST(Run, ShowsPoliciesTheSameRandomness) {
  const std::string toml = R"(horizon = "2d"
drain = true
[clusters.c]
slots = 2
[pipelines.p]
arrivals = {kind = "poisson", per_hour = 100}
[[pipelines.p.tasks]]
cluster = "c"
duration = {family = "lognormal", sigma = 1.5, scale = 20.0}
)";
  const auto executions = [&](const std::string& scheduler) {
    const Experiment experiment = parsed(toml, {{"clusters.c.scheduler", scheduler}});
    const Replication run = simulated(experiment);
    std::map<std::uint32_t, Nanos> by_run;
    for (std::uint64_t i = 0; i < run.records->size(); ++i)
      by_run[(*run.records)[i].run] = (*run.records)[i].ended - (*run.records)[i].started;
    return std::pair(by_run, metric(run, "task.p.task0.wait_mean_s"));
  };
  const auto fifo = executions("fifo"), shortest = executions("shortest");
  EXPECT_EQ(fifo.first, shortest.first);
  EXPECT_LT(shortest.second, 0.7 * fifo.second);
}

TEST(Run, EffectsReachTheModel) {
  const Experiment experiment = parsed(R"(horizon = "10d"
[clusters.c]
slots = 1
[pipelines.p]
[[pipelines.p.tasks]]
kind = "train"
cluster = "c"
duration = 3600
performance = 0.9
size_bytes = 1000
[[pipelines.p.tasks]]
kind = "compress"
cluster = "c"
duration = 60
pruned = 0.25
table = [[0.0, 0.0, 1.0, 1.0], [0.5, -0.04, 0.5, 0.6]]
[[pipelines.p.tasks]]
kind = "evaluate"
cluster = "c"
duration = 60
gate = 0.5
[[pipelines.p.tasks]]
kind = "deploy"
cluster = "c"
duration = 1
[models.m]
pipeline = "p"
performance = 0.5
trigger = "periodic"
period = "5d"
)");
  const Replication run = simulated(experiment);
  EXPECT_EQ(metric(run, "models.m.retrainings"), 1);
  EXPECT_EQ(metric(run, "models.m.promoted"), 1);
  // 0.5 until 5 d and 3721 s, then 0.9 - 0.02.
  const double until = (5 * 86400 + 3721) / 864000.0;
  EXPECT_NEAR(metric(run, "models.m.performance_mean"), 0.5 * until + 0.88 * (1 - until), 1e-9);
  EXPECT_NEAR(metric(run, "models.m.retraining_unit_hours"), 3721 / 3600.0, 1e-9);
}

TEST(Run, ModelsStartAtTheirAge) {
  // Half of a plain logistic of floor 0.4 is lost 10 days after training; deployed 4 days old.
  const Experiment experiment = parsed(R"(horizon = "20d"
[clusters.c]
slots = 1
[pipelines.p]
[[pipelines.p.tasks]]
kind = "train"
cluster = "c"
duration = 1
performance = 0.9
[models.m]
pipeline = "p"
performance = 0.9
age = "4d"
drift = {kind = "gradual", floor = 0.4, rate_per_day = 2.0, inflection = "10d"}
trigger = "threshold"
loss = 0.2
)");
  const Replication run = simulated(experiment);
  ASSERT_EQ(run.records->size(), 2U);
  EXPECT_NEAR(static_cast<double>((*run.records)[0].queued.count()) / 86400e9, 6, 1e-6);
  EXPECT_NEAR(static_cast<double>((*run.records)[1].queued.count()) / 86400e9, 16, 1e-3);
}

TEST(Estimate, RoundingIsNoSpread) {
  const Estimate same = estimate({0.1 + 0.2, 0.3, 0.3});
  EXPECT_EQ(same.low, same.high);
  const Estimate two = estimate({1, 3});
  EXPECT_NEAR(two.high - two.mean, 12.7062, 1e-4);  // t of 1 degree, sd sqrt(2), over sqrt(2)
}

/// Models of performance 0.9 whose retraining takes no time to speak of and gives 0.5.
Replication worsened(const std::string& more) {
  return simulated(parsed(R"(horizon = "10d"
[clusters.c]
slots = 1
[pipelines.p]
[[pipelines.p.tasks]]
kind = "train"
cluster = "c"
duration = 1e-3
performance = 0.5
[[pipelines.p.tasks]]
kind = "evaluate"
cluster = "c"
duration = 1e-3
[models.m]
pipeline = "p"
performance = 0.9
trigger = "periodic"
period = "4d"
)" + more));
}

TEST(Run, TheGateKeepsWorseModelsOut) {
  const Replication gated = worsened("promotion_margin = 0.0\n");
  EXPECT_EQ(metric(gated, "models.m.refused"), 2);
  EXPECT_NEAR(metric(gated, "models.m.performance_mean"), 0.9, 1e-9);
  const Replication open = worsened("");
  EXPECT_EQ(metric(open, "models.m.promoted"), 2);
  EXPECT_NEAR(metric(open, "models.m.performance_mean"), 0.9 * 0.4 + 0.5 * 0.6, 1e-6);
}

TEST(Run, RollsBackToTheModelBefore) {
  const Replication run = worsened("rollback = true\nrollback_after = \"1d\"\n");
  EXPECT_EQ(metric(run, "models.m.rolled_back"), 2);
  EXPECT_NEAR(metric(run, "models.m.performance_mean"), 0.9 * 0.8 + 0.5 * 0.2, 1e-6);
}

TEST(Run, CoolsDownBetweenRetrainings) {
  EXPECT_EQ(metric(worsened("cooldown = \"3d\"\n"), "models.m.retrainings"), 2);  // days 4 and 8
  EXPECT_EQ(metric(worsened("cooldown = \"5d\"\n"), "models.m.retrainings"), 1);  // 4; 12 is late
}

class EveryTrigger : public ::testing::TestWithParam<const char*> {};

/// A year of ten models under one kind of drift; `trigger` and its numbers come last.
double cost_under(const std::string& drift, const std::string& trigger, double retrain_cost) {
  const Experiment experiment = parsed(fmt::format(R"(horizon = "365d"
[clusters.c]
slots = 10
[pipelines.p]
[[pipelines.p.tasks]]
kind = "train"
cluster = "c"
duration = "1h"
performance = 0.9
[models.m]
count = 10
pipeline = "p"
performance = 0.9
drift = {}
trigger = {}
value_per_loss_hour = 1.0
retrain_cost = {}
)",
                                                   drift, trigger, retrain_cost));
  return metric(simulated(experiment), "models.m.cost");
}

TEST_P(EveryTrigger, CostsNoLessThanTheOracle) {
  const std::string drift = GetParam();
  for (const double retrain_cost : {2.0, 20.0, 1e6}) {
    const double oracle = cost_under(drift, "\"oracle\"", retrain_cost);
    const double never = cost_under(drift, "\"never\"", retrain_cost);
    // Its grid is a four-hundredth of the horizon: that much may be lost.
    const double slack = 1.02;
    EXPECT_LE(oracle, never * (1 + 1e-9));
    EXPECT_TRUE(retrain_cost < 1e6 || std::abs(oracle - never) < 1e-6 * never);
    for (const char* const trigger :
         {"\"periodic\"\nperiod = \"20d\"", "\"staleness\"\nperiod = \"45d\"",
          "\"threshold\"\nloss = 0.03", "\"cumulative\"\nloss_hours = 10.0", "\"cost_aware\""})
      EXPECT_LE(oracle, slack * cost_under(drift, trigger, retrain_cost)) << trigger;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Drifts, EveryTrigger,
    ::testing::Values(
        "{kind = \"gradual\", floor = 0.3, rate_per_day = 0.2, inflection = \"20d\"}",
        "{kind = \"sudden\", every = \"40d\", jump = 0.05}",
        "{kind = \"recurring\", amplitude = 0.2, period = \"60d\"}",
        "{kind = \"replayed\", points = [[0, 0], [10, 0.02], [40, 0.15], [80, 0.1]]}"));

// Once an endless loop at one instant.
TEST(Run, RetrainingWithoutTimeOrSuccessGoesOn) {
  const Experiment experiment = parsed(R"(horizon = 1000
[clusters.c]
slots = 1
[pipelines.p]
[[pipelines.p.tasks]]
kind = "train"
cluster = "c"
duration = 0
performance = 0.5
[[pipelines.p.tasks]]
kind = "evaluate"
cluster = "c"
duration = 0
gate = 0.95
[models.m]
pipeline = "p"
trigger = "staleness"
period = 100
)");
  const Replication run = simulated(experiment);
  EXPECT_EQ(metric(run, "models.m.retrainings"), 900);  // one a second from 100 on
  EXPECT_EQ(metric(run, "models.m.refused"), 900);
  EXPECT_EQ((*run.records)[1].end, TaskEnd::kRefused);
  EXPECT_EQ((*run.records)[0].end, TaskEnd::kDone);
}

TEST(Run, BrokenInvariantsNameTimeAndEntity) {
  const Experiment experiment = parsed(kMmc, {{"horizon", "100"}, {"warmup", "0"}});
  auto platform = Platform::make(experiment, 0, {}).value();
  platform->lose_a_run_for_test();
  RunControl control;
  const auto ran = platform->run(control);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, Code::kInternal);
  EXPECT_THAT(ran.error().what,
              ::testing::MatchesRegex("simulate: invariant broken at 100 s: pipelines: .* runs are "
                                      "counted, .* are in the system"));
}

TEST(Level, MeansEndAtTheHorizon) {
  Level level(Nanos{10}, Nanos{40}, 4);
  level.change(Nanos{5}, 2);    // 2 from 5 on
  level.change(Nanos{30}, -1);  // 1 from 30 on
  level.change(Nanos{90}, 5);
  EXPECT_DOUBLE_EQ(level.mean(Nanos{100}), (2 * 20 + 10) / 30.0);
  EXPECT_EQ(level.series(Nanos{100}), (std::vector<double>{1, 2, 2, 1}));
  EXPECT_EQ(static_cast<long>(level.total(Nanos{100})), 50 + 60 + 60);
}

TEST(Run, StopsWhenAsked) {
  RunControl control;
  control.stop = true;
  const auto runs = run_replications(parsed(kMmc), 3, 1, {}, control);
  ASSERT_TRUE(runs);
  EXPECT_TRUE(runs->stopped);
  EXPECT_TRUE(runs->finished.empty());
}

/// Everything at once: gangs on nodes that fail, preemption, quotas, graphs, stores, drifting
/// models.
constexpr std::string_view kEverything = R"(seed = {2}
horizon = "20d"
drain = true
[clusters.gpu]
nodes = [{{count = 3, gpus = 8, cpus = 64, memory = "256G"}}, {{count = 2, gpus = 4, cpus = 32, memory = "64G", speed = 0.5}}]
scheduler = "{0}"
placement = "{1}"
preemptive = true
lost_work = "since_checkpoint"
checkpoint = "10m"
mtbf = "3d"
mttr = "2h"
quotas = {{team = 30000}}
[clusters.cpu]
slots = 3
scheduler = "{0}"
[stores.s]
read_bandwidth = "100M"
streams = 4
[pipelines.build]
group = "team"
asset_bytes = {{family = "lognormal", sigma = 1.0, scale = 1e9}}
arrivals = {{kind = "poisson", per_hour = 6}}
[[pipelines.build.tasks]]
name = "prepare"
cluster = "cpu"
duration = {{family = "gamma", a = 2.0, scale = 200.0}}
store = "s"
reads = "asset"
after = []
[[pipelines.build.tasks]]
name = "gang"
cluster = "gpu"
pods = 2
gpus = 4
cpus = 8
memory = "8G"
priority = 3
duration = {{family = "lognormal", sigma = 1.0, scale = 3000.0}}
after = ["prepare"]
[[pipelines.build.tasks]]
name = "share"
cluster = "gpu"
gpus = 0.5
priority = 1
probability = 0.6
duration = {{family = "weibull", c = 0.7, scale = 900.0}}
after = ["prepare"]
[[pipelines.build.tasks]]
name = "join"
cluster = "cpu"
duration = 30
after = ["gang", "share"]
[pipelines.retrain]
[[pipelines.retrain.tasks]]
kind = "train"
cluster = "gpu"
gpus = 2
duration = "40m"
performance = 0.9
[models.m]
count = 20
pipeline = "retrain"
performance = 0.9
drift = {{kind = "sudden", every = "4d", jump = 0.05}}
trigger = "threshold"
loss = 0.05
)";
std::string everything(const std::string& scheduler, const std::string& placement, int seed) {
  return fmt::format(kEverything, scheduler, placement, seed);
}

class Everything : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Everything, KeepsItsInvariants) {
  const auto& [scheduler, placement] = GetParam();
  for (int seed = 1; seed <= 3; ++seed) {
    const Experiment experiment = parsed(everything(scheduler, placement, seed));
    const Replication run = simulated(experiment);
    EXPECT_EQ(metric(run, "pipeline.build.arrived"),
              metric(run, "pipeline.build.finished") + metric(run, "pipeline.build.failed"));
    EXPECT_GT(metric(run, "cluster.gpu.preemptions"), 0);
    EXPECT_GT(metric(run, "cluster.gpu.node_failures"), 0);
    EXPECT_GT(metric(run, "models.m.retrainings"), 10);
    EXPECT_LE(metric(run, "cluster.gpu.utilisation"), 1);
    EXPECT_EQ(timeline(experiment, run), timeline(experiment, simulated(experiment)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, Everything,
    ::testing::Combine(::testing::Values("fifo", "priority", "shortest", "fair_share", "backfill",
                                         "improvement"),
                       ::testing::Values("first_fit", "best_fit", "fgd", "random")),
    [](const auto& policies) {
      return fmt::format("{}_{}", std::get<0>(policies.param), std::get<1>(policies.param));
    });

TEST(Synthesize, DrawsWhatTheSimulationDraws) {
  const Experiment experiment = parsed(R"(horizon = 4000
drain = true
[clusters.c]
slots = 100000
[stores.s]
read_bandwidth = 1e30
[pipelines.p]
asset_bytes = {family = "lognormal", sigma = 1.0, scale = 1e6}
arrivals = {kind = "poisson", per_hour = 360}
[[pipelines.p.tasks]]
name = "a"
cluster = "c"
duration = {family = "gamma", a = 2.0, scale = 10.0}
store = "s"
reads = "asset"
[[pipelines.p.tasks]]
name = "b"
cluster = "c"
probability = 0.5
duration = {family = "exponential", scale = 5.0}
[[pipelines.p.tasks]]
name = "c"
cluster = "c"
curve = {a = 0.1, b = 1.2}
)");
  const Replication run = simulated(experiment);
  std::map<std::string, std::vector<Nanos>> simulated_durations, drawn_durations;
  for (std::uint64_t i = 0; i < run.records->size(); ++i) {
    const TaskRecord& record = (*run.records)[i];
    simulated_durations[experiment.pipelines[0].tasks[record.task].name].push_back(record.ended -
                                                                                   record.started);
  }
  const auto drawn = synthesize_pipelines(experiment);
  ASSERT_TRUE(drawn);
  for (const Job& job : drawn->jobs)
    drawn_durations[drawn->names[job.name]].push_back(job.duration);
  for (auto* durations : {&simulated_durations, &drawn_durations})
    for (auto& [name, values] : *durations)
      std::sort(values.begin(), values.end());
  EXPECT_EQ(drawn_durations, simulated_durations);
  EXPECT_GT(drawn_durations["a"].size(), drawn_durations["b"].size() + 100);
  EXPECT_EQ(drawn->graphs.size(), drawn_durations["a"].size());
  EXPECT_EQ(drawn->edges.size(), drawn->jobs.size() - drawn->graphs.size());
  EXPECT_GT(drawn->jobs.front().read_bytes, 0);
}

TEST(Graphs, ReplayATaskGraphOnItsMachine) {
  Workload workload = workload_of({{0, 4}, {0, 3}, {0, 2}, {0, 1}});
  workload.names = {"", "a", "b", "c", "d"};
  for (std::uint32_t i = 0; i < 4; ++i) {
    workload.jobs[i].graph = 1;
    workload.jobs[i].name = i + 1;
  }
  workload.edges = {{3, 0}, {0, 1}, {0, 2}};  // d before a, a before b and c
  workload.graphs.push_back({"g", 12.0, 1});
  const auto makespan = [&](int cores, double overhead) {
    const auto experiment = graph_experiment(workload, 0, cores, overhead);
    EXPECT_TRUE(experiment);
    return metric(simulated(*experiment), "pipeline.graph.sojourn_mean_s");
  };
  EXPECT_DOUBLE_EQ(makespan(0, 0), 10);
  EXPECT_DOUBLE_EQ(makespan(2, 0), 1 + 4 + 3);
  EXPECT_DOUBLE_EQ(makespan(1, 0.5), 12);
  EXPECT_NEAR(overhead_per_task_s(workload, 0, 1)->value_or(-1), 0.5, 1e-5);
  // b and c run at the same time: three tasks one after the other.
  EXPECT_NEAR(overhead_per_task_s(workload, 0, 2)->value_or(-1), 4.0 / 3, 1e-5);
  workload.graphs[0].makespan_s = 5;  // shorter than the tasks need: another machine
  EXPECT_EQ(*overhead_per_task_s(workload, 0, 2), std::nullopt);
  workload.graphs[0].makespan_s = 8 - 4e-6;  // rounded: no overhead, and none below 0
  EXPECT_EQ(*overhead_per_task_s(workload, 0, 2), 0);
  workload.graphs[0].makespan_s = -1;
  EXPECT_EQ(*overhead_per_task_s(workload, 0, 2), std::nullopt);
}

}  // namespace
}  // namespace kansoku::simulate
