// SPDX-License-Identifier: Apache-2.0
#include "agent/status.h"

#include <gtest/gtest.h>

namespace kansoku::agent {
namespace {

StatusView view() {
  StatusView out;
  out.host = "h";
  out.figures.lowered_probes = 3;
  out.figures.slowness = 4;
  Delivery& webhook = out.deliveries.emplace_back();
  webhook.target = "webhook";
  webhook.counts.failed = 2;
  webhook.counts.last_error = "404";
  JobTable::JobStatus& job = out.jobs.emplace_back();
  job.name = "job";
  job.detector.failed_fits = 2;
  job.detector.fit_problem = "too few rows";
  job.detector.ranks.push_back({3, 7, 12.5, true});
  out.incidents.resize(3);
  out.incidents[0].job = out.incidents[1].job = "job";
  return out;
}

TEST(Status, HasItsSchemaAndWhatThereIsToTell) {
  const Json said = status_json(view());
  EXPECT_EQ(said.at("schema").as_string(), "kansoku.watch_status/1");
  EXPECT_EQ(said.at("host").as_string(), "h");
  EXPECT_EQ(said.at("lowered_probes").as_int(), 3);
  EXPECT_EQ(said.at("look_every").as_int(), 4);
  EXPECT_EQ(said.at("deliveries").at(0).at("failed").as_int(), 2);
  EXPECT_EQ(said.at("deliveries").at(0).at("problem").as_string(), "404");
  const Json job = said.at("jobs").at(0);
  EXPECT_EQ(job.at("incidents").size(), 2U) << "its own";
  EXPECT_EQ(job.at("failed_fits").as_int(), 2);
  EXPECT_EQ(job.at("fit_problem").as_string(), "too few rows");
}

STAT(device_lost_for_test, kDataLoss, kCapture, "fell off the bus");

TEST(Status, SourcesTellOfThemselves) {
  StatusView asked = view();
  SourceStatus& devices = asked.sources.emplace_back();
  devices.name = "devices";
  devices.state = "2 by libgpu.so";
  devices.cpu_s = 0.5;
  devices.losses.add(device_lost_for_test, 3);
  const Json said = status_json(asked);
  const Json source = said.at("sources").at(0);
  EXPECT_EQ(source.at("name").as_string(), "devices");
  EXPECT_EQ(source.at("cpu_s").as_double(), 0.5);
  EXPECT_EQ(source.at("losses").at("device_lost_for_test").as_int(), 3);
  // As they were told before there were sources.
  EXPECT_EQ(said.at("devices").as_string(), "2 by libgpu.so");
  EXPECT_EQ(said.at("device_calls").at("lost_for_test").as_int(), 3);
}

TEST(Status, ScoresOfBeforeAPauseAreNotTold) {
  StatusView asked = view();
  const auto rank = [&] { return status_json(asked).at("jobs").at(0).at("ranks").at(0); };
  EXPECT_EQ(rank().at("score").as_double(), 12.5);
  EXPECT_TRUE(rank().at("flagged").as_bool());
  asked.is_paused = true;
  EXPECT_FALSE(rank().at("score").is_number());
  EXPECT_FALSE(rank().at("flagged").as_bool());
}

}  // namespace
}  // namespace kansoku::agent
