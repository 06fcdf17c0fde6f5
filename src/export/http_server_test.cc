// SPDX-License-Identifier: Apache-2.0
#include "export/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::exporter {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::minutes kNoDeadline{20};  // nobody is cut off for being slow

/// The library's own limits are seconds.
void be_patient(httplib::Client& client) {
  client.set_connection_timeout(kNoDeadline);
  client.set_read_timeout(kNoDeadline);
  client.set_write_timeout(kNoDeadline);
}

constexpr MetricDef kUp{"kansoku_up", "", MetricType::kGauge, "Up."};

class Server : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpOptions options;
    options.timeout = options.connection_timeout = kNoDeadline;
    begin(options);
  }
  void begin(const HttpOptions& options) {
    MetricSet set;
    set.add(kUp, {}, 1);
    board_.publish(std::move(set));
    std::vector<HttpRoute> routes;
    routes.push_back(metrics_route(board_));
    routes.push_back(health_route([this] { return is_healthy_.load(); }));
    routes.push_back({"POST", "/label", [](const HttpRequest& request) {
                        const auto id = request.query.find("id");
                        return HttpResponse{.body = (id == request.query.end() ? "" : id->second) +
                                                    request.body};
                      }});
    auto started = HttpServer::start(options, std::move(routes));
    ASSERT_TRUE(started) << started.error().what;
    server_ = std::move(started).value();
    client_ = std::make_unique<httplib::Client>("127.0.0.1", server_->port());
    be_patient(*client_);
  }
  MetricBoard board_;
  std::atomic<bool> is_healthy_{true};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(Server, ServesMetricsInTheFormatAskedFor) {
  const auto plain = client_->Get("/metrics");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->status, 200);
  EXPECT_EQ(plain->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(plain->body, HasSubstr("\nkansoku_up 1\n"));
  const auto open = client_->Get("/metrics", {{"Accept", "application/openmetrics-text"}});
  ASSERT_TRUE(open);
  EXPECT_THAT(open->get_header_value("Content-Type"), HasSubstr("application/openmetrics-text"));
  EXPECT_TRUE(open->body.ends_with("# EOF\n"));
}

TEST_F(Server, TellsWhetherItIsHealthy) {
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
  is_healthy_ = false;
  const auto answer = client_->Get("/healthz");
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "not ok\n");
}

TEST_F(Server, RefusesOtherPagesHostsAndOrigins) {
  EXPECT_EQ(client_->Get("/")->status, 404);
  EXPECT_EQ(client_->Get("/metrics/x")->status, 404);
  EXPECT_EQ(client_->Post("/metrics", "", "text/plain")->status, 404);
  EXPECT_EQ(client_->Get("/metrics", {{"Host", "evil.example"}})->status, 403);
  EXPECT_EQ(client_->Get("/metrics", {{"Host", "127.evil.example:9464"}})->status, 403);
  EXPECT_EQ(client_->Get("/metrics", {{"Host", "127.0.0.9:9464"}})->status, 200);
  EXPECT_EQ(client_->Get("/metrics", {{"Host", "localhost:1"}})->status, 200);
  EXPECT_EQ(client_->Post("/label", {{"Origin", "http://evil.example"}}, "", "text/plain")->status,
            403);
  EXPECT_EQ(server_->counts().refused, 6U);
  EXPECT_EQ(server_->counts().served, 2U);
}

TEST_F(Server, PassesQueryAndBodyToHandlers) {
  const auto answer = client_->Post("/label?id=a%20b&id=c", "ack", "text/plain");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "a back");
}

TEST_F(Server, RefusesBodiesAndPathsThatAreTooLong) {
  const HttpOptions options;
  EXPECT_EQ(client_->Post("/label", std::string(options.body_bytes_max, 'x'), "text/plain")->status,
            200);
  const auto large =
      client_->Post("/label", std::string(options.body_bytes_max + 1, 'x'), "text/plain");
  EXPECT_TRUE(!large || large->status == 413);
  const auto path = client_->Get(("/" + std::string(10'000, 'a')).c_str());
  EXPECT_TRUE(!path || path->status >= 400);
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
}

TEST_F(Server, ServesManyMoreClientsThanItHasThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 24; ++i)
    threads.emplace_back([&] {
      httplib::Client client("127.0.0.1", server_->port());
      be_patient(client);
      const auto answer = client.Get("/metrics");
      if (answer && answer->status == 200) ++good;
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(good, 24);
}

/// A client that has sent the beginning of a request.
sys::Fd slow_client(std::uint16_t port) {
  sys::Fd socket = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.raw(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(socket.raw(), "GET /met", 8, 0), 8);
  return socket;
}

// They hold all threads; each read comes in time.
TEST_F(Server, CutsOffClientsThatSendAByteNowAndThen) {
  HttpOptions options;
  options.timeout = kNoDeadline;
  options.connection_timeout = std::chrono::milliseconds{300};
  begin(options);
  std::vector<sys::Fd> clients;
  for (std::size_t i = 0; i < options.thread_count; ++i)
    clients.push_back(slow_client(server_->port()));
  for (const sys::Fd& client : clients) {
    char byte = 0;
    ssize_t got = -1;
    errno = 0;
    do {
      (void)::send(client.raw(), "x", 1, MSG_NOSIGNAL);
      pollfd ready{client.raw(), POLLIN, 0};
      if (::poll(&ready, 1, 20) == 1) got = ::recv(client.raw(), &byte, 1, 0);
    } while (got < 0 && errno != ECONNRESET);
    EXPECT_LE(got, 0);
  }
  // Under such a limit a good client may be cut off, too, if the machine is slow.
  EXPECT_TRUE(sys::poll_for_test([&] {
    const auto answer = client_->Get("/healthz");
    return answer && answer->status == 200;
  }));
}

TEST_F(Server, EndsAlthoughAClientNeverFinishesItsRequest) {
  const sys::Fd socket = slow_client(server_->port());
  EXPECT_EQ(client_->Get("/healthz")->status, 200);  // the other thread still serves
  server_.reset();
  char byte = 0;
  EXPECT_LE(::recv(socket.raw(), &byte, 1, 0), 0);
}

TEST_F(Server, SaysWhatItCannotBindOrRoute) {
  HttpOptions options;
  options.port = server_->port();
  const auto taken = HttpServer::start(options, {});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kUnavailable);
  EXPECT_THAT(taken.error().what, HasSubstr(std::to_string(server_->port())));
  for (const std::string path : {"x", "/a*", "/a b", ""})
    EXPECT_FALSE(HttpServer::start({}, {{"GET", path, nullptr}})) << path;
  EXPECT_FALSE(HttpServer::start({}, {{"BREW", "/a", nullptr}}));
}

}  // namespace
}  // namespace kansoku::exporter
