// SPDX-License-Identifier: Apache-2.0
#include "fleet/summary_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/rng.h"

namespace kansoku::fleet {
namespace {

constexpr std::int64_t kEpochNs = 1'700'000'000'000'000'000;

BootTime boot_at(double seconds) {
  return boot_time(static_cast<std::int64_t>(seconds * 1e9));
}

struct Host {
  explicit Host(std::uint32_t bytes_per_second, int feature_count = 4) {
    SummaryOptions options{.host = "node1", .boot_id = "b", .epoch_ns = kEpochNs};
    options.budget.bytes_per_second = bytes_per_second;
    for (int i = 0; i < feature_count; ++i)
      options.features.push_back("feature_" + std::to_string(i));
    options.axes.assign(options.features.size(), {ClusterAxis::Scale::kLog, 0.01, 0.1});
    writer.emplace(SummaryWriter::create(std::move(options), boot_at(0)).value());
    values.resize(static_cast<std::size_t>(feature_count));
  }
  /// A minute of windows of every rank of `job`.
  void add_minute(SummaryWriter::JobId job, int ranks) {
    for (int second = 0; second < 60; ++second)
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        for (double& value : values)
          value = 0.1 * std::exp(spread * random.uniform());
        writer->add_window(job, rank, values);
      }
  }
  std::string take(double seconds) {
    return writer->take(boot_at(seconds), kEpochNs + static_cast<std::int64_t>(seconds * 1e9));
  }

