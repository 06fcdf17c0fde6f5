// SPDX-License-Identifier: Apache-2.0
#include "fleet/nats_server_for_test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "common/check.h"
#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::fleet {
namespace {

constexpr std::array kPrograms{"/usr/sbin/nats-server", "/usr/bin/nats-server",
                               "/usr/local/bin/nats-server"};

/// Empty if there is none.
std::string find_program() {
  for (const char* path : kPrograms)
    if (access(path, X_OK) == 0) return path;
  return "";
}

bool accepts(std::uint16_t port) {
  const sys::Fd socket = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(socket.raw(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

bool NatsServerForTest::run(const std::string& program) {
  std::vector<std::string> argv{program, "-a", "127.0.0.1", "-p", std::to_string(port_.number())};
  argv.insert(argv.end(), extra_.begin(), extra_.end());
  auto child = sys::Child::start(argv, {{}, "/dev/null"});
  if (!child) return false;
  child_ = *std::move(child);
  child_->release();
  bool is_up = false;
  return sys::poll_for_test([&] {
           is_up = accepts(port_.number());
           return is_up || child_->poll().has_value();
         }) &&
         is_up;
}

std::unique_ptr<NatsServerForTest> NatsServerForTest::start(std::vector<std::string> extra) {
  const std::string program = find_program();
  if (program.empty()) return nullptr;
  std::unique_ptr<NatsServerForTest> server(new NatsServerForTest(std::move(extra)));
  CHECK(server->run(program));  // it is installed, so it starts
  return server;
}

void NatsServerForTest::kill() {
  if (!child_) return;
  child_->send(SIGKILL);
  static_cast<void>(child_->wait());
  child_.reset();
}

bool NatsServerForTest::restart() {
  kill();
  return run(find_program());
}

NatsServerForTest::~NatsServerForTest() {
  kill();
}

}  // namespace kansoku::fleet
