// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/connections.h"

#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "common/check.h"

namespace kansoku::capture {
namespace {

constexpr std::size_t kSocketsMax = 4096;  // of one process

bool is_within_host(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]:") ||
         address.starts_with("[::ffff:127.");
}

std::size_t first_of(std::vector<std::size_t>& above, std::size_t at) {
  while (above[at] != at)
    at = above[at] = above[above[at]];
  return at;
}

}  // namespace

std::vector<std::size_t> connected(sys::TcpSampler& sampler, std::span<const std::int32_t> pids,
                                   std::span<const std::uint64_t> networks, BootTime now) {
  CHECK(pids.size() == networks.size());
  static_cast<void>(sampler.sample(pids, now));
  std::vector<std::size_t> above(pids.size());
  std::iota(above.begin(), above.end(), std::size_t{0});
  // Each connection by its two ends as its process sees them; its peer sees them turned round.
  std::map<std::tuple<std::uint64_t, std::string, std::string>, std::size_t> ends;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    for (const sys::TcpSocket& socket : sampler.sockets(pids[i], kSocketsMax)) {
      const std::uint64_t network = is_within_host(socket.local) ? networks[i] : 0;
      ends.emplace(std::tuple(network, socket.local, socket.peer), i);
      const auto peer = ends.find(std::tuple(network, socket.peer, socket.local));
      if (peer == ends.end()) continue;
      const std::size_t a = first_of(above, i), b = first_of(above, peer->second);
      above[std::max(a, b)] = std::min(a, b);
    }
  }
  for (std::size_t i = 0; i < above.size(); ++i)
    above[i] = first_of(above, i);
  return above;
}

}  // namespace kansoku::capture