  std::optional<SummaryWriter> writer;
  RandomStream random{1, "host"};
  double spread{0.1};  // of ln(value)
  std::vector<double> values;
};

SummaryJob job_of(std::string key, int ranks) {
  SummaryJob job{key, "job " + key, ranks, {}};
  for (std::int32_t rank = ranks; rank-- > 0;)
    job.ranks.push_back(rank);
  return job;
}

int count_parts(const Summary& summary, PartKind kind, bool only_single_ranks = false) {
  int count = 0;
  for (const SummaryPart& part : summary.parts)
    count += part.kind == kind && !(only_single_ranks && part.rank == kAllRanks);
  return count;
}

TEST(SummaryWriter, SendsAllThatFits) {
  Host host(2048);
  const auto job = host.writer->set_job(job_of("a", 3)).value();
  host.add_minute(job, 3);
  host.writer->add_incident(job, "i1", "{}");
  host.writer->add_counter("lost", 2);
  host.writer->add_counter("lost", 3);
  const std::string bytes = host.take(60);
  const Summary summary = decode_summary(as_bytes(bytes)).value();
  EXPECT_EQ(summary.sequence, 0U);
  EXPECT_EQ(summary.begin_ns, kEpochNs);
  EXPECT_EQ(summary.end_ns, kEpochNs + 60'000'000'000);
  EXPECT_EQ(summary.jobs[0].ranks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(count_parts(summary, PartKind::kSketch, true), 12);
  EXPECT_EQ(count_parts(summary, PartKind::kSketch), 12);
  EXPECT_EQ(count_parts(summary, PartKind::kClusterFeatures), 1);
  EXPECT_EQ(count_parts(summary, PartKind::kIncident), 1);
  EXPECT_EQ(summary.dropped.total(), 0U);
  EXPECT_EQ(decode_counters(summary.parts[0].bytes).value(), (Counters{{"lost", 5}}));
  for (const SummaryPart& part : summary.parts) {
    if (part.kind != PartKind::kSketch) continue;
    EXPECT_EQ(stats::LogSketch::decode(part.bytes)->count(), 60U);
  }
}

TEST(SummaryWriter, LeavesOutTheLeastValuableFirst) {
  // Room shrinks: ranks go before cluster features, these before a whole feature, last the jobs.
  std::vector<std::string> order;
  SummaryDropped before;
  for (std::uint32_t rate = 500; rate >= SummaryWriter::kBytesPerSecondMin; rate -= 4) {
    Host host(rate, 8);
    host.spread = 4;
    for (const char* key : {"a", "b"}) {
      const auto job = host.writer->set_job(job_of(key, 8)).value();
      host.add_minute(job, 8);
    }
    const std::string bytes = host.take(60);
    EXPECT_LE(bytes.size(), 60U * rate);
    const SummaryDropped dropped = decode_summary(as_bytes(bytes)).value().dropped;
    const auto note = [&](std::uint64_t count, const char* name) {
      if (count > 0 && std::find(order.begin(), order.end(), name) == order.end())
        order.emplace_back(name);
    };
    note(dropped.rank_sketches, "ranks");
    note(dropped.cluster_features, "cluster");
    note(dropped.sketches, "sketches");
    EXPECT_GE(dropped.sketches, before.sketches);
    EXPECT_EQ(dropped.jobs, 0U);
    before = dropped;
  }
  EXPECT_EQ(order, (std::vector<std::string>{"ranks", "cluster", "sketches"}));
}

TEST(SummaryWriter, KeepsToTheBudgetOnAverageAndSavesOnePeriod) {
  Host host(100, 16);
  const auto job = host.writer->set_job(job_of("a", 32)).value();
  std::size_t sent = 0;
  double now = 0;
  for (int i = 0; i < 50; ++i) {
    host.add_minute(job, 32);
    now += i % 5 == 0 ? 300 : 7;
    const std::string bytes = host.take(now);
    EXPECT_LE(bytes.size(), 6000U);
    sent += bytes.size();
    EXPECT_LE(static_cast<double>(sent), 100 * now);
  }
  EXPECT_GT(host.writer->dropped().rank_sketches, 0U);
  EXPECT_GT(host.writer->message_count(), 40U);
}

TEST(SummaryWriter, SaysAnIncidentThreeTimesAndAtOnce) {
  Host host(2048);
  const auto job = host.writer->set_job(job_of("a", 1)).value();
  EXPECT_FALSE(host.writer->is_due(boot_at(59)));
  EXPECT_TRUE(host.writer->is_due(boot_at(60)));
  host.writer->add_incident(job, "i1", "{\"end_ns\":\"0\"}");
  EXPECT_FALSE(host.writer->is_due(boot_at(1)));
  EXPECT_TRUE(host.writer->is_due(boot_at(5)));
  double now = 5;
  for (const int expected : {1, 1, 1, 0}) {
    EXPECT_EQ(count_parts(decode_summary(as_bytes(host.take(now))).value(), PartKind::kIncident),
              expected);
    EXPECT_FALSE(host.writer->is_due(boot_at(now + 30)));
    now += 60;
  }
  host.writer->add_incident(job, "i1", "{\"end_ns\":\"5\"}");
  const std::string bytes = host.take(now);
  const Summary summary = decode_summary(as_bytes(bytes)).value();
  ASSERT_EQ(count_parts(summary, PartKind::kIncident), 1);
  EXPECT_EQ(as_text(summary.parts[0].bytes), "{\"end_ns\":\"5\"}");
}

TEST(SummaryWriter, BoundsWhatItKeeps) {
  Host host(2048);
  for (int i = 0; i < 100; ++i)
    host.writer->add_incident({}, std::to_string(i), std::string(200, 'x'));
  host.writer->add_incident({}, "big", std::string(kSummaryIncidentBytesMax + 1, 'x'));
  const double one = 1;
  host.writer->add_window({}, 0, {&one, 1});  // no such job
  const auto job = host.writer->set_job(job_of("a", 1)).value();
  host.writer->add_window(job, 0, {&one, 1});  // four values wanted
  for (std::size_t i = 1; i < kSummaryJobsMax; ++i)
    ASSERT_TRUE(host.writer->set_job(job_of(std::to_string(i), 1)).has_value());
  EXPECT_EQ(host.writer->set_job(job_of("too many", 1)).error().code, Code::kLimit);
  EXPECT_TRUE(host.writer->set_job(job_of("a", 2)).has_value());  // known
  const std::string bytes = host.take(60);
  const Summary summary = decode_summary(as_bytes(bytes)).value();
  EXPECT_EQ(summary.dropped.incidents, 100 - SummaryWriter::kIncidentsMax + 1);
  EXPECT_EQ(summary.dropped.windows, 2U);
  EXPECT_EQ(summary.dropped.jobs, 1U);
  EXPECT_EQ(summary.jobs.size(), kSummaryJobsMax);
  EXPECT_EQ(decode_summary(as_bytes(host.take(120)))->dropped.total(), 0U);
}

TEST(SummaryWriter, NothingIsLostWhereNothingCanBeSent) {
  Host host(16, 0);
  host.writer->add_counter("lost", 7);
  EXPECT_EQ(host.take(1), "");  // 16 bytes
  const std::string bytes = host.take(60);
  EXPECT_EQ(decode_counters(decode_summary(as_bytes(bytes)).value().parts.at(0).bytes).value(),
            (Counters{{"lost", 7}}));
}

TEST(SummaryWriter, JobsThatAreOverGoOutOnce) {
  Host host(2048);
  const auto job = host.writer->set_job(job_of("a", 2)).value();
  host.values.assign(4, std::numeric_limits<double>::quiet_NaN());
  host.values[1] = 3;
  host.writer->add_window(job, 1, host.values);
  host.writer->remove_job(job);
  const std::string bytes = host.take(60);
  const Summary summary = decode_summary(as_bytes(bytes)).value();
  ASSERT_EQ(summary.parts.size(), 1U);  // not seen is not sent
  EXPECT_EQ(summary.parts[0].rank, 1);
  EXPECT_EQ(summary.parts[0].feature, 1U);
  EXPECT_TRUE(decode_summary(as_bytes(host.take(120)))->jobs.empty());
  EXPECT_EQ(host.writer->memory_bytes(), 0U);
}

TEST(SummaryWriter, EightRanksAndFortyFeaturesFitTheDefaultBudget) {
  Host host(2048, 40);
  host.add_minute(host.writer->set_job(job_of("a", 8)).value(), 8);
  const std::string bytes = host.take(60);
  const Summary summary = decode_summary(as_bytes(bytes)).value();
  EXPECT_EQ(summary.dropped.total(), 0U);
  EXPECT_EQ(count_parts(summary, PartKind::kSketch, true), 320);
  EXPECT_LT(bytes.size(), 12'000U);
  RecordProperty("bytes", static_cast<int>(bytes.size()));
}

}  // namespace
}  // namespace kansoku::fleet
