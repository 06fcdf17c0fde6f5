// SPDX-License-Identifier: Apache-2.0
#include "export/http_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "export/http_server.h"
#include "export/webhook.h"
#include "sys/port_for_test.h"
#include "sys/wait_for_test.h"

namespace kansoku::exporter {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Nanos kLong = sys::kPatienceForTest;

std::string hook_at(std::uint16_t port) {
  return "http://127.0.0.1:" + std::to_string(port) + "/hook";
}

/// A target that answers as told and keeps its requests.
class Target {
 public:
  explicit Target(std::vector<int> answers, std::uint16_t port = 0) : answers_(std::move(answers)) {
    HttpOptions options;
    options.port = port;
    options.timeout = options.connection_timeout = 10 * kLong;  // no client is cut off
    auto started = HttpServer::start(
        options, {{"POST", "/hook", [this](const HttpRequest& request) { return take(request); }}});
    EXPECT_TRUE(started) << started.error().what;
    server_ = std::move(started).value();
  }
  [[nodiscard]] std::string url() const { return hook_at(server_->port()); }
  [[nodiscard]] std::vector<std::string> bodies() {
    const std::lock_guard lock(mu_);
    return bodies_;
  }
  /// Handlers wait from now on; release() lets them go.
  void hold() {
    const std::lock_guard lock(mu_);
    is_held_ = true;
  }
  void release() {
    {
      const std::lock_guard lock(mu_);
      is_held_ = false;
    }
    changed_.notify_all();
  }
  void wait_for_request() {
    std::unique_lock lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return !bodies_.empty(); }));
  }

 private:
  HttpResponse take(const HttpRequest& request) {
    std::unique_lock lock(mu_);
    bodies_.push_back(request.body);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_held_; });
    const std::size_t n = bodies_.size() - 1;
    return {.status = n < answers_.size() ? answers_[n] : 200, .body = "{}"};
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<int> answers_;
  std::vector<std::string> bodies_;
  bool is_held_{false};
  std::unique_ptr<HttpServer> server_;
};

/// A manual clock that two threads share.
class SharedClock final : public Clock {
 public:
  [[nodiscard]] BootTime now() const override { return boot_time(ns_.load()); }
  void set(Nanos since_start) { ns_ = since_start.count(); }

 private:
  std::atomic<std::int64_t> ns_{0};
};

HttpPostOptions quick(const std::string& url) {
  HttpPostOptions out;
  out.url = url;
  out.backoff_first = milliseconds{1};
  out.backoff_max = milliseconds{20};
  out.timeout = 10 * kLong;  // a target that is held answers in time
  return out;
}

TEST(ParseHttpUrl, TakesItApart) {
  const auto full = parse_http_url("http://[::1]:9093/a/b?c=d#e");
  ASSERT_TRUE(full) << full.error().what;
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->port, 9093);
  EXPECT_EQ(full->path, "/a/b?c=d");
  EXPECT_EQ(parse_http_url("https://host")->port, 443);
  EXPECT_EQ(parse_http_url("http://host?a")->path, "/?a");
  EXPECT_EQ(parse_http_url("ftp://host").error().code, Code::kUnsupported);
  for (const std::string text :
       {"", "host", "http://", "http://a:b", "http://a:0", "http://a:65536", "http://u:p@a",
        "http://a/\r\nX: y", "http://[::1", "http://a:"})
    EXPECT_EQ(parse_http_url(text).error().code, Code::kCorrupt) << text;
  EXPECT_FALSE(parse_http_url("http://" + std::string(2048, 'a')));
}

TEST(HttpPoster, SendsInOrder) {
  Target target({});
  const ManualClock clock;
  auto poster = HttpPoster::start(quick(target.url()), clock);
  ASSERT_TRUE(poster);
  for (const char* body : {"1", "2", "3"})
    (*poster)->post("application/json", body);
  EXPECT_TRUE((*poster)->drain(kLong));
  EXPECT_THAT(target.bodies(), ElementsAre("1", "2", "3"));
  EXPECT_EQ((*poster)->counts().sent, 3U);
  EXPECT_EQ((*poster)->counts().last_error, "");
}

TEST(HttpPoster, TriesAgainWhatMayPassAndNothingElse) {
  Target target({500, 429, 200, 400, 302, 200});
  const ManualClock clock;
  auto poster = HttpPoster::start(quick(target.url()), clock);
  ASSERT_TRUE(poster);
  for (const char* body : {"a", "b", "c", "d"})
    (*poster)->post("application/json", body);
  EXPECT_TRUE((*poster)->drain(kLong));
  EXPECT_THAT(target.bodies(), ElementsAre("a", "a", "a", "b", "c", "d"));
  const auto counts = (*poster)->counts();
  EXPECT_EQ(counts.sent, 2U);
  EXPECT_EQ(counts.failed, 2U);
  EXPECT_EQ(counts.retries, 2U);
}

