// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kansoku::sys {

/// An established TCP connection of a process, as the kernel sees it now.
struct TcpSocket {
  std::string local, peer;  // "127.0.0.1:40712", "[::1]:40712"
  std::uint32_t rtt_us{0}, min_rtt_us{0};
  std::uint64_t bytes_sent{0}, bytes_received{0};  // acknowledged, and received
  std::uint64_t retransmits{0};                    // segments, so far
  std::uint64_t delivery_rate{0};                  // bytes a second, the latest measurement
  std::uint64_t busy_us{0}, limited_us{0};  // sending, and of that held up by window or buffer
};

/// The connections of `pid`, at most `sockets_max`, in whatever network namespace it lives: each
/// socket is duplicated for the moment of asking (pidfd_getfd, needs the right to trace the
/// process), nothing of it is changed. Empty if the process is gone or may not be looked at.
[[nodiscard]] std::vector<TcpSocket> tcp_sockets(std::int32_t pid, std::size_t sockets_max);

}  // namespace kansoku::sys
