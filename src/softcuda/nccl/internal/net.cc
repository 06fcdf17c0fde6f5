// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/net.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>

namespace kansoku::softcuda::nccl {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes{sizeof(sockaddr_storage)};
  [[nodiscard]] sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress socket_address(const HostAddress& host, std::uint16_t port) {
  SocketAddress made;
  if (host.is_v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, host.bytes.data(), 16);
    made.bytes = sizeof(v6);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, host.bytes.data(), 4);
    made.bytes = sizeof(v4);
  }
  return made;
}

std::optional<HostAddress> host_of(const sockaddr* address) {
  HostAddress host;
  if (address->sa_family == AF_INET) {
    std::memcpy(host.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    return host;
  }
  if (address->sa_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return std::nullopt;  // means nothing elsewhere
    host.is_v6 = true;
    std::memcpy(host.bytes.data(), &v6->sin6_addr, 16);
    return host;
  }
  return std::nullopt;
}

Result<sys::Fd> open_socket(const HostAddress& address) {
  const int fd =
      ::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno_error(errno, "open", "socket");
  return sys::Fd::adopt(fd);
}

/// Waits until `events` or an error can be had.
Result<void> wait_for(const sys::Fd& connection, short events, const Deadline& deadline) {
  while (true) {
    pollfd wanted{connection.raw(), events, 0};
    const int ready = ::poll(&wanted, 1, deadline.left_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return errno_error(errno, "poll", "connection");
    if (deadline.has_passed()) return Error{Code::kTimeout, "no answer in time"};
  }
}

bool is_gone(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ETIMEDOUT;
}

Error connection_error(int error, std::string_view operation, std::string_view object) {
  Error made = errno_error(error, operation, object);
  if (is_gone(error)) made.code = Code::kUnavailable;
  return made;
}

}  // namespace

HostAddress loopback() {
  HostAddress host;
  host.bytes[0] = 127;
  host.bytes[3] = 1;
  return host;
}

std::string text_of(const HostAddress& address) {
  char text[INET6_ADDRSTRLEN]{};
  ::inet_ntop(address.is_v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof(text));
  return text;
}

bool admits(std::string_view filter, std::string_view name) {
  const bool is_negated = filter.starts_with('^');
  if (is_negated) filter.remove_prefix(1);
  const bool is_exact = filter.starts_with('=');
  if (is_exact) filter.remove_prefix(1);
  bool is_listed = false;
  while (!filter.empty()) {
    const auto word = filter.substr(0, filter.find(','));
    filter.remove_prefix(std::min(word.size() + 1, filter.size()));
    if (!word.empty() && (is_exact ? name == word : name.starts_with(word))) is_listed = true;
  }
  return is_listed != is_negated;
}

Result<HostAddress> interface_address(std::string_view filter) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return errno_error(errno, "list", "network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::optional<HostAddress> v6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool is_up = (entry->ifa_flags & IFF_UP) != 0 && entry->ifa_addr != nullptr;
    if (!is_up || !admits(filter, entry->ifa_name)) continue;
    const auto host = host_of(entry->ifa_addr);
    if (host && !host->is_v6) return *host;
    if (host && !v6) v6 = host;
  }
  if (v6) return *v6;
  return Error{
      Code::kNotFound,
      fmt::format("find network interface {}: none has such a name and an address", filter)};
}

int Deadline::left_ms() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - clock.now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

Result<Listener> listen_at(const HostAddress& address) {
  TRY(sys::Fd fd, open_socket(address));
  SocketAddress at = socket_address(address, 0);
  if (::bind(fd.raw(), at.raw(), at.bytes) != 0)
    return errno_error(errno, "bind to", text_of(address));
  if (::listen(fd.raw(), SOMAXCONN) != 0) return errno_error(errno, "listen at", text_of(address));
  SocketAddress bound;
  if (::getsockname(fd.raw(), bound.raw(), &bound.bytes) != 0)
    return errno_error(errno, "ask for", "port");
  const auto port = address.is_v6 ? reinterpret_cast<sockaddr_in6&>(bound.storage).sin6_port
                                  : reinterpret_cast<sockaddr_in&>(bound.storage).sin_port;
  return Listener{std::move(fd), ntohs(port)};
}

Result<sys::Fd> connect_to(const HostAddress& address, std::uint16_t port,
                           const Deadline& deadline) {
  TRY(sys::Fd fd, open_socket(address));
  const std::string name = fmt::format("{} port {}", text_of(address), port);
  SocketAddress at = socket_address(address, port);
  if (::connect(fd.raw(), at.raw(), at.bytes) != 0) {
    if (errno != EINPROGRESS) return connection_error(errno, "connect to", name);
    if (auto ready = wait_for(fd, POLLOUT, deadline); !ready)
      return Error{ready.error().code, fmt::format("connect to {}: {}", name, ready.error().what)};
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (::getsockopt(fd.raw(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return connection_error(error, "connect to", name);
  }
  const int on = 1;
  ::setsockopt(fd.raw(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

Result<HostAddress> local_address(const sys::Fd& connection) {
  SocketAddress own;
  if (::getsockname(connection.raw(), own.raw(), &own.bytes) != 0)
    return errno_error(errno, "ask for", "own address");
  const auto host = host_of(own.raw());
  if (!host) return Error{Code::kUnsupported, "ask for own address: it is neither IPv4 nor IPv6"};
  return *host;
}

Result<void> send_all(const sys::Fd& connection, ByteSpan bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection.raw(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TRY_VOID(wait_for(connection, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return connection_error(errno, "send to", "peer");
    }
  }
  return {};
}

Result<void> receive_all(const sys::Fd& connection, std::span<std::byte> to,
                         const Deadline& deadline) {
  while (!to.empty()) {
    const ssize_t got = ::recv(connection.raw(), to.data(), to.size(), 0);
    if (got > 0) {
      to = to.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Error{Code::kUnavailable, "receive from peer: it closed the connection"};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TRY_VOID(wait_for(connection, POLLIN, deadline));
    } else if (errno != EINTR) {
      return connection_error(errno, "receive from", "peer");
    }
  }
  return {};
}

}  // namespace kansoku::softcuda::nccl
