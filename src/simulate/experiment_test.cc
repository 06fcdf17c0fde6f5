// SPDX-License-Identifier: Apache-2.0
#include "simulate/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "simulate/experiments_for_test.h"

namespace kansoku::simulate {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSmall = R"(horizon = "1d"
[clusters.c]
slots = 2
[pipelines.p]
arrivals = {kind = "poisson", per_hour = 60}
[[pipelines.p.tasks]]
cluster = "c"
duration = 10
)";

std::string mistakes(std::string_view toml) {
  MapLoader loader;
  const auto experiment = parse_experiment(toml, "t.toml", {}, loader);
  EXPECT_FALSE(experiment);
  if (experiment) return "";
  EXPECT_EQ(experiment.error().code, Code::kCorrupt);
  return experiment.error().what;
}

std::string with(std::string_view line_after_slots) {
  std::string text(kSmall);
  text.insert(text.find("[pipelines.p]"), std::string(line_after_slots) + "\n");
  return text;
}

TEST(Experiment, ReadsTheSmallestOne) {
  const Experiment experiment = parsed(kSmall);
  EXPECT_EQ(experiment.horizon, std::chrono::hours{24});
  EXPECT_EQ(experiment.clusters.at(0).slots, 2);
  EXPECT_EQ(experiment.pipelines.at(0).tasks.at(0).name, "task0");
  EXPECT_TRUE(experiment.pipelines.at(0).chain);
}

TEST(Experiment, NamesFileLineAndKey) {
  EXPECT_EQ(mistakes(with("scheduler = \"lifo\"")),
            "t.toml:4: clusters.c.scheduler: scheduler \"lifo\": unknown; there are fifo, "
            "priority, shortest, fair_share, backfill, improvement");
  EXPECT_EQ(mistakes(with("shceduler = \"fifo\"")),
            "t.toml:4: clusters.c.shceduler: is not a key of this table; meant `scheduler`?");
  EXPECT_EQ(mistakes(with("mtbf = \"1h\"")),
            "t.toml:4: clusters.c.mtbf: slots do not fail; give the cluster nodes");
  EXPECT_EQ(mistakes(with("nodes = [{gpus = 8}]")),
            "t.toml:3: clusters.c.slots: a cluster has either slots or nodes");
  EXPECT_EQ(mistakes(with("nodes = 7")), "t.toml:4: clusters.c.nodes: must be a list of tables");
  EXPECT_EQ(mistakes(with("quotas = {a = -1}")),
            "t.toml:4: clusters.c.quotas.a: must be a whole number from 0 to 4611686018427387903");
}

TEST(Experiment, TellsAllMistakesAtOnce) {
  const std::string text = mistakes(
      "horizon = -1\nwarmup = \"x\"\n[clusters.c]\nslots = "
      "0\n[pipelines.p]\n[[pipelines.p.tasks]]\n"
      "cluster = \"d\"\nprobability = 2\n");
  EXPECT_THAT(text, HasSubstr("t.toml:1: horizon: must be a duration"));
  EXPECT_THAT(text, HasSubstr("t.toml:2: warmup: must be a duration"));
  EXPECT_THAT(text, HasSubstr("t.toml:4: clusters.c.slots: must be a whole number from 1 to"));
  EXPECT_THAT(text, HasSubstr("t.toml:7: pipelines.p.tasks[0].cluster: there is no cluster \"d\"; "
                              "there are: c"));
  EXPECT_THAT(text, HasSubstr("t.toml:8: pipelines.p.tasks[0].probability: must be from 0 to 1"));
  EXPECT_THAT(text, HasSubstr("t.toml:6: pipelines.p.tasks[0].duration: is missing"));
}

TEST(Experiment, RefusesAnInfiniteMean) {
  std::string text(kSmall);
  text.replace(text.find("duration = 10"), 13,
               "duration = {family = \"pareto\", b = 0.9, scale = 1.0}");
  EXPECT_EQ(
      mistakes(text),
      "t.toml:8: pipelines.p.tasks[0].duration: has no finite mean: one draw would decide the "
      "load; give it a cap");
  text.replace(text.find("scale = 1.0"), 11, "scale = 1.0, cap = 1e6");
  EXPECT_TRUE(parsed(text).pipelines.at(0).tasks.at(0).duration.mean() > 1);
}

