// SPDX-License-Identifier: Apache-2.0
#include "sys/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sys/fd.h"
#include "sys/internal/process_sockets.h"

namespace kansoku::sys {
namespace {

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
  const auto info = tcp_info_of(fd);
  if (!info || info->tcpi_state != kTcpEstablished) return std::nullopt;
  sockaddr_storage local{}, peer{};
  socklen_t local_length = sizeof local, peer_length = sizeof peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0)
    return std::nullopt;
  return TcpSocket{.local = address_text(local),
                   .peer = address_text(peer),
                   .rtt_us = info->tcpi_rtt,
                   .min_rtt_us = info->tcpi_min_rtt,
                   .bytes_sent = info->tcpi_bytes_acked,
                   .bytes_received = info->tcpi_bytes_received,
                   .retransmits = info->tcpi_total_retrans,
                   .delivery_rate = info->tcpi_delivery_rate,
                   .busy_us = info->tcpi_busy_time,
                   .limited_us = info->tcpi_rwnd_limited + info->tcpi_sndbuf_limited};
}

}  // namespace

std::vector<TcpSocket> tcp_sockets(std::int32_t pid, std::size_t sockets_max) {
  std::vector<TcpSocket> out;
  const int raw_folder =
      ::open(fmt::format("/proc/{}", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (raw_folder < 0) return out;
  const Fd folder = Fd::adopt(raw_folder);
  std::vector<ProcessSocket> sockets = process_sockets(folder.raw());
  if (sockets.empty()) return out;
  const auto raw_pid = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (raw_pid < 0) return out;
  const Fd process = Fd::adopt(raw_pid);
  std::sort(sockets.begin(), sockets.end(),
            [](const auto& a, const auto& b) { return a.descriptor < b.descriptor; });
  for (const ProcessSocket& theirs : sockets) {
    if (out.size() >= sockets_max) break;
    const Fd duplicate = duplicate_descriptor(process.raw(), theirs.descriptor);
    if (!duplicate.is_open()) continue;
    if (auto socket = read_socket(duplicate.raw())) out.push_back(std::move(*socket));
  }
  return out;
}

}  // namespace kansoku::sys
