// SPDX-License-Identifier: Apache-2.0
#include "sys/tcp_links.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "common/check.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kSocketsMax = 4096;  // of one process

bool is_within_host(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]:") ||
         address.starts_with("[::ffff:127.");
}

}  // namespace

std::vector<TcpLink> tcp_links(TcpSampler& sampler, std::span<const std::int32_t> pids,
                               std::span<const std::uint64_t> networks, BootTime now) {
  CHECK(pids.size() == networks.size());
  static_cast<void>(sampler.sample(pids, now));
  struct End {
    std::size_t process{0};
    std::uint32_t quiet_ms{0};
  };
  std::vector<TcpLink> out;
  // Each connection by its two ends as its process sees them; its peer sees them turned round.
  std::map<std::tuple<std::uint64_t, std::string, std::string>, End> ends;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    for (const TcpSocket& socket : sampler.sockets(pids[i], kSocketsMax)) {
      const std::uint64_t network = is_within_host(socket.local) ? networks[i] : 0;
      ends.emplace(std::tuple(network, socket.local, socket.peer), End{i, socket.quiet_ms});
      const auto peer = ends.find(std::tuple(network, socket.peer, socket.local));
      if (peer == ends.end()) continue;
      out.push_back({peer->second.process, i, std::min(socket.quiet_ms, peer->second.quiet_ms)});
    }
  }
  return out;
}

}  // namespace kansoku::sys