TEST(Experiment, PutsTasksInOrderAndRefusesCycles) {
  const std::string head = "horizon = 10\n[clusters.c]\nslots = 1\n[pipelines.p]\n";
  const auto task = [](const std::string& name, const std::string& after) {
    return "[[pipelines.p.tasks]]\nname = \"" + name +
           "\"\ncluster = \"c\"\nduration = 1\nafter = [" + after + "]\n";
  };
  const Experiment experiment =
      parsed(head + task("b", "\"a\"") + task("a", "") + task("c", "\"a\", \"b\""));
  const auto& tasks = experiment.pipelines.at(0).tasks;
  EXPECT_EQ(tasks.at(0).name, "a");
  EXPECT_EQ(tasks.at(2).name, "c");
  EXPECT_EQ(tasks.at(2).after, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_THAT(mistakes(head + task("a", "\"b\"") + task("b", "\"a\"")),
              HasSubstr("t.toml:9: pipelines.p.tasks[0].after: the task waits for itself"));
  EXPECT_THAT(mistakes(head + task("a", "\"z\"")), HasSubstr("there is no task \"z\""));
  EXPECT_THAT(mistakes(head + task("a", "") + task("a", "")), HasSubstr("there are two tasks"));
}

TEST(Experiment, TakesOverrides) {
  EXPECT_EQ(parsed(kSmall, {{"clusters.c.slots", "7"}}).clusters.at(0).slots, 7);
  EXPECT_EQ(parsed(kSmall, {{"clusters.c.scheduler", "shortest"}}).clusters.at(0).scheduler,
            "shortest");
  EXPECT_EQ(
      parsed(kSmall, {{"pipelines.p.tasks[0].name", "\"t\""}}).pipelines.at(0).tasks.at(0).name,
      "t");
  MapLoader loader;
  const auto wrong =
      parse_experiment(kSmall, "t.toml", {{"pipelines.p.tasks[3].name", "x"}}, loader);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().what, HasSubstr("there is no such element"));
}

TEST(Experiment, SaysWhichFileIsMissing) {
  std::string text(kSmall);
  text.replace(text.find("{kind"), text.find("}\n") - text.find("{kind") + 1,
               "{kind = \"trace\", file = \"none.csv\"}");
  EXPECT_EQ(mistakes(text), "t.toml:5: pipelines.p.arrivals.file: open none.csv: no such file");
}

TEST(Experiment, TakesRatesOfADay) {
  std::string text(kSmall);
  const std::size_t at = text.find("{kind"), end = text.find("}\n") + 1;
  std::string rates;
  for (int hour = 0; hour < 24; ++hour)
    rates += (hour == 0 ? "" : ", ") + std::to_string(hour);
  text.replace(at, end - at, "{kind = \"hourly\", per_hour = [" + rates + "]}");
  const auto model = parsed(text).pipelines.at(0).arrivals;
  ASSERT_EQ(model->rates.size(), 168U);
  EXPECT_EQ(model->rates[30], 6);
  EXPECT_NEAR(metric(simulated(parsed(text, {{"horizon", "\"70d\""}})), "pipeline.p.arrived"),
              70 * 276, 6 * std::sqrt(70 * 276.0));
  text.replace(text.find("[0, "), 4, "[");
  EXPECT_THAT(mistakes(text), HasSubstr("must be 24 rates (of a day) or 168"));
}

TEST(Experiment, RefusesWhatCouldNeverRun) {
  const std::string text =
      "horizon = 10\n[clusters.c]\nnodes = [{gpus = 4, cpus = 8}]\n[pipelines.p]\n"
      "asset_bytes = \"4G\"\n[[pipelines.p.tasks]]\nname = \"a\"\ncluster = \"c\"\n"
      "duration = 1\ngpus = ";
  EXPECT_EQ(parsed(text + "4").pipelines.at(0).asset_bytes.mean(), 4.0 * (1 << 30));
  EXPECT_EQ(
      mistakes(text + "5"),
      "t.toml:10: pipelines.p.tasks[0].gpus: no node of c has the gpus, cpus and memory of one "
      "pod");
  EXPECT_THAT(mistakes(text + "4\n[[pipelines.p.tasks]]\nname = \"a\"\ncluster = \"c\"\n"
                              "duration = 1\ngpus = 1"),
              HasSubstr("t.toml:12: pipelines.p.tasks[1].name: there are two tasks \"a\""));
}

}  // namespace
}  // namespace kansoku::simulate
