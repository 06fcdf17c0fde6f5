// SPDX-License-Identifier: Apache-2.0
#include "fleet/collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "fleet/hosts_for_test.h"
#include "fleet/summary_writer.h"

namespace kansoku::fleet {
namespace {

using test::HostForTest;
using test::kBeginNs;

/// `seconds` after the beginning, on both clocks.
CollectorTime at(double seconds) {
  const auto ns = static_cast<std::int64_t>(seconds * 1e9);
  return {boot_time(ns), kBeginNs + ns};
}

/// Messages of some hosts for some minutes, in order of time.
std::vector<std::string> messages_of(int host_count, int minutes) {
  std::vector<HostForTest> hosts;
  for (int i = 0; i < host_count; ++i)
    hosts.emplace_back(HostForTest::Options{.index = i, .ranks = 4, .hosts_a_job = 4});
  std::vector<std::string> messages;
  for (int minute = 1; minute <= minutes; ++minute)
    for (HostForTest& host : hosts)
      messages.push_back(host.minute(minute));
  return messages;
}

std::string report_of(const std::vector<std::string>& messages, CollectorTime now) {
  Collector collector;
  for (const std::string& message : messages)
    static_cast<void>(collector.add(as_bytes(message), now));
  return collector.report(now).to_json().dump();
}

TEST(Collector, MergesHostsAndRanks) {
  const auto messages = messages_of(8, 3);
  Collector collector;
  for (const std::string& message : messages)
    ASSERT_TRUE(collector.add(as_bytes(message), at(180)).has_value());
  const FleetReport report = collector.report(at(180));
  ASSERT_EQ(report.hosts.size(), 8U);
  EXPECT_EQ(report.hosts[0].messages, 3U);
  EXPECT_EQ(report.hosts[0].missing, 0U);
  ASSERT_EQ(report.jobs.size(), 2U);
  const FleetJob& job = report.jobs[0];
  EXPECT_EQ(job.name, "train 0");
  EXPECT_EQ(job.host_count, 4U);
  EXPECT_EQ(job.rank_count, 16U);
  const FleetFeature& iteration = job.features.at(0);
  EXPECT_EQ(iteration.name, "feature_0");
  EXPECT_EQ(iteration.count, 3U * 60 * 16);
  // Uniform from 1 to 1.2, feature 0, and rank 5 half as much again (hosts_for_test.h).
  EXPECT_NEAR(iteration.p50, 1.1, 0.03);
  ASSERT_FALSE(iteration.highest.empty());
  EXPECT_EQ(iteration.highest[0].rank, 5);
  EXPECT_EQ(iteration.highest[0].host, "node0001");
  EXPECT_NEAR(iteration.highest[0].p50, 1.65, 0.04);
  EXPECT_EQ(iteration.highest.size(), 3U);
  EXPECT_EQ(report.counters, (std::vector<std::pair<std::string, std::uint64_t>>{{"lost", 24}}));
}

TEST(Collector, OrderDuplicatesAndLatenessDoNotShow) {
  auto messages = messages_of(6, 12);
  const CollectorTime now = at(720);
  const std::string sorted = report_of(messages, now);
  RandomStream random(7, "order");
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = messages.size(); i-- > 1;)
      std::swap(messages[i], messages[random.below(i + 1)]);
    EXPECT_EQ(report_of(messages, now), sorted) << round;
  }
  auto twice = messages;
  twice.insert(twice.end(), messages.begin(), messages.end());
  Collector collector;
  for (const std::string& message : twice)
    ASSERT_TRUE(collector.add(as_bytes(message), now).has_value());
  FleetReport report = collector.report(now);
  for (FleetHost& host : report.hosts) {
    EXPECT_EQ(host.duplicates, 12U);
    host.duplicates = 0;
  }
  report.messages /= 2;
  report.bytes /= 2;
  EXPECT_EQ(report.to_json().dump(), sorted);
}

TEST(Collector, LiveAndLateMessagesGiveTheSamePicture) {
  // Each minute's messages when they were sent, against all at the end: what is packed meanwhile
  // may only forget who was extreme.
  const auto messages = messages_of(4, 10);
  Collector live;
  for (std::size_t i = 0; i < messages.size(); ++i)
    ASSERT_TRUE(
        live.add(as_bytes(messages[i]), at(60.0 * static_cast<double>(i / 4 + 1))).has_value());
  Collector late;
  for (const std::string& message : messages)
    ASSERT_TRUE(late.add(as_bytes(message), at(600)).has_value());
  EXPECT_EQ(live.report(at(600)).to_json().dump(), late.report(at(600)).to_json().dump());
  EXPECT_LT(live.sketch_bytes(), late.sketch_bytes());
}

