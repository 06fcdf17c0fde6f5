// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/time.h"
#include "sys/tcp.h"

namespace kansoku::sys {

/// A TCP connection between two processes, by their indices.
struct TcpLink {
  std::size_t a{0}, b{0};     // a process may talk to itself
  std::uint32_t quiet_ms{0};  // since data last went either way
};

/// The connections of which both ends are among `pids`, at most 4,096 of a process. `networks`: the
/// network namespace of each; loopback addresses mean something within one alone. A process whose
/// connections cannot be seen has none. Samples `sampler`; asks the kernel.
[[nodiscard]] std::vector<TcpLink> tcp_links(TcpSampler& sampler,
                                             std::span<const std::int32_t> pids,
                                             std::span<const std::uint64_t> networks, BootTime now);

}  // namespace kansoku::sys
