// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::capture {
namespace {

using testing::ElementsAre;

/// A child that keeps the descriptors that are open when it begins, without some, until its end.
class Child {
 public:
  explicit Child(std::initializer_list<int> without) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const int fd : without)
        ::close(fd);
      static_cast<void>(::write(ready[1], "x", 1));
      for (;;)
        ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] std::int32_t pid() const { return pid_; }

 private:
  pid_t pid_{-1};
};

/// The two ends of a connection over loopback.
std::array<sys::Fd, 2> connection() {
  const sys::Fd listener = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  sys::Fd client = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.raw(), raw, bytes) != 0 || ::listen(listener.raw(), 1) != 0 ||
      ::getsockname(listener.raw(), raw, &bytes) != 0 || ::connect(client.raw(), raw, bytes) != 0)
    return {};
  return {std::move(client),
          sys::Fd::adopt(::accept4(listener.raw(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(Connections, JoinProcessesThatTalk) {
  const Child alone({});
  std::vector<std::unique_ptr<Child>> children;
  {
    const auto [client, server] = connection();
    ASSERT_TRUE(client.is_open() && server.is_open());
    children.push_back(std::make_unique<Child>(std::initializer_list<int>{server.raw()}));
    children.push_back(std::make_unique<Child>(std::initializer_list<int>{client.raw()}));
  }
  const sys::RealClock clock;
  const auto joined = [&](std::vector<std::int32_t> pids, std::vector<std::uint64_t> networks) {
    sys::TcpSampler sampler;
    return connected(sampler, pids, networks, clock.now());
  };
  const std::int32_t a = children[0]->pid(), b = children[1]->pid();
  EXPECT_THAT(joined({alone.pid(), a, b}, {1, 1, 1}), ElementsAre(0, 1, 1));
  EXPECT_THAT(joined({b, alone.pid(), a}, {1, 1, 1}), ElementsAre(0, 1, 0));
  EXPECT_THAT(joined({a, b}, {1, 2}), ElementsAre(0, 1)) << "two namespaces with equal addresses";
  EXPECT_THAT(joined({a, 0x7fffffff}, {1, 1}), ElementsAre(0, 1)) << "gone";
}

}  // namespace
}  // namespace kansoku::capture
