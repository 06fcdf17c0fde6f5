// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "common/check.h"
#include "sys/fd.h"

namespace kansoku::sys {

/// A TCP port of 127.0.0.1 at which nobody listens, kept while the object lives: the kernel gives
/// it to no other process, nor to a connection that is made, which could meet itself there. A
/// server that sets SO_REUSEADDR may still listen at it, as often as it likes.
class PortForTest {
 public:
  PortForTest() : held_(bound_to(0)) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    CHECK(::getsockname(held_.raw(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    number_ = ntohs(address.sin_port);
  }
  [[nodiscard]] std::uint16_t number() const { return number_; }
  /// A server that takes connections into its queue and never answers; it hangs up on all when it
  /// is closed.
  [[nodiscard]] Fd silent_server() const {
    Fd server = bound_to(number_);
    CHECK(::listen(server.raw(), SOMAXCONN) == 0);
    return server;
  }

 private:
  static Fd bound_to(std::uint16_t port) {
    Fd socket = Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    CHECK(::setsockopt(socket.raw(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(socket.raw(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }

  const Fd held_;
  std::uint16_t number_{0};
};

}  // namespace kansoku::sys
