// SPDX-License-Identifier: Apache-2.0
// Troubles that a bus over the network has to stand: servers that are away, go away, or refuse.
#include "fleet/nats_bus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "fleet/nats_server_for_test.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/port_for_test.h"
#include "sys/process.h"
#include "sys/wait_for_test.h"

namespace kansoku::fleet {
namespace {

constexpr Nanos kNatsWhile = sys::kPatienceForTest;  // longer than anything takes

NatsOptions options_for(std::string url) {
  NatsOptions options;
  options.url = std::move(url);
  options.connect_timeout = kNatsWhile;
  options.backoff_first = std::chrono::milliseconds{5};
  options.backoff_max = std::chrono::milliseconds{50};
  return options;
}

class NatsBusTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!start()) GTEST_SKIP() << "nats-server not found (apt-get install nats-server)";
  }
  bool start(std::vector<std::string> extra = {}) {
    server_ = NatsServerForTest::start(std::move(extra));
    return server_ != nullptr;
  }
  std::unique_ptr<Bus> connect(const std::string& credentials = "", const BusLimits& limits = {}) {
    NatsOptions options = options_for(server_->url(credentials));
    options.limits = limits;
    return connect_nats(options, clock_).value();
  }
  bool poll_until(Bus& bus, const std::function<bool()>& is_done) {
    for (const BootTime until = clock_.now() + kNatsWhile; !is_done() && clock_.now() < until;)
      bus.poll(std::chrono::milliseconds{5});
    return is_done();
  }

  sys::RealClock clock_;
  std::unique_ptr<NatsServerForTest> server_;
};

TEST_F(NatsBusTest, OutlivesTheServer) {
  const auto talker = connect(), listener = connect();
  std::set<std::string> seen;
  ASSERT_TRUE(
      listener->subscribe("t", [&](const BusMessage& message) { seen.insert(message.bytes); })
          .has_value());
  ASSERT_TRUE(listener->flush(kNatsWhile).has_value());
  ASSERT_TRUE(talker->publish("t", "before").has_value());
  ASSERT_TRUE(poll_until(*listener, [&] { return seen.contains("before"); }));
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE(talker->flush(kNatsWhile).has_value());  // nothing waits, of the last round neither
    const std::uint64_t failed_before = talker->status().failed_connects;
    server_->kill();
    const auto both_know = [&] {
      return !talker->status().is_connected && !listener->status().is_connected;
    };
    ASSERT_TRUE(poll_until(*listener, both_know));
    const std::string text = "while away " + std::to_string(round);
    ASSERT_TRUE(talker->publish("t", text).has_value());
    EXPECT_EQ(talker->flush(std::chrono::milliseconds{20}).error().code, Code::kTimeout);
    EXPECT_EQ(talker->status().queued_messages, 1U);
    const auto has_tried = [&] { return talker->status().failed_connects > failed_before; };
    ASSERT_TRUE(poll_until(*listener, has_tried));
    ASSERT_TRUE(server_->restart());
    ASSERT_TRUE(poll_until(*listener, [&] { return listener->status().is_connected; }));
    ASSERT_TRUE(listener->flush(kNatsWhile).has_value());
    // The talker may be back before the listener: the bus keeps messages for the server only.
    ASSERT_TRUE(talker->publish("t", text).has_value());
    ASSERT_TRUE(poll_until(*listener, [&] { return seen.contains(text); }));
  }
  EXPECT_EQ(talker->status().connects, 3U);
  EXPECT_EQ(talker->status().dropped_outgoing, 0U);
}

TEST_F(NatsBusTest, DropsTheOldestWhileTheServerIsAway) {
  BusLimits limits;
  limits.outgoing_messages = 3;
  const auto talker = connect("", limits), listener = connect();
  ASSERT_TRUE(talker->flush(kNatsWhile).has_value());
  server_->kill();
  ASSERT_TRUE(poll_until(*talker, [&] { return !talker->status().is_connected; }));
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(talker->publish("t", std::to_string(i)).has_value());
  EXPECT_EQ(talker->status().dropped_outgoing, 7U);
  EXPECT_EQ(talker->status().queued_messages, 3U);
  limits.outgoing_bytes = 100;
  const auto small = connect("", limits);
  ASSERT_TRUE(small->publish("t", std::string(60, 'a')).has_value());
  ASSERT_TRUE(small->publish("t", std::string(60, 'b')).has_value());
  EXPECT_EQ(small->status().dropped_outgoing, 1U);
  EXPECT_EQ(small->status().queued_messages, 1U);
}

TEST_F(NatsBusTest, RequestsRunOutWhileTheServerIsAway) {
  const auto bus = connect();
  ASSERT_TRUE(bus->flush(kNatsWhile).has_value());
  server_->kill();
  bool is_over = false;
  ASSERT_TRUE(bus->request("t", "?", std::chrono::milliseconds{30},
                           [&](Result<std::string> answer) {
                             is_over = answer.error().code == Code::kTimeout;
                           })
                  .has_value());
  EXPECT_TRUE(poll_until(*bus, [&] { return is_over; }));
}

