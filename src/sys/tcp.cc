// SPDX-License-Identifier: Apache-2.0
#include "sys/tcp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kFdsMax = 65536;

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(v6.sin6_port));
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), ntohs(v6.sin6_port));
}

std::optional<TcpSocket> read_socket(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  constexpr std::uint8_t kEstablished = 1;
  if (info.tcpi_state != kEstablished) return std::nullopt;
  sockaddr_storage local{}, peer{};
  socklen_t local_length = sizeof local, peer_length = sizeof peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0)
    return std::nullopt;
  return TcpSocket{.local = address_text(local),
                   .peer = address_text(peer),
                   .rtt_us = info.tcpi_rtt,
                   .min_rtt_us = info.tcpi_min_rtt,
                   .bytes_sent = info.tcpi_bytes_acked,
                   .bytes_received = info.tcpi_bytes_received,
                   .retransmits = info.tcpi_total_retrans,
                   .delivery_rate = info.tcpi_delivery_rate,
                   .busy_us = info.tcpi_busy_time,
                   .limited_us = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited};
}

/// Numbers of the descriptors of a process that are sockets, ascending.
std::vector<int> socket_fds(std::int32_t pid) {
  namespace fs = std::filesystem;
  std::vector<int> out;
  std::error_code error;
  fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error);
  std::size_t seen = 0;
  for (const fs::directory_iterator end; !error && at != end && seen < kFdsMax;
       at.increment(error), ++seen) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(at->path(), unreadable).string();
    if (unreadable || !target.starts_with("socket:")) continue;
    if (const auto fd = parse_int<int>(at->path().filename().string())) out.push_back(*fd);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<TcpSocket> tcp_sockets(std::int32_t pid, std::size_t sockets_max) {
  std::vector<TcpSocket> out;
  const std::vector<int> fds = socket_fds(pid);
  if (fds.empty()) return out;
  const auto raw_pid = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (raw_pid < 0) return out;
  const Fd process = Fd::adopt(raw_pid);
  for (const int fd : fds) {
    if (out.size() >= sockets_max) break;
    const auto raw = static_cast<int>(::syscall(SYS_pidfd_getfd, process.raw(), fd, 0));
    if (raw < 0) continue;
    const Fd duplicate = Fd::adopt(raw);
    if (auto socket = read_socket(duplicate.raw())) out.push_back(std::move(*socket));
  }
  return out;
}

}  // namespace kansoku::sys
