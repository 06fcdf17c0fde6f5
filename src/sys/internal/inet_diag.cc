// SPDX-License-Identifier: Apache-2.0
#include "sys/internal/inet_diag.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace kansoku::sys {
namespace {

constexpr unsigned kEstablished = 1;  // TCP_ESTABLISHED

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 3) & ~std::size_t{3};
}

/// The plain value at the start of `bytes`, filled with zeros if they end early.
template <class Plain>
Plain plain_at(ByteSpan bytes) {
  Plain out{};
  std::memcpy(&out, bytes.data(), std::min(sizeof out, bytes.size()));
  return out;
}

/// The body of a message: who it is, then attributes.
void add_socket(ByteSpan body, std::size_t sockets_max, std::vector<DiagSocket>& out) {
  if (body.size() < sizeof(inet_diag_msg) || out.size() >= sockets_max) return;
  const auto who = plain_at<inet_diag_msg>(body);
  if (who.idiag_state != kEstablished) return;
  ByteSpan rest = body.subspan(sizeof(inet_diag_msg));
  while (rest.size() >= sizeof(rtattr)) {
    const auto head = plain_at<rtattr>(rest);
    if (head.rta_len < sizeof(rtattr) || head.rta_len > rest.size()) return;
    if (head.rta_type == INET_DIAG_INFO) {  // older kernels send less of it
      const auto info =
          plain_at<tcp_info>(rest.subspan(sizeof(rtattr), head.rta_len - sizeof(rtattr)));
      DiagSocket socket;
      socket.cookie = std::uint64_t{who.id.idiag_cookie[1]} << 32 | who.id.idiag_cookie[0];
      socket.inode = who.idiag_inode;
      set_figures(socket, info);
      socket.family = who.idiag_family;
      static_assert(sizeof socket.id == sizeof who.id);
      std::memcpy(socket.id.data(), &who.id, sizeof who.id);
      out.push_back(socket);
      return;
    }
    rest = rest.subspan(std::min(aligned(head.rta_len), rest.size()));
  }
}

Error refused(ByteSpan body) {
  const int status = body.size() < sizeof(int) ? 0 : plain_at<int>(body);
  Error error =
      errno_error(status < 0 && status > -4096 ? -status : EPROTO, "ask for", "TCP connections");
  if (error.code != Code::kPermission) error.code = Code::kUnavailable;
  error.hint = "the kernel needs CONFIG_INET_DIAG (module tcp_diag)";
  return error;
}

/// An address as the kernel's diagnosis has it, with its port.
std::string end_text(std::uint8_t family, const __be32* address, __be16 port) {
  in6_addr v6{};
  static_assert(sizeof v6 == 4 * sizeof *address);
  std::memcpy(&v6, address, sizeof v6);
  const bool is_mapped = family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family == AF_INET || is_mapped) {
    ::inet_ntop(AF_INET, is_mapped ? &v6.s6_addr[12] : &v6.s6_addr[0], text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(port));
  }
  ::inet_ntop(AF_INET6, &v6, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), ntohs(port));
}

/// False if it is no internet address.
bool set_end(const sockaddr_storage& from, __be32* address, __be16& port) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    std::memcpy(address, &v4.sin_addr, sizeof v4.sin_addr);
    port = v4.sin_port;
    return true;
  }
  if (from.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  std::memcpy(address, &v6.sin6_addr, sizeof v6.sin6_addr);
  port = v6.sin6_port;
  return true;
}

inet_diag_sockid id_of(const DiagSocket& socket) {
  return plain_at<inet_diag_sockid>(socket.id);
}

}  // namespace

void set_figures(DiagSocket& socket, const tcp_info& info) {
  socket.rtt_us = info.tcpi_rtt;
  socket.min_rtt_us = info.tcpi_min_rtt;
  socket.bytes_acked = info.tcpi_bytes_acked;
  socket.bytes_received = info.tcpi_bytes_received;
  socket.retransmits = info.tcpi_total_retrans;
  socket.delivery_rate = info.tcpi_delivery_rate;
  socket.busy_us = info.tcpi_busy_time;
  socket.quiet_ms = std::min(info.tcpi_last_data_sent, info.tcpi_last_data_recv);
  socket.limited_us = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;
}