TEST_F(NatsBusTest, ConnectsWithCredentialsAndTellsNobody) {
  ASSERT_TRUE(start({"--user", "ann", "--pass", "s3cret/@:x"}));
  EXPECT_TRUE(connect("ann:s3cret%2F%40%3Ax@")->flush(kNatsWhile).has_value());
  const auto refused = connect("ann:wr0ngpass@");
  std::string error;
  const auto is_refused = [&] {
    const BusStatus status = refused->status();
    error = status.last_error;
    EXPECT_EQ(error.find("wr0ngpass"), std::string::npos);
    return status.failed_connects > 2 && error.find("Authorization") != std::string::npos;
  };
  ASSERT_TRUE(poll_until(*refused, is_refused)) << error;
  EXPECT_EQ(refused->status().connects, 0U);
  EXPECT_EQ(refused->flush(std::chrono::milliseconds{10}).error().what.find("wr0ngpass"),
            std::string::npos);
  ASSERT_TRUE(start({"--auth", "t0ken"}));
  EXPECT_TRUE(connect("t0ken@")->flush(kNatsWhile).has_value());
}

/// A folder of this test's own.
class Folder {
 public:
  Folder() : path_(testing::TempDir() + "kansoku_nats_XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST_F(NatsBusTest, SpeaksTlsToServersItTrusts) {
  const Folder folder;
  const std::string certificate = folder.file("cert.pem"), key = folder.file("key.pem");
  auto openssl = sys::Child::start(
      {"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
       "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
       "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate},
      {{}, "/dev/null"});
  ASSERT_TRUE(openssl.has_value());
  openssl->release();
  if (openssl->wait() != 0) GTEST_SKIP() << "openssl not found (apt-get install openssl)";
  ASSERT_TRUE(start({"--tls", "--tlscert", certificate, "--tlskey", key}));
  NatsOptions options = options_for(server_->url());
  options.ca_file = certificate;
  const auto trusting = connect_nats(options, clock_).value();
  EXPECT_TRUE(trusting->flush(kNatsWhile).has_value()) << trusting->status().last_error;
  options.ca_file.clear();
  options.url.replace(0, 4, "tls");
  const auto wary = connect_nats(options, clock_).value();
  std::string error;
  const auto is_wary = [&] {
    error = wary->status().last_error;
    return error.find("certificate") != std::string::npos;
  };
  ASSERT_TRUE(poll_until(*wary, is_wary)) << error;
  EXPECT_EQ(wary->status().connects, 0U);
  options.ca_file = folder.file("not there");
  EXPECT_EQ(connect_nats(options, clock_).error().code, Code::kUnsupported);
}

/// Waiting would take as long as a connection may: whoever does it here does not come back.
void expect_no_waiting(Bus& bus) {
  EXPECT_TRUE(bus.subscribe("t", [](const BusMessage&) {}).has_value());
  EXPECT_TRUE(bus.publish("t", "x").has_value());
  EXPECT_EQ(bus.poll(Nanos{}), 0U);
  EXPECT_FALSE(bus.status().is_connected);
  EXPECT_EQ(bus.status().queued_messages, 1U);
}

TEST(NatsBus, NeverWaitsForAServerThatIsNotThere) {
  const sys::RealClock clock;
  const sys::PortForTest port;
  NatsOptions options = options_for("nats://127.0.0.1:" + std::to_string(port.number()));
  options.backoff_first = options.backoff_max = std::chrono::hours{10};
  const auto bus = connect_nats(options, clock).value();
  expect_no_waiting(*bus);
  EXPECT_TRUE(sys::poll_for_test([&] { return bus->status().failed_connects == 1; }));
  expect_no_waiting(*connect_nats(options, clock).value());  // one that ends at once
}

TEST(NatsBus, NeverWaitsForAServerThatSaysNothing) {
  const sys::RealClock clock;
  const sys::PortForTest port;
  sys::Fd server = port.silent_server();
  NatsOptions options = options_for("nats://127.0.0.1:" + std::to_string(port.number()));
  options.connect_timeout = std::chrono::hours{10};
  const auto bus = connect_nats(options, clock).value();
  expect_no_waiting(*bus);
  server = sys::Fd();  // or the bus would wait for it at its end
}

TEST(NatsUrl, TakenApartWithoutSecrets) {
  const auto servers = parse_nats_url("tls://ann:p%40ss@a.b:1,c,nats://[::1]:5/").value();
  EXPECT_EQ(servers.servers,
            (std::vector<std::string>{"nats://a.b:1", "nats://c:4222", "nats://[::1]:5"}));
  EXPECT_TRUE(servers.uses_tls);
  EXPECT_EQ(servers.user, "ann");
  EXPECT_EQ(servers.password, "p@ss");
  EXPECT_EQ(parse_nats_url("nats://t0ken@h").value().token, "t0ken");
  for (const char* url :
       {"", "http://h", "nats://", "nats://h:0", "nats://h:x", "nats://h:99999", "nats://h h",
        "nats://secret%2@h", "nats://secret%00@h", "nats://:secret@h", "secret@a,other@b",
        "nats://[::1", "nats://[]:1", "nats://h\n"}) {
    const auto refused = parse_nats_url(url);
    ASSERT_FALSE(refused.has_value()) << url;
    EXPECT_EQ(refused.error().what.find("secret"), std::string::npos);
  }
}

}  // namespace
}  // namespace kansoku::fleet
