// SPDX-License-Identifier: Apache-2.0
#include "fleet/nats_server_for_test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::fleet {
namespace {

constexpr std::array kPrograms{"/usr/sbin/nats-server", "/usr/bin/nats-server",
                               "/usr/local/bin/nats-server"};
constexpr Nanos kStartDeadline = std::chrono::seconds{20};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int free_port() {
  const sys::Fd socket = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.raw(), raw, size) != 0 || getsockname(socket.raw(), raw, &size) != 0) return 0;
  return ntohs(address.sin_port);
}

bool accepts(int port) {
  const sys::Fd socket = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  return connect(socket.raw(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

bool NatsServerForTest::run() {
  const char* program = nullptr;
  for (const char* path : kPrograms)
    if (program == nullptr && access(path, X_OK) == 0) program = path;
  if (program == nullptr) return false;
  std::vector<std::string> argv{program, "-a", "127.0.0.1", "-p", std::to_string(port_)};
  argv.insert(argv.end(), extra_.begin(), extra_.end());
  auto child = sys::Child::start(argv, {{}, "/dev/null"});
  if (!child) return false;
  child_ = *std::move(child);
  child_->release();
  const sys::RealClock clock;
  for (const BootTime until = clock.now() + kStartDeadline; clock.now() < until;) {
    if (accepts(port_)) return true;
    if (child_->poll()) return false;
    sys::sleep_until(clock.now() + std::chrono::milliseconds{5});
  }
  return false;
}

std::unique_ptr<NatsServerForTest> NatsServerForTest::start(std::vector<std::string> extra) {
  std::unique_ptr<NatsServerForTest> server(new NatsServerForTest(std::move(extra)));
  for (int tries = 0; tries < 3; ++tries) {  // another process may take the port meanwhile
    server->port_ = free_port();
    if (server->run()) return server;
    server->kill();
  }
  return nullptr;
}

void NatsServerForTest::kill() {
  if (!child_) return;
  child_->send(SIGKILL);
  static_cast<void>(child_->wait());
  child_.reset();
}

bool NatsServerForTest::restart() {
  kill();
  return run();
}

NatsServerForTest::~NatsServerForTest() {
  kill();
}

}  // namespace kansoku::fleet
