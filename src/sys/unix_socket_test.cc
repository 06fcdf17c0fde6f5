// SPDX-License-Identifier: Apache-2.0
#include "sys/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "common/rng.h"
#include "sys/wait_for_test.h"

namespace kansoku::sys {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Nanos kLong = kPatienceForTest;

BootTime socket_deadline(int seconds) {
  return boot_time(std::int64_t{1'000'000'000} * (1000 + seconds));
}

std::string echo(std::string_view line) {
  return "you said " + std::string(line) + "\n";
}

class UnixSocket : public ::testing::Test {
 protected:
  UnixSocket() : path_(::testing::TempDir() + "kansoku-socket-" + std::to_string(::getpid())) {}
  ~UnixSocket() override { ::unlink(path_.c_str()); }
  void listen(const UnixServer::Options& options = {}) {
    auto made = UnixServer::listen(path_, options);
    ASSERT_TRUE(made) << made.error().what;
    server_.emplace(std::move(*made));
  }
  Fd client() const {
    Fd fd = Fd::adopt(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::connect(fd.raw(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void put(const Fd& fd, std::string_view text) {
    EXPECT_EQ(::send(fd.raw(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
              static_cast<ssize_t>(text.size()));
  }
  static std::string get(const Fd& fd) {
    char buffer[4096];
    const ssize_t got = ::recv(fd.raw(), &buffer[0], sizeof buffer, MSG_DONTWAIT);
    return got < 0 ? "<nothing>" : std::string(&buffer[0], static_cast<std::size_t>(got));
  }
  void serve(BootTime now = socket_deadline(0)) { server_->serve(now, echo); }
  /// Serves in a thread while `body` runs, which may block.
  template <class Body>
  void while_served(Body body) {
    std::atomic<bool> is_over{false};
    std::thread thread([&] {
      while (!is_over) {
        pollfd one{server_->poll_fd(), POLLIN, 0};
        if (::poll(&one, 1, 1) > 0) serve();
      }
    });
    body();
    is_over = true;
    thread.join();
  }

  std::string path_;
  std::optional<UnixServer> server_;
};

TEST_F(UnixSocket, AnswersALine) {
  listen();
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  while_served([&] {
    for (const std::string& line : {std::string("status"), std::string(), std::string(4096, 'x')}) {
      const auto answer = unix_request(path_, line, kLong);
      ASSERT_TRUE(answer) << answer.error().what;
      EXPECT_EQ(*answer, echo(line));
    }
  });
  EXPECT_EQ(server_->stats().requests, 3U);
  EXPECT_EQ(server_->connections(), 0U);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocket, AnswersPieceByPiece) {
  listen();
  const Fd one = client();
  serve();
  put(one, "he");
  serve();
  EXPECT_EQ(get(one), "<nothing>");
  put(one, "llo\nmore that nobody reads");
  serve();
  EXPECT_EQ(get(one), "you said hello\n");
  EXPECT_EQ(get(one), "");  // the end
  const Fd gone = client();
  serve();
  put(gone, "half a line");
  serve();
  EXPECT_EQ(server_->connections(), 1U);
  ::shutdown(gone.raw(), SHUT_WR);
  serve();
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(UnixSocket, LongAnswersAndClientsThatNeverRead) {
  listen();
  const std::string big(4 << 20, 'y');
  const auto answer_big = [&](std::string_view) { return big; };
  const Fd deaf = client();
  server_->serve(socket_deadline(0), answer_big);
  put(deaf, "x\n");
  for (int i = 0; i < 100; ++i)
    server_->serve(socket_deadline(0), answer_big);
  EXPECT_EQ(server_->connections(), 1U);
  pollfd one{server_->poll_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&one, 1, 0), 0);  // it does not keep us busy
  server_->serve(socket_deadline(4), answer_big);
  EXPECT_EQ(server_->connections(), 1U);
  server_->serve(socket_deadline(5), answer_big);
  EXPECT_EQ(server_->connections(), 0U);
  EXPECT_EQ(server_->stats().too_slow, 1U);
  // One that reads gets all of it.
  std::atomic<bool> is_over{false};
  std::thread thread([&] {
    while (!is_over)
      server_->serve(socket_deadline(5), answer_big);
  });
  const auto answer = unix_request(path_, "x", kLong);
  const auto cut = unix_request(path_, "x", kLong, 1000);
  is_over = true;
  thread.join();
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_EQ(*answer, big);
  EXPECT_EQ(cut.error().code, Code::kLimit);
}

TEST_F(UnixSocket, AMegabyteWithoutAnEnd) {
  listen();
  const Fd one = client();
  const std::string piece(4096, 'z');
  std::size_t sent = 0;
  for (int i = 0; i < 256 && server_->stats().too_long == 0; ++i) {
    sent += piece.size();
    if (::send(one.raw(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    serve();
  }
  EXPECT_EQ(server_->stats().too_long, 1U);
  EXPECT_LE(sent, 4 * piece.size());  // nothing was kept beyond the limit
  EXPECT_EQ(server_->connections(), 0U);
  while_served([&] {
    EXPECT_EQ(unix_request(path_, std::string(4096, 'a'), kLong).value_or(""),
              echo(std::string(4096, 'a')));
  });
  const Fd above = client();
  serve();
  put(above, std::string(4097, 'a') + "\n");
  serve();
  serve();
  EXPECT_EQ(server_->stats().too_long, 2U);
}

TEST_F(UnixSocket, ManyClientsAtOnce) {
  listen({.connections_max = 3});
  std::vector<Fd> clients;
  for (int i = 0; i < 10; ++i)
    clients.push_back(client());
  serve();
  EXPECT_EQ(server_->connections(), 3U);
  EXPECT_EQ(server_->stats().too_many, 7U);
  EXPECT_EQ(get(clients[9]), "");  // turned away
  put(clients[0], "a\n");
  serve();
  EXPECT_EQ(get(clients[0]), "you said a\n");
  EXPECT_EQ(server_->connections(), 2U);
  const Fd next = client();
  serve();
  EXPECT_EQ(server_->connections(), 3U);
}

TEST_F(UnixSocket, WithoutDescriptorsCallersAreTurnedAway) {
  listen();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd caller = client();
  const Fd next = Fd::adopt(::dup(0));
  const rlimit none{static_cast<rlim_t>(next.raw()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  serve();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(server_->stats().too_many, 1U);
  EXPECT_EQ(get(caller), "");
  while_served([&] { EXPECT_TRUE(unix_request(path_, "a", kLong)); });
}

TEST_F(UnixSocket, OtherUsersMayNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  listen();
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);  // even then
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(2);
    ::_exit(unix_request(path_, "a", kLong).value_or("").empty() ? 0 : 1);
  }
  int status = 0;
  while_served([&] { ASSERT_EQ(::waitpid(child, &status, 0), child); });
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(server_->stats().refused_peers, 1U);
  EXPECT_EQ(server_->stats().requests, 0U);
}

TEST_F(UnixSocket, WhatIsThereAlready) {
  listen();
  auto second = UnixServer::listen(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  // A server that was killed leaves its file.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto dead = UnixServer::listen(path_ + "x");
    ::_exit(dead ? 0 : 1);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(path_ + "x"));
  EXPECT_EQ(unix_request(path_ + "x", "a", kLong).error().code, Code::kUnavailable);
  EXPECT_TRUE(UnixServer::listen(path_ + "x"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "x"));
  // A file of somebody else stays.
  std::ofstream(path_ + "x") << "mine";
  EXPECT_EQ(UnixServer::listen(path_ + "x").error().code, Code::kUnsupported);
  EXPECT_TRUE(std::filesystem::exists(path_ + "x"));
  std::filesystem::remove(path_ + "x");
  EXPECT_EQ(UnixServer::listen(std::string(108, 'a')).error().code, Code::kLimit);
  EXPECT_EQ(UnixServer::listen("").error().code, Code::kLimit);
  EXPECT_EQ(unix_request(path_ + "none", "a", kLong).error().code, Code::kNotFound);
}

TEST_F(UnixSocket, AServerThatDoesNotAnswerIsATimeout) {
  listen();
  const auto answer = unix_request(path_, "a", 1ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kTimeout);
  EXPECT_THAT(answer.error().what, HasSubstr(path_));
}

/// Clients that connect, send, close and read in any order.
TEST_F(UnixSocket, AnyOrderOfEvents) {
  listen({.line_bytes_max = 20, .connections_max = 5, .time_max = 10s});
  RandomStream random(7, "clients");
  std::vector<Fd> clients;
  for (int i = 0; i < 20'000; ++i) {
    const auto which = clients.empty() ? 0 : random.below(clients.size());
    switch (random.below(5)) {
      case 0:
        if (clients.size() < 12) clients.push_back(client());
        break;
      case 1:
        if (!clients.empty()) {
          const std::string text = std::string(random.below(15), 'a') + (i % 2 == 0 ? "\n" : "");
          static_cast<void>(
              ::send(clients[which].raw(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
        }
        break;
      case 2:
        if (!clients.empty()) clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(which));
        break;
      default:
        serve(socket_deadline(i / 1000));
    }
    ASSERT_LE(server_->connections(), 5U);
  }
  clients.clear();
  for (int i = 0; i < 10; ++i)
    serve(socket_deadline(1000));
  EXPECT_EQ(server_->connections(), 0U);
  EXPECT_GT(server_->stats().requests, 100U);
}

}  // namespace
}  // namespace kansoku::sys