TEST(HttpPoster, KeepsWhatWasQueuedWhileTheTargetWasDown) {
  const sys::PortForTest port;
  const ManualClock clock;
  auto poster = HttpPoster::start(quick(hook_at(port.number())), clock);
  ASSERT_TRUE(poster);
  (*poster)->post("application/json", "early");
  ASSERT_TRUE(sys::poll_for_test([&] { return (*poster)->counts().retries >= 3; }));
  EXPECT_THAT((*poster)->counts().last_error, HasSubstr("127.0.0.1"));
  Target back({}, port.number());
  EXPECT_TRUE((*poster)->drain(kLong));
  EXPECT_THAT(back.bodies(), ElementsAre("early"));
}

TEST(HttpPoster, LosesTheOldestOfAFullQueueAndNeverWaits) {
  Target target({});
  target.hold();
  const ManualClock clock;
  HttpPostOptions options = quick(target.url());
  options.queue_max = 3;
  auto poster = HttpPoster::start(options, clock);
  ASSERT_TRUE(poster);
  (*poster)->post("application/json", "1");
  target.wait_for_request();  // "1" is under way and cannot be taken back
  for (const char* body : {"2", "3"})
    (*poster)->post("application/json", body);
  EXPECT_EQ((*poster)->counts().dropped, 0U);
  for (const char* body : {"4", "5"})
    (*poster)->post("application/json", body);
  EXPECT_EQ((*poster)->counts().dropped, 2U);
  EXPECT_EQ((*poster)->counts().queued, 3U);
  target.release();
  EXPECT_TRUE((*poster)->drain(kLong));
  EXPECT_THAT(target.bodies(), ElementsAre("1", "4", "5"));
}

TEST(HttpPoster, GivesAMessageUpAtItsDeadline) {
  const sys::PortForTest port;
  HttpPostOptions options = quick(hook_at(port.number()));
  options.deadline = seconds{10};
  SharedClock clock;
  auto poster = HttpPoster::start(options, clock);
  ASSERT_TRUE(poster);
  (*poster)->post("application/json", "1");
  clock.set(seconds{9});
  const std::uint64_t before = (*poster)->counts().retries;
  ASSERT_TRUE(sys::poll_for_test([&] { return (*poster)->counts().retries >= before + 3; }));
  EXPECT_EQ((*poster)->counts().failed, 0U);
  clock.set(seconds{10});
  EXPECT_TRUE((*poster)->drain(kLong));
  EXPECT_EQ((*poster)->counts().failed, 1U);
}

TEST(HttpPoster, EndsAtOnceWithMessagesLeft) {
  Target target(std::vector<int>(1000, 503));
  const ManualClock clock;
  HttpPostOptions options = quick(target.url());
  options.backoff_first = options.backoff_max = std::chrono::hours{1};
  auto poster = HttpPoster::start(options, clock);
  ASSERT_TRUE(poster);
  (*poster)->post("application/json", "1");
  target.wait_for_request();
  poster->reset();  // must not sit the pause out
}

TEST(HttpPoster, RefusesOptionsThatMakeNoSense) {
  const ManualClock clock;
  HttpPostOptions options = quick("http://127.0.0.1:1/");
  options.headers = {{"Authorization", "Bearer x\r\nEvil: 1"}};
  EXPECT_FALSE(HttpPoster::start(options, clock));
  options.headers = {{"Bad name", "x"}};
  EXPECT_FALSE(HttpPoster::start(options, clock));
  options.headers.clear();
  options.queue_max = 0;
  EXPECT_FALSE(HttpPoster::start(options, clock));
  EXPECT_FALSE(HttpPoster::start(quick("gopher://a"), clock));
}

TEST(HttpPoster, DropsAMessageThatIsTooLong) {
  const ManualClock clock;
  HttpPostOptions options = quick("http://127.0.0.1:1/");
  options.message_bytes_max = 3;
  auto poster = HttpPoster::start(options, clock);
  ASSERT_TRUE(poster);
  (*poster)->post("text/plain", "1234");
  EXPECT_EQ((*poster)->counts().dropped, 1U);
  EXPECT_EQ((*poster)->counts().queued, 0U);
}

TEST(Webhook, SendsTheIncidentWithASentence) {
  Target target({});
  const ManualClock clock;
  auto webhook = Webhook::create(quick(target.url()), clock);
  ASSERT_TRUE(webhook);
  trace::IncidentRecord incident;
  incident.job = "train";
  incident.host = "n1";
  incident.kind = trace::IncidentKind::kLatencySpike;
  incident.summary = "rank 3 is slow";
  webhook->send(trace::IncidentEvent::kOpened, incident);
  EXPECT_TRUE(webhook->poster().drain(kLong));
  const auto bodies = target.bodies();
  ASSERT_EQ(bodies.size(), 1U);
  const auto json = Json::parse(bodies[0]);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->at("event").as_string(), "opened");
  EXPECT_EQ(json->at("text").as_string(), "train on n1: latency_spike opened: rank 3 is slow");
  EXPECT_TRUE(trace::IncidentRecord::from_json(json->at("incident")));
}

TEST(PostMetrics, NameEveryOutcome) {
  MetricSet set;
  add_post_metrics(
      set, "webhook",
      {.sent = 1, .failed = 2, .dropped = 3, .retries = 4, .queued = 5, .last_error = ""});
  EXPECT_EQ(set.series_count(), 5U);
}

}  // namespace
}  // namespace kansoku::exporter