bool set_ends(DiagSocket& socket, const sockaddr_storage& local, const sockaddr_storage& peer) {
  inet_diag_sockid id{};
  if (!set_end(local, &id.idiag_src[0], id.idiag_sport) ||
      !set_end(peer, &id.idiag_dst[0], id.idiag_dport))
    return false;
  socket.family = static_cast<std::uint8_t>(local.ss_family);
  std::memcpy(socket.id.data(), &id, sizeof id);
  return true;
}

std::string local_end(const DiagSocket& socket) {
  const inet_diag_sockid id = id_of(socket);
  return end_text(socket.family, &id.idiag_src[0], id.idiag_sport);
}

std::string peer_end(const DiagSocket& socket) {
  const inet_diag_sockid id = id_of(socket);
  return end_text(socket.family, &id.idiag_dst[0], id.idiag_dport);
}

Result<DiagEnd> parse_diag(ByteSpan untrusted, std::size_t sockets_max,
                           std::vector<DiagSocket>& out) {
  while (untrusted.size() >= sizeof(nlmsghdr)) {
    const auto head = plain_at<nlmsghdr>(untrusted);
    if (head.nlmsg_len < sizeof(nlmsghdr) || head.nlmsg_len > untrusted.size())
      return Error{Code::kCorrupt, "TCP connections: a message of an impossible length"};
    const ByteSpan body = untrusted.subspan(sizeof(nlmsghdr), head.nlmsg_len - sizeof(nlmsghdr));
    if (head.nlmsg_type == NLMSG_DONE) return DiagEnd::kDone;
    if (head.nlmsg_type == NLMSG_ERROR) return refused(body);
    if (head.nlmsg_type == SOCK_DIAG_BY_FAMILY) add_socket(body, sockets_max, out);
    untrusted = untrusted.subspan(std::min(aligned(head.nlmsg_len), untrusted.size()));
  }
  return DiagEnd::kMore;
}

namespace {

struct Request {
  nlmsghdr head;
  inet_diag_req_v2 body;
};
static_assert(sizeof(Request) == sizeof(nlmsghdr) + sizeof(inet_diag_req_v2));
// One call's answers have to fit into the socket's receive buffer (208 KiB by default).
constexpr std::size_t kBatch = 32;

Request make_request(std::uint8_t family, std::uint16_t flags) {
  Request request{};
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = static_cast<__u16>(NLM_F_REQUEST | flags);
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  request.body.idiag_states = 1U << kEstablished;
  return request;
}

}  // namespace

Result<void> query_connections(int netlink, std::span<const DiagSocket> known,
                               std::vector<DiagSocket>& out) {
  std::array<Request, kBatch> requests{};
  alignas(nlmsghdr) std::array<std::byte, 8192> buffer;
  while (!known.empty()) {
    const std::size_t count = std::min(known.size(), kBatch);
    for (std::size_t i = 0; i < count; ++i) {
      requests[i] = make_request(known[i].family, 0);
      std::memcpy(&requests[i].body.id, known[i].id.data(), sizeof requests[i].body.id);
    }
    known = known.subspan(count);
    const std::size_t bytes = count * sizeof(Request);
    if (::send(netlink, requests.data(), bytes, 0) != static_cast<ssize_t>(bytes))
      return errno_error(errno, "ask for", "TCP connections");
    // Each gets one datagram: what it is, or that it is not there any more.
    for (std::size_t i = 0; i < count; ++i) {
      ssize_t got = 0;
      do {
        got = ::recv(netlink, buffer.data(), buffer.size(), 0);
      } while (got < 0 && errno == EINTR);
      if (got < 0) return errno_error(errno, "ask for", "TCP connections");
      const ByteSpan datagram(buffer.data(), static_cast<std::size_t>(got));
      static_cast<void>(parse_diag(datagram, SIZE_MAX, out));  // refused: it has ended
    }
  }
  return {};
}

Result<void> dump_connections(int netlink, std::uint8_t family, std::size_t sockets_max,
                              std::vector<DiagSocket>& out) {
  const Request request = make_request(family, NLM_F_DUMP);
  if (::send(netlink, &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request))
    return errno_error(errno, "ask for", "TCP connections");
  alignas(nlmsghdr) std::array<std::byte, 32768> buffer;  // the most that the kernel fills
  while (true) {
    const ssize_t got = ::recv(netlink, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "ask for", "TCP connections");
    const ByteSpan datagram(buffer.data(), static_cast<std::size_t>(got));
    TRY(const DiagEnd end, parse_diag(datagram, sockets_max, out));
    if (end == DiagEnd::kDone) return {};
  }
}

}  // namespace kansoku::sys
