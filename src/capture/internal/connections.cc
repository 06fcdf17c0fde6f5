// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/connections.h"

#include <algorithm>
#include <numeric>

#include "sys/tcp_links.h"

namespace kansoku::capture {
namespace {

std::size_t first_of(std::vector<std::size_t>& above, std::size_t at) {
  while (above[at] != at)
    at = above[at] = above[above[at]];
  return at;
}

}  // namespace

std::vector<std::size_t> connected(sys::TcpSampler& sampler, std::span<const std::int32_t> pids,
                                   std::span<const std::uint64_t> networks, BootTime now) {
  std::vector<std::size_t> above(pids.size());
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (const sys::TcpLink& link : sys::tcp_links(sampler, pids, networks, now)) {
    const std::size_t a = first_of(above, link.a), b = first_of(above, link.b);
    above[std::max(a, b)] = std::min(a, b);
  }
  for (std::size_t i = 0; i < above.size(); ++i)
    above[i] = first_of(above, i);
  return above;
}

}  // namespace kansoku::capture