TEST(Collector, SeesWhatIsMissingAndWhoIsGone) {
  std::vector<HostForTest> hosts;
  for (int i = 0; i < 2; ++i)
    hosts.emplace_back(HostForTest::Options{.index = i});
  Collector collector;
  for (int minute = 1; minute <= 9; ++minute) {
    const std::string first = hosts[0].minute(minute), second = hosts[1].minute(minute);
    if (minute == 3 || minute == 5) continue;  // lost on the way
    ASSERT_TRUE(collector.add(as_bytes(first), at(60 * minute)).has_value());
    if (minute > 5) continue;  // the second host is gone
    ASSERT_TRUE(collector.add(as_bytes(second), at(60 * minute)).has_value());
  }
  const FleetReport report = collector.report(at(540));
  EXPECT_EQ(report.hosts[0].missing, 2U);
  EXPECT_FALSE(report.hosts[0].is_lost);
  EXPECT_EQ(report.hosts[1].missing, 1U);
  EXPECT_TRUE(report.hosts[1].is_lost);  // since minute 4
  EXPECT_EQ(report.hosts[1].silent_ns, 300'000'000'000);
  EXPECT_EQ(report.jobs[0].host_count, 1U);
}

TEST(Collector, TellsRestartsFromReboots) {
  Collector collector;
  int epoch = 0;
  for (const char* boot : {"b1", "b1", "b2"}) {
    HostForTest host({.index = 0, .epoch = ++epoch, .boot_id = boot});
    for (int minute = 1; minute <= 2; ++minute)
      ASSERT_TRUE(collector.add(as_bytes(host.minute(minute)), at(120)).has_value());
  }
  const FleetReport report = collector.report(at(120));
  EXPECT_EQ(report.hosts[0].restarts, 2U);
  EXPECT_EQ(report.hosts[0].reboots, 1U);
  EXPECT_EQ(report.hosts[0].missing, 0U);
  EXPECT_EQ(report.hosts[0].messages, 6U);
}

TEST(Collector, IncidentsOfManyHostsAreOneGroup) {
  Collector collector;
  for (int i = 0; i < 8; ++i) {
    HostForTest host({.index = i, .hosts_a_job = 4});
    host.add_incident("i" + std::to_string(i), 30 + i, 0, 2 + i);
    ASSERT_TRUE(collector.add(as_bytes(host.minute(1)), at(60)).has_value());
    host.add_incident("i" + std::to_string(i), 30 + i, 90, 2 + i);
    ASSERT_TRUE(collector.add(as_bytes(host.minute(2)), at(120)).has_value());
    if (i == 2) host.add_incident("later", 600, 610, 1);
    ASSERT_TRUE(collector.add(as_bytes(host.minute(11)), at(660)).has_value());
  }
  const FleetReport report = collector.report(at(660));
  ASSERT_EQ(report.groups.size(), 3U);
  EXPECT_EQ(report.groups[0].incidents.size(), 4U);
  EXPECT_EQ(report.groups[0].hosts.size(), 4U);
  EXPECT_EQ(report.groups[0].begin_ns, kBeginNs + 30'000'000'000);
  EXPECT_EQ(report.groups[0].end_ns, kBeginNs + 90'000'000'000);
  EXPECT_EQ(report.groups[0].summary, "score 5");
  EXPECT_NE(report.groups[0].job, report.groups[1].job);
  EXPECT_EQ(report.groups[2].incidents.size(), 1U);
  // After an hour nothing of them is left.
  EXPECT_TRUE(collector.report(at(660 + 3700)).groups.empty());
}

// Two hosts whose jobs have one name: each was told as the host's own while the job ran.
TEST(Collector, AnIncidentStaysThatOfItsJobWhenTheJobIsOver) {
  Collector collector;
  for (int i = 0; i < 2; ++i) {
    HostForTest host({.index = i, .hosts_a_job = 1});
    host.add_incident("i", 30, 40, 1);
    host.end_job();
    for (int minute = 1; minute <= 3; ++minute)  // it is said three times
      ASSERT_TRUE(collector.add(as_bytes(host.minute(minute)), at(60.0 * minute)).has_value());
  }
  const FleetReport report = collector.report(at(180));
  ASSERT_EQ(report.groups.size(), 2U);
  EXPECT_NE(report.groups[0].job, report.groups[1].job);
}

TEST(Collector, IncidentsOfTheFutureAreThoseOfTheirMessageAndMakeWay) {
  CollectorOptions options;
  options.incidents_max = 4;
  Collector collector(options);
  HostForTest liar({.index = 0, .hosts_a_job = 1}), honest({.index = 1, .hosts_a_job = 1});
  for (int i = 0; i < 8; ++i)
    liar.add_incident("lie " + std::to_string(i), 1'000'000'000, 1'000'000'000, 1);
  ASSERT_TRUE(collector.add(as_bytes(liar.minute(1)), at(60)).has_value());
  honest.add_incident("true", 30, 40, 1);
  ASSERT_TRUE(collector.add(as_bytes(honest.minute(1)), at(60)).has_value());
  const FleetReport report = collector.report(at(60));
  EXPECT_TRUE(std::any_of(report.groups.begin(), report.groups.end(), [](const FleetGroup& group) {
    return group.hosts == std::vector<std::string>{"node0001"};
  }));
  for (const FleetGroup& group : report.groups)
    EXPECT_LE(group.begin_ns, at(60).wall_ns);
  EXPECT_TRUE(collector.report(at(60 + 3700)).groups.empty());
}

TEST(Collector, AHostIsHeardByItsOwnSubjectOnly) {
  Collector collector;
  HostForTest host({.index = 7, .hosts_a_job = 1});
  const std::string message = host.minute(1);
  EXPECT_FALSE(collector.add(as_bytes(message), at(60), "kansoku.summary.node0001").has_value());
  EXPECT_TRUE(collector.report(at(60)).hosts.empty());
  EXPECT_TRUE(collector.add(as_bytes(message), at(60), "kansoku.summary.node0007").has_value());
  const FleetReport report = collector.report(at(60));
  EXPECT_EQ(report.hosts.size(), 1U);
  EXPECT_EQ(report.loss.refused, 1U);
}

// A clock that was behind when the agent started: its epoch is that of an agent before the last.
TEST(SummaryWriter, BeginsAnEpochWhenTheClockIsSetAhead) {
  SummaryOptions options{.host = "node1", .boot_id = "b", .epoch_ns = 1'000'000'000};
  auto writer = SummaryWriter::create(options, boot_time(0)).value();
  const auto take = [&](double seconds, std::int64_t wall_ns) {
    return decode_summary(
               as_bytes(writer.take(boot_time(static_cast<std::int64_t>(seconds * 1e9)), wall_ns)))
        .value();
  };
  const Summary before = take(60, 61'000'000'000);
  EXPECT_EQ(before.epoch_ns, 1'000'000'000);
  EXPECT_EQ(before.sequence, 0U);
  const Summary after = take(120, kBeginNs);
  EXPECT_EQ(after.epoch_ns, kBeginNs);
  EXPECT_EQ(after.sequence, 0U);
  EXPECT_EQ(after.begin_ns, kBeginNs - 60'000'000'000);
  const Summary next = take(180, kBeginNs + 60'000'000'000);
  EXPECT_EQ(next.epoch_ns, kBeginNs);
  EXPECT_EQ(next.sequence, 1U);
}

TEST(Collector, RefusesAndCounts) {
  CollectorOptions options;
  options.hosts_max = 2;
  options.jobs_max = 1;
  Collector collector(options);
  EXPECT_EQ(collector.add(as_bytes("hello"), at(60)).error().code, Code::kCorrupt);
  for (int i = 0; i < 3; ++i) {
    HostForTest host({.index = i, .hosts_a_job = 1});
    EXPECT_EQ(collector.add(as_bytes(host.minute(1)), at(60)).has_value(), i < 2);
  }
  HostForTest ahead({.index = 0, .hosts_a_job = 1, .epoch = 2});
  EXPECT_FALSE(collector.add(as_bytes(ahead.minute(30)), at(60)).has_value());
  EXPECT_FALSE(collector.add(as_bytes(ahead.minute(31)), at(4000)).has_value());
  const FleetReport report = collector.report(at(60));
  EXPECT_EQ(report.loss.refused, 1U);
  EXPECT_EQ(report.loss.above_limits, 2U);  // a host and a job
  EXPECT_EQ(report.loss.out_of_window, 2U);
  EXPECT_EQ(report.hosts[0].messages, 1U);
}

// Its clock was hours ahead when it started the first time.
TEST(Collector, AnAgentWhoseClockWasAheadOnceIsHeardAgain) {
  Collector collector;
  const std::int64_t ahead_ns = 8 * 3'600'000'000'000;
  for (int start = 0; start < 2; ++start) {
    HostForTest ahead({.index = 0, .epoch = start, .begin_ns = kBeginNs + ahead_ns});
    EXPECT_FALSE(collector.add(as_bytes(ahead.minute(1)), at(60)).has_value());
  }
  HostForTest right({.index = 0, .boot_id = "after"});
  right.add_incident("i", 30, 0, 2);
  ASSERT_TRUE(collector.add(as_bytes(right.minute(1)), at(60)).has_value());
  right.add_incident("i", 30, 90, 2);
  ASSERT_TRUE(collector.add(as_bytes(right.minute(2)), at(120)).has_value());
  const FleetReport report = collector.report(at(120));
  EXPECT_EQ(report.loss.stale, 0U);
  EXPECT_EQ(report.loss.out_of_window, 2U);
  EXPECT_EQ(report.hosts[0].boot_id, "after");
  ASSERT_EQ(report.groups.size(), 1U);
  EXPECT_NE(report.groups[0].end_ns, 0);
}

TEST(Collector, StaysWithinItsMemory) {
  CollectorOptions options;
  options.sketch_bytes_max = 50'000;
  Collector collector(options);
  for (int i = 0; i < 40; ++i) {
    HostForTest host({.index = i, .hosts_a_job = 1});
    ASSERT_TRUE(collector.add(as_bytes(host.minute(1)), at(60)).has_value());
  }
  EXPECT_LT(collector.sketch_bytes(), 60'000U);
  EXPECT_GT(collector.report(at(60)).loss.above_limits, 0U);
  static_cast<void>(collector.report(at(60 + 3600)));
  EXPECT_EQ(collector.sketch_bytes(), 0U);
}

}  // namespace
}  // namespace kansoku::fleet
