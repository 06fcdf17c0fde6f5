// SPDX-License-Identifier: Apache-2.0
#include "capture/kineto/daemon.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sys/clock.h"

namespace kansoku::capture::kineto {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BootTime at_s(int seconds) {
  return boot_time(std::int64_t{seconds} * 1'000'000'000);
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The client end, as Kineto speaks it.
class Client {
 public:
  Client(const std::string& daemon, int index) {
    socket_ = sys::Fd::adopt(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::string name = fmt::format("kansoku_test_client_{}_{}", ::getpid(), index);
    const auto [own, own_length] = address(name);
    EXPECT_EQ(::bind(socket_.raw(), reinterpret_cast<const sockaddr*>(&own), own_length), 0);
    std::tie(peer_, peer_length_) = address(daemon);
  }

  void send(const std::string& bytes) const {
    EXPECT_EQ(::sendto(socket_.raw(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&peer_), peer_length_),
              static_cast<ssize_t>(bytes.size()));
  }
  /// The payload of the next reply; "(none)" if there is none.
  [[nodiscard]] std::string receive() const {
    std::string bytes(65536, '\0');
    const ssize_t got = ::recv(socket_.raw(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 40) return "(none)";
    return bytes.substr(40, static_cast<std::size_t>(got) - 40);
  }

  static std::string message(const std::string& type, const std::string& payload) {
    std::string out;
    put(out, std::uint64_t{payload.size()});
    std::string field = type;
    field.resize(32, '\0');
    return out + field + payload;
  }
  static std::string hello(std::int32_t pid) {
    std::string payload;
    put(payload, std::int32_t{0});
    put(payload, pid);
    put(payload, std::int64_t{7});
    return message("ctxt", payload);
  }
  static std::string question(const std::vector<std::int32_t>& pids, std::int32_t claimed) {
    std::string payload;
    put(payload, std::int32_t{3});
    put(payload, claimed);
    put(payload, std::int64_t{7});
    for (const std::int32_t pid : pids)
      put(payload, pid);
    return message("req", payload);
  }

 private:
  static std::pair<sockaddr_un, socklen_t> address(const std::string& name) {
    sockaddr_un out{};
    out.sun_family = AF_UNIX;
    std::memcpy(out.sun_path + 1, name.data(), name.size());
    return {out, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }
  sys::Fd socket_;
  sockaddr_un peer_{};
  socklen_t peer_length_{0};
};

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() : name_(fmt::format("kansoku_test_daemon_{}", ::getpid())) {
    auto opened = Daemon::open({.name = name_});
    EXPECT_TRUE(opened) << opened.error().what;
    daemon_ = std::move(opened).value();
  }
  std::string name_;
  std::unique_ptr<Daemon> daemon_;
  std::int32_t pid_{::getpid()};
};

TEST_F(DaemonTest, RegistersAndHandsEachWindowOutOnce) {
  const Client client(name_, 1);
  client.send(Client::hello(pid_));
  EXPECT_EQ(daemon_->pump(at_s(1)), 1U);
  std::string one;
  put(one, std::int32_t{1});
  EXPECT_EQ(client.receive(), one);
  EXPECT_THAT(daemon_->processes(), ElementsAre(pid_));
  client.send(Client::question({pid_, 1}, 2));
  daemon_->pump(at_s(2));
  EXPECT_EQ(client.receive(), "");  // no window is wanted
  // It is not over before this test is.
  const std::int64_t start_ms = sys::wall_time_ns() / 1'000'000 + 2000;
  daemon_->request({.start_unix_ms = start_ms, .duration_ms = 36'000'000, .folder = "/tmp/k"});
  client.send(Client::question({pid_}, 1));
  client.send(Client::question({pid_}, 1));
  EXPECT_EQ(daemon_->pump(at_s(3)), 2U);
  const std::string config = client.receive();
  EXPECT_THAT(config, HasSubstr(fmt::format("ACTIVITIES_LOG_FILE=/tmp/k/kineto_{}.json\n", pid_)));
  EXPECT_THAT(config, HasSubstr(fmt::format("PROFILE_START_TIME={}\n", start_ms)));
  EXPECT_THAT(config, HasSubstr("ACTIVITIES_DURATION_MSECS=36000000\n"));
  EXPECT_EQ(client.receive(), "");  // once
  EXPECT_EQ(daemon_->handed_out(), 1U);
}

TEST_F(DaemonTest, DoesNotHandOutAWindowThatIsOver) {
  const Client client(name_, 2);
  daemon_->request({.start_unix_ms = 1000, .duration_ms = 10, .folder = "/tmp"});
  client.send(Client::question({pid_}, 1));
  daemon_->pump(at_s(1));
  EXPECT_EQ(client.receive(), "");
}

TEST_F(DaemonTest, AnswersABurstAtOnce) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8;
       ++i)  // the socket's queue holds about ten; a real daemon is read meanwhile
    clients.push_back(std::make_unique<Client>(name_, 100 + i));
  for (int round = 0; round < 8; ++round) {
    for (const auto& client : clients)
      client->send(Client::question({pid_}, 1));
    EXPECT_EQ(daemon_->pump(at_s(1)), clients.size());
    for (const auto& client : clients)
      EXPECT_EQ(client->receive(), "");
  }
  EXPECT_EQ(daemon_->counters().datagrams, 64U);
}

TEST_F(DaemonTest, RefusesWhatIsNoRequest) {
  const Client client(name_, 3);
  std::string empty;
  const std::vector<std::string> bad{"x",
                                     std::string(40, '\0'),
                                     Client::message("nope", "1234"),
                                     Client::message("ctxt", "short"),
                                     Client::message("req", "short"),
                                     Client::question({pid_}, 1'000'000'000),
                                     Client::question({pid_}, 0),
                                     Client::question({pid_}, -1),
                                     Client::message("ctxt", std::string(16, '\0')).substr(0, 50)};
  for (const std::string& datagram : bad)
    client.send(datagram);
  EXPECT_EQ(daemon_->pump(at_s(1)), bad.size());
  EXPECT_EQ(daemon_->counters().bad, bad.size());
  EXPECT_EQ(client.receive(), "(none)");
  EXPECT_TRUE(daemon_->processes().empty());
}

TEST_F(DaemonTest, DoesNotBelieveAnotherPid) {
  const Client client(name_, 4);
  client.send(Client::hello(1));
  client.send(Client::question({1}, 1));
  daemon_->pump(at_s(1));
  EXPECT_EQ(daemon_->counters().foreign, 2U);
  EXPECT_EQ(client.receive(), "(none)");
}

TEST_F(DaemonTest, ForgetsWhoIsSilent) {
  const Client client(name_, 5);
  client.send(Client::hello(pid_));
  daemon_->pump(at_s(1));
  daemon_->pump(at_s(61));
  EXPECT_THAT(daemon_->processes(), ElementsAre(pid_));
  daemon_->pump(at_s(62));
  EXPECT_TRUE(daemon_->processes().empty());
}

TEST_F(DaemonTest, TellsThatTheNameIsTaken) {
  const auto second = Daemon::open({.name = name_});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_THAT(second.error().what, HasSubstr("another daemon"));
}

}  // namespace
}  // namespace kansoku::capture::kineto
