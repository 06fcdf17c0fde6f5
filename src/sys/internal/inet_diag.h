// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::sys {

/// An established TCP connection as the kernel's socket diagnosis tells it.
struct DiagSocket {
  std::uint64_t cookie{0};  // names the connection for ever
  std::uint32_t inode{0};
  std::uint32_t rtt_us{0}, min_rtt_us{0};
  std::uint64_t bytes_acked{0}, bytes_received{0};
  std::uint64_t retransmits{0};             // segments
  std::uint64_t delivery_rate{0};           // bytes a second
  std::uint64_t busy_us{0}, limited_us{0};  // as of TcpSocket
  std::uint32_t quiet_ms{0};                // likewise
  std::uint8_t family{0};                   // AF_INET or AF_INET6
  std::array<std::byte, 48> id{};  // addresses, ports and cookie, as the kernel wants them back
};

/// Takes over the kernel's figures of a connection, in either way of asking.
void set_figures(DiagSocket& socket, const tcp_info& info);
/// Says whose ends they are: as the kernel's answers do, from the addresses of a socket that we
/// hold. False if they are no internet addresses.
[[nodiscard]] bool set_ends(DiagSocket& socket, const sockaddr_storage& local,
                            const sockaddr_storage& peer);
/// "127.0.0.1:40712", "[::1]:40712".
[[nodiscard]] std::string local_end(const DiagSocket& socket);
[[nodiscard]] std::string peer_end(const DiagSocket& socket);

enum class DiagEnd { kMore, kDone };

/// Parses one datagram of an answer (NETLINK_SOCK_DIAG). Sockets beyond `sockets_max` in `out` and
/// such without figures are left out. kCorrupt if lengths make no sense, kUnavailable or
/// kPermission if the kernel refuses.
[[nodiscard]] Result<DiagEnd> parse_diag(ByteSpan untrusted, std::size_t sockets_max,
                                         std::vector<DiagSocket>& out);

/// Asks for connections that are known, which costs less than asking for all: the kernel finds each
/// by its addresses. Those that have ended are left out. Only the identity of the entries of
/// `known` counts.
[[nodiscard]] Result<void> query_connections(int netlink, std::span<const DiagSocket> known,
                                             std::vector<DiagSocket>& out);

/// Asks for all established connections of one family (AF_INET, AF_INET6) through a netlink socket,
/// in the namespace that it was made in. The kernel walks its whole table of connections: 0.3 to
/// 0.4 ms even if there are few.
[[nodiscard]] Result<void> dump_connections(int netlink, std::uint8_t family,
                                            std::size_t sockets_max, std::vector<DiagSocket>& out);

}  // namespace kansoku::sys
