// SPDX-License-Identifier: Apache-2.0
#include "agent/outputs.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "detect/feature.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::agent {
namespace {

class OutputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "kansoku-outputs-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  OutputOptions options() {
    OutputOptions out;
    out.host = "h";
    out.state_folder = folder_;
    out.keeps_history = false;
    out.on_incident = [this](const incident::Notice& notice) { notices_.push_back(notice); };
    out.log = [this](const std::string& line) { log_.push_back(line); };
    return out;
  }
  std::unique_ptr<Outputs> make(const OutputOptions& given) {
    auto made = Outputs::create(clock_, given);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().what);
    return made ? std::move(made).value() : nullptr;
  }
  static FeatureRow row_of(const std::string& job, std::int32_t rank = -1) {
    FeatureRow out;
    out.job = job;
    out.window.rank = rank;
    out.window.values.assign(detect::known_features().size(), 1.0);
    return out;
  }
  /// Options with both files that a killed agent may leave behind.
  OutputOptions with_files() {
    OutputOptions out = options();
    out.features_csv = folder_ + "/features.csv";
    out.incidents_jsonl = folder_ + "/lines.jsonl";
    return out;
  }
  /// Notice of the book on something that goes on, or is over at `end_ns`.
  incident::Notice notice_of(std::uint64_t episode, const std::string& job,
                             std::int64_t end_ns = 0) {
    incident::Observation seen{job, incident::Source::kDetector, episode, {}};
    seen.facts.begin_ns = 1;
    seen.facts.end_ns = end_ns;
    seen.facts.kind = trace::IncidentKind::kLatencySpike;
    seen.facts.summary = "slow";
    seen.facts.window_count = 1;
    return book_.observe(seen);
  }
  void on_window(Outputs& outputs, const std::vector<FeatureRow>& rows = {},
                 const std::vector<JobTable::JobStatus>& jobs = {}, std::int64_t wall_ns = 1) {
    outputs.on_window(wall_ns, clock_.now(), rows, jobs, book_, {});
  }

  ManualClock clock_;
  std::string folder_;
  static incident::Book open_book() {
    incident::BookOptions options;
    options.host = "h";
    return std::move(incident::Book::open(std::move(options), BootTime{}, 0)).value();
  }
  incident::Book book_{open_book()};
  std::vector<incident::Notice> notices_;
  std::vector<std::string> log_;
};

TEST_F(OutputsTest, FilesThatAreThereAreContinued) {
  const OutputOptions given = with_files();
  const FeatureRow row = row_of("job");
  for (int run = 0; run < 2; ++run) {
    auto outputs = make(given);
    on_window(*outputs, {row});
    outputs->on_incident(notice_of(1, "job" + std::to_string(run)));
  }
  const auto lines_of = [](const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);)
      lines.push_back(line);
    return lines;
  };
  const auto rows = lines_of(given.features_csv);
  ASSERT_EQ(rows.size(), 3U) << "one header and two windows";
  EXPECT_EQ(rows[1], rows[2]);
  EXPECT_EQ(lines_of(given.incidents_jsonl).size(), 2U);
  std::ofstream(given.features_csv) << "time_s,job,rank,pid,something_else\n";
  EXPECT_FALSE(Outputs::create(clock_, given).has_value());
}

/// Answer to `GET /metrics` on the loopback device; empty if the connection ended without that.
std::string scraped_once(std::uint16_t port) {
  const sys::Fd socket = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.raw(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request =
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  static_cast<void>(::send(socket.raw(), request.data(), request.size(), MSG_NOSIGNAL));
  std::string out;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = ::recv(socket.raw(), buffer.data(), buffer.size(), 0)) > 0)
    out.append(buffer.data(), static_cast<std::size_t>(got));
  return got == 0 ? out : std::string();
}

/// The server cuts off who is slow, and on a busy machine anybody may be: asks until it answers.
std::string scraped(std::uint16_t port) {
  std::string out;
  EXPECT_TRUE(sys::poll_for_test([&] {
    out = scraped_once(port);
    return !out.empty();
  }));
  return out;
}

TEST_F(OutputsTest, IncidentsAreCountedByJobAndKindFromZeroOn) {
  OutputOptions given = options();
  given.listen = "127.0.0.1:0";
  auto outputs = make(given);
  JobTable::JobStatus job;
  job.name = "job";
  on_window(*outputs, {}, {job});
  EXPECT_THAT(scraped(outputs->port()),
              testing::HasSubstr(R"(kansoku_incidents_total{job="job",kind="latency_spike"} 0)"));
  outputs->on_incident(notice_of(1, "job"));
  on_window(*outputs, {}, {job});
  const std::string text = scraped(outputs->port());
  EXPECT_THAT(text,
              testing::HasSubstr(R"(kansoku_incidents_total{job="job",kind="latency_spike"} 1)"));
  EXPECT_THAT(text,
              testing::HasSubstr(R"(kansoku_incident_open{job="job",kind="latency_spike"} 1)"));
}

