// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "fleet/collector.h"
#include "fleet/hosts_for_test.h"

namespace kansoku::fleet {
namespace {

using test::HostForTest;
using test::kBeginNs;

/// The model of the one job of some hosts after some minutes; host `odd` has all values doubled.
std::optional<FleetModel> model_of(int host_count, int odd, int minutes,
                                   CollectorOptions options = {},
                                   std::uint64_t* unlearnt = nullptr) {
  Collector collector(std::move(options));
  std::vector<HostForTest> hosts;
  for (int i = 0; i < host_count; ++i) {
    HostForTest::Options own{.index = i, .hosts_a_job = host_count, .with_rows = true};
    own.factor = i == odd ? 2 : 1;
    hosts.emplace_back(own);
  }
  CollectorTime now{};
  for (int minute = 1; minute <= minutes; ++minute) {
    const std::int64_t elapsed = minute * std::int64_t{60'000'000'000};
    now = {boot_time(elapsed), kBeginNs + elapsed};
    for (HostForTest& host : hosts)
      EXPECT_TRUE(collector.add(as_bytes(host.minute(minute)), now).has_value());
  }
  const FleetReport report = collector.report(now);
  if (unlearnt != nullptr) *unlearnt = report.unlearnt_parts;
  return report.jobs.size() == 1 ? report.jobs[0].model : std::nullopt;
}

TEST(ClusterStore, NamesTheHostThatIsNotAsItsPeers) {
  const auto model = model_of(8, 5, 4);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->hosts, 8U);
  EXPECT_EQ(model->features.size(), 8U);
  EXPECT_GE(model->modes, 1);
  EXPECT_GT(model->rows, 8U * 4 * 60 * 3);
  ASSERT_EQ(model->odd.size(), 1U);
  EXPECT_EQ(model->odd_count, 1U);
  EXPECT_EQ(model->odd[0].host, "node0005");
  EXPECT_GT(model->odd[0].spreads, 6);
  EXPECT_NEAR(model->odd[0].seen / model->odd[0].usual, 2, 0.1);
}

TEST(ClusterStore, HostsThatAreAlikeFit) {
  const auto model = model_of(8, -1, 4);
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->odd.empty());
}

TEST(ClusterStore, ThreeHostsAreTooFewToCallOneOdd) {
  const auto model = model_of(3, 1, 4);
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->odd.empty());
}

TEST(ClusterStore, IsBoundedInJobsAndInPartsOfASlot) {
  CollectorOptions options;
  options.cluster_jobs_max = 0;
  std::uint64_t unlearnt = 0;
  EXPECT_FALSE(model_of(4, -1, 3, options, &unlearnt).has_value());
  EXPECT_EQ(unlearnt, 4U * 3);
  options = {};
  options.cluster_parts_max = 2;
  const auto model = model_of(4, -1, 3, options, &unlearnt);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->hosts, 4U);
  EXPECT_EQ(unlearnt, 2U * 3);
}

TEST(ClusterStore, AHostWithOtherFeaturesIsCountedAndLeftOut) {
  Collector collector(CollectorOptions{});
  std::vector<HostForTest> hosts;
  for (int i = 0; i < 4; ++i)  // the last one's agent is of another version
    hosts.emplace_back(
        HostForTest::Options{.index = i, .features = i == 3 ? 9 : 8, .with_rows = true});
  CollectorTime now{};
  for (int minute = 1; minute <= 4; ++minute) {
    const std::int64_t elapsed = minute * std::int64_t{60'000'000'000};
    now = {boot_time(elapsed), kBeginNs + elapsed};
    for (HostForTest& host : hosts)
      ASSERT_TRUE(collector.add(as_bytes(host.minute(minute)), now).has_value());
  }
  const FleetReport report = collector.report(now);
  EXPECT_EQ(report.loss.unlike, 4U);
  ASSERT_TRUE(report.jobs.at(0).model.has_value());
  EXPECT_EQ(report.jobs.at(0).model->hosts, 3U);
}

// Whoever is heard first in each slot.
TEST(ClusterStore, WhatMostHostsHaveIsLearntThoughAnotherCameFirst) {
  Collector collector(CollectorOptions{});
  std::vector<HostForTest> hosts;
  for (int i = 0; i < 4; ++i)
    hosts.emplace_back(
        HostForTest::Options{.index = i, .features = i == 0 ? 9 : 8, .with_rows = true});
  CollectorTime now{};
  for (int minute = 1; minute <= 6; ++minute) {
    const std::int64_t elapsed = minute * std::int64_t{60'000'000'000};
    now = {boot_time(elapsed), kBeginNs + elapsed};
    for (HostForTest& host : hosts)
      ASSERT_TRUE(collector.add(as_bytes(host.minute(minute)), now).has_value());
  }
  const FleetReport report = collector.report(now);
  EXPECT_EQ(report.loss.unlike, 2U * 3 + 4) << "three in two minutes, then one a minute";
  ASSERT_TRUE(report.jobs.at(0).model.has_value());
  EXPECT_EQ(report.jobs.at(0).model->hosts, 3U);
  EXPECT_EQ(report.jobs.at(0).model->features.size(), 8U);
}

TEST(ClusterStore, ForgetsAJobThatIsOver) {
  CollectorOptions options;
  options.slots = 4;
  Collector collector(options);
  std::vector<HostForTest> hosts;
  for (int i = 0; i < 4; ++i)
    hosts.emplace_back(HostForTest::Options{.index = i, .with_rows = true});
  const auto time = [](int minute) {
    const std::int64_t elapsed = minute * std::int64_t{60'000'000'000};
    return CollectorTime{boot_time(elapsed), kBeginNs + elapsed};
  };
  for (int minute = 1; minute <= 3; ++minute)
    for (HostForTest& host : hosts)
      ASSERT_TRUE(collector.add(as_bytes(host.minute(minute)), time(minute)).has_value());
  EXPECT_TRUE(collector.report(time(3)).jobs.at(0).model.has_value());
  for (int minute = 4; minute <= 12; ++minute)
    static_cast<void>(collector.report(time(minute)));
  for (HostForTest& host : hosts)  // it begins anew: nothing is left of before
    ASSERT_TRUE(collector.add(as_bytes(host.minute(13)), time(13)).has_value());
  EXPECT_FALSE(collector.report(time(13)).jobs.at(0).model.has_value());
}

}  // namespace
}  // namespace kansoku::fleet
