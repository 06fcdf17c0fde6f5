// SPDX-License-Identifier: Apache-2.0
#include "agent/outputs.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "detect/feature.h"
#include "sys/clock.h"

namespace kansoku::agent {
namespace {

class OutputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "kansoku-outputs-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  OutputOptions options() {
    OutputOptions out;
    out.host = "h";
    out.state_folder = folder_;
    out.keeps_history = false;
    out.on_incident = [this](const trace::IncidentRecord& incident) { told_.push_back(incident); };
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
  static trace::IncidentRecord incident(const std::string& id, const std::string& job,
                                        std::int64_t begin_ns) {
    trace::IncidentRecord out;
    out.id = id;
    out.host = "h";
    out.job = job;
    out.begin_ns = begin_ns;
    out.kind = "latency_spike";
    out.summary = "slow";
    out.window_count = 1;
    return out;
  }

  ManualClock clock_;
  std::string folder_;
  std::vector<trace::IncidentRecord> told_;
  std::vector<std::string> log_;
};

TEST_F(OutputsTest, AnIncidentThatOutlivesTheAgentIsNotTold) {
  const std::int64_t now = sys::wall_time_ns();
  make(options())->on_incident(incident("aaaa", "job", now));
  // Killed here. The next agent's detector finds the same fault and gives it another id.
  auto after = make(options());
  after->on_incident(incident("bbbb", "job", now + 5'000'000'000));
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[1].id, "aaaa");
  EXPECT_EQ(told_[1].begin_ns, now);
  EXPECT_EQ(told_[1].window_count, 2U);
  auto over = incident("bbbb", "job", now + 5'000'000'000);
  over.end_ns = now + 9'000'000'000;
  after->on_incident(over);
  EXPECT_EQ(told_[2].id, "aaaa");
  const auto kept = after->incidents({});
  ASSERT_TRUE(kept.has_value());
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->front().end_ns, over.end_ns);
}

TEST_F(OutputsTest, OfSeveralIncidentsOfAJobEachIsContinuedOrClosed) {
  const std::int64_t now = sys::wall_time_ns();
  {
    auto before = make(options());
    auto growth = incident("aaaa", "job", now - 1);
    growth.kind = "memory_growth";
    growth.tests = {"growth"};
    before->on_incident(growth);
    auto grows_fast = incident("bbbb", "job", now - 2);  // found by the windows, not by that test
    grows_fast.kind = "memory_growth";
    before->on_incident(grows_fast);
    auto over = incident("cccc", "job", now - 1);
    over.end_ns = now;
    before->on_incident(over);
  }
  auto after = make(options());
  after->on_incident(incident("dddd", "job", now));
  EXPECT_EQ(told_.back().id, "bbbb") << "the one that is open and no growth";
  clock_.advance(std::chrono::minutes{3});
  after->on_window(now, clock_.now(), {}, {}, {});
  store::IncidentFilter open;
  open.only_open = true;
  const auto left = after->incidents(open);
  ASSERT_TRUE(left.has_value());
  ASSERT_EQ(left->size(), 1U) << "the growth that nobody continued is closed";
  EXPECT_EQ(left->front().id, "bbbb");
}

TEST_F(OutputsTest, AfterALongPauseNothingIsContinued) {
  const std::int64_t now = sys::wall_time_ns();
  const std::int64_t begin = now - 3'600'000'000'000;
  make(options())->on_incident(incident("aaaa", "job", begin));
  const auto seen = std::filesystem::file_time_type::clock::now() - std::chrono::minutes{30};
  std::ofstream(folder_ + "/alive").close();
  std::filesystem::last_write_time(folder_ + "/alive", seen);
  auto after = make(options());
  after->on_window(now, clock_.now(), {}, {}, {});
  ASSERT_EQ(told_.size(), 2U) << "closed with the first window";
  EXPECT_EQ(told_.back().id, "aaaa");
  EXPECT_NEAR(static_cast<double>(told_.back().end_ns), static_cast<double>(now) - 1800e9, 5e9)
      << "when the agent before was last seen";
  after->on_incident(incident("bbbb", "job", now));
  EXPECT_EQ(told_.back().id, "bbbb");
}

TEST_F(OutputsTest, WhatWasOverForLongIsNotContinued) {
  const std::int64_t now = sys::wall_time_ns();
  {
    auto before = make(options());
    auto over = incident("aaaa", "job", now - 60'000'000'000);
    over.end_ns = now - 30'000'000'000;
    before->on_incident(over);
  }
  auto after = make(options());
  after->on_incident(incident("bbbb", "job", now));
  EXPECT_EQ(told_.back().id, "bbbb");
}

TEST_F(OutputsTest, FilesThatAreThereAreContinued) {
  const OutputOptions given = with_files();
  const FeatureRow row = row_of("job");
  for (int run = 0; run < 2; ++run) {
    auto outputs = make(given);
    outputs->on_window(1, clock_.now(), {row}, {}, {});
    outputs->on_incident(incident("aaaa", "job" + std::to_string(run), 1));
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

TEST_F(OutputsTest, AnotherJobsIncidentIsItsOwn) {
  const std::int64_t now = sys::wall_time_ns();
  make(options())->on_incident(incident("aaaa", "job", now));
  auto after = make(options());
  after->on_incident(incident("bbbb", "other", now));
  EXPECT_EQ(told_.back().id, "bbbb");
}

TEST_F(OutputsTest, WhatNobodyContinuesIsClosed) {
  const std::int64_t now = sys::wall_time_ns();
  make(options())->on_incident(incident("aaaa", "job", now));
  auto after = make(options());
  after->on_window(now, clock_.now(), {}, {}, {});
  EXPECT_EQ(after->incidents({})->front().end_ns, 0);
  EXPECT_EQ(told_.size(), 1U);
  clock_.advance(std::chrono::minutes{3});
  after->on_window(now, clock_.now(), {}, {}, {});
  EXPECT_NE(after->incidents({})->front().end_ns, 0);
  ASSERT_EQ(told_.size(), 2U) << "who was told that it is open is told that it is over";
  EXPECT_EQ(told_.back().id, "aaaa");
  EXPECT_NE(told_.back().end_ns, 0);
}

TEST_F(OutputsTest, LabelsAreKept) {
  auto outputs = make(options());
  outputs->on_incident(incident("aaaa", "job", sys::wall_time_ns()));
  EXPECT_TRUE(outputs->label("aaaa", "false").has_value());
  EXPECT_EQ(outputs->incidents({})->front().label, "false");
  EXPECT_FALSE(outputs->label("zzzz", "false").has_value());
}

TEST_F(OutputsTest, TheLabelOfAnIncidentThatOutlivedTheAgentStays) {
  const std::int64_t now = sys::wall_time_ns();
  make(options())->on_incident(incident("aaaa", "job", now));
  auto after = make(options());
  EXPECT_EQ(after->detector_id("aaaa"), "aaaa");
  after->on_incident(incident("bbbb", "job", now + 5'000'000'000));
  EXPECT_EQ(after->detector_id("aaaa"), "bbbb");
  ASSERT_TRUE(after->label("aaaa", "false").has_value());
  after->on_incident(incident("bbbb", "job", now + 5'000'000'000));
  EXPECT_EQ(told_.back().label, "false");
  EXPECT_EQ(after->incidents({})->front().label, "false");
}

/// What `GET /metrics` answers on the loopback device.
std::string scraped(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request =
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;)
    out.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(fd);
  return out;
}

TEST_F(OutputsTest, IncidentsAreCountedByJobAndKindFromZeroOn) {
  OutputOptions given = options();
  given.listen = "127.0.0.1:0";
  auto outputs = make(given);
  JobTable::JobStatus job;
  job.name = "job";
  outputs->on_window(1, clock_.now(), {}, {job}, {});
  EXPECT_THAT(scraped(outputs->port()),
              testing::HasSubstr(R"(kansoku_incidents_total{job="job",kind="latency_spike"} 0)"));
  outputs->on_incident(incident("aaaa", "job", 1));
  outputs->on_window(2, clock_.now(), {}, {job}, {});
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
  outputs->on_window(1, clock_.now(), rows, {job}, {});
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
  outputs->on_window(1, clock_.now(), rows, {job}, {});
  const std::string text = scraped(outputs->port());
  EXPECT_THAT(text, testing::HasSubstr("job=\"job\",rank"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("python3/77")));
}

// As on a disk that is full: the log may not grow.
TEST_F(OutputsTest, AStateThatCouldNotBeKeptIsKeptLater) {
  auto outputs = make(options());
  const std::int64_t now = sys::wall_time_ns();
  auto told = incident("aaaa", "job", now);
  outputs->on_incident(told);
  const std::string path = folder_ + "/incidents.jsonl";
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(path), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  told.end_ns = now + 1;
  outputs->on_incident(told);
  outputs->on_window(now, clock_.now(), {}, {}, {});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(outputs->failed_writes(), 1U);
  EXPECT_EQ(outputs->incidents({})->front().end_ns, 0);
  outputs->on_window(now, clock_.now(), {}, {}, {});
  const auto kept = outputs->incidents({});
  ASSERT_TRUE(kept.has_value());
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->front().end_ns, now + 1);
  const auto size = std::filesystem::file_size(path);
  outputs->on_window(now, clock_.now(), {}, {}, {});
  EXPECT_EQ(std::filesystem::file_size(path), size) << "once";
}

TEST_F(OutputsTest, LinesThatAKilledAgentLeftHalfWrittenSpoilNoOthers) {
  const OutputOptions given = with_files();
  const FeatureRow row = row_of("job");
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  make(given)->on_window(1, clock_.now(), {row}, {}, {});
  const std::string whole = text_of(given.features_csv);
  std::ofstream(given.features_csv, std::ios::app) << "2.000,\"jo";
  std::ofstream(given.incidents_jsonl) << R"({"id":"aa)";
  auto outputs = make(given);
  EXPECT_EQ(text_of(given.features_csv), whole);
  outputs->on_incident(incident("bbbb", "job", 1));
  EXPECT_THAT(text_of(given.incidents_jsonl), testing::StartsWith("{\"id\":\"aa\n{"));
  const std::string half_a_header = whole.substr(0, 30);
  std::ofstream(given.features_csv) << half_a_header;
  outputs = make(given);
  outputs->on_window(1, clock_.now(), {row}, {}, {});
  EXPECT_EQ(text_of(given.features_csv), whole);
  std::filesystem::resize_file(given.features_csv, 0);  // rotated by copying
  outputs->on_window(1, clock_.now(), {row}, {}, {});
  EXPECT_EQ(text_of(given.features_csv), whole);
}

TEST_F(OutputsTest, WhatCannotBeSentIsNamed) {
  OutputOptions given = options();
  given.webhook = "http://127.0.0.1:1/hook";  // nobody listens there
  auto outputs = make(given);
  outputs->on_incident(incident("aaaa", "job", 1));
  for (int i = 0; i < 20'000'000 && outputs->deliveries().at(0).counts.last_error.empty(); ++i)
    std::this_thread::yield();
  EXPECT_EQ(outputs->deliveries().at(0).target, "webhook");
  EXPECT_THAT(outputs->deliveries().at(0).counts.last_error, testing::HasSubstr("127.0.0.1"));
  outputs->on_window(1, clock_.now(), {}, {}, {});
  outputs->on_window(2, clock_.now(), {}, {}, {});
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
    (*outputs)->on_window(1, clock_.now(), {row}, {}, {});
  EXPECT_EQ((*outputs)->failed_writes(), 3U);
  EXPECT_FALSE(log_.empty());
}

}  // namespace
}  // namespace kansoku::agent