TEST_F(OutputsTest, JobsAndTheAgentAreToldBeforeFeaturesFillTheRoom) {
  OutputOptions given = options();
  given.listen = "127.0.0.1:0";
  auto outputs = make(given);
  JobTable::JobStatus job;
  job.name = "job";
  std::vector<FeatureRow> rows;
  for (std::int32_t rank = 0; rank < 1'500; ++rank)
    rows.push_back(row_of("job", rank));
  on_window(*outputs, rows, {job});
  const std::string text = scraped(outputs->port());
  EXPECT_THAT(text, testing::HasSubstr("\nkansoku_incidents_total{"));
  EXPECT_THAT(text, testing::HasSubstr("\nkansoku_agent_cpu"));
}

TEST_F(OutputsTest, ProcessesThatAreNoJobYetHaveNoSeries) {
  OutputOptions given = options();
  given.listen = "127.0.0.1:0";
  auto outputs = make(given);
  JobTable::JobStatus job;
  job.name = "job";
  const std::vector<FeatureRow> rows{row_of("job"), row_of("python3/77")};
  on_window(*outputs, rows, {job});
  const std::string text = scraped(outputs->port());
  EXPECT_THAT(text, testing::HasSubstr("job=\"job\",rank"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("python3/77")));
}

TEST_F(OutputsTest, LinesThatAKilledAgentLeftHalfWrittenSpoilNoOthers) {
  const OutputOptions given = with_files();
  const FeatureRow row = row_of("job");
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  on_window(*make(given), {row});
  const std::string whole = text_of(given.features_csv);
  std::ofstream(given.features_csv, std::ios::app) << "2.000,\"jo";
  std::ofstream(given.incidents_jsonl) << R"({"id":"aa)";
  auto outputs = make(given);
  EXPECT_EQ(text_of(given.features_csv), whole);
  outputs->on_incident(notice_of(2, "job"));
  EXPECT_THAT(text_of(given.incidents_jsonl), testing::StartsWith("{\"id\":\"aa\n{"));
  const std::string half_a_header = whole.substr(0, 30);
  std::ofstream(given.features_csv) << half_a_header;
  outputs = make(given);
  on_window(*outputs, {row});
  EXPECT_EQ(text_of(given.features_csv), whole);
  std::filesystem::resize_file(given.features_csv, 0);  // rotated by copying
  on_window(*outputs, {row});
  EXPECT_EQ(text_of(given.features_csv), whole);
}

TEST_F(OutputsTest, WhatCannotBeSentIsNamed) {
  OutputOptions given = options();
  given.webhook = "http://127.0.0.1:1/hook";  // nobody listens there
  auto outputs = make(given);
  outputs->on_incident(notice_of(1, "job"));
  ASSERT_TRUE(
      sys::poll_for_test([&] { return !outputs->deliveries().at(0).counts.last_error.empty(); }));
  EXPECT_EQ(outputs->deliveries().at(0).target, "webhook");
  EXPECT_THAT(outputs->deliveries().at(0).counts.last_error, testing::HasSubstr("127.0.0.1"));
  on_window(*outputs);
  on_window(*outputs);
  ASSERT_EQ(log_.size(), 1U) << "told once";
  EXPECT_THAT(log_[0], testing::HasSubstr("webhook"));
  EXPECT_THAT(log_[0], testing::Not(testing::HasSubstr("/hook")));
}

TEST_F(OutputsTest, AddressesThatAreNoneAreRefused) {
  for (const auto set :
       {+[](OutputOptions& o) { o.listen = "nowhere"; },
        +[](OutputOptions& o) { o.listen = "127.0.0.1:x"; },
        +[](OutputOptions& o) { o.webhook = "ftp://x/"; }, +[](OutputOptions& o) { o.otlp = "x"; },
        +[](OutputOptions& o) { o.collector.emplace().url = "http://x"; }}) {
    OutputOptions given = options();
    set(given);
    EXPECT_FALSE(Outputs::create(clock_, given).has_value());
  }
}

TEST_F(OutputsTest, AFullDiskIsCountedAndStopsNothing) {
  OutputOptions given = options();
  given.features_csv = "/dev/full";
  auto outputs = Outputs::create(clock_, given);
  if (!outputs) return;  // refused at once is as good
  const FeatureRow row = row_of("job");
  for (int i = 0; i < 3; ++i)
    on_window(**outputs, {row});
  EXPECT_EQ((*outputs)->failed_writes(), 3U);
  EXPECT_FALSE(log_.empty());
}

}  // namespace
}  // namespace kansoku::agent
