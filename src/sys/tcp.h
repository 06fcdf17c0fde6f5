// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/time.h"

namespace kansoku::sys {

/// An established TCP connection of a process, as the kernel sees it now.
struct TcpSocket {
  std::string local, peer;  // "127.0.0.1:40712", "[::1]:40712"
  std::uint32_t rtt_us{0}, min_rtt_us{0};
  std::uint64_t bytes_sent{0}, bytes_received{0};  // acknowledged, and received
  std::uint64_t retransmits{0};                    // segments, so far
  std::uint64_t delivery_rate{0};                  // bytes a second, the latest measurement
  std::uint64_t busy_us{0}, limited_us{0};  // sending, and of that held up by window or buffer
  std::uint32_t quiet_ms{0};                // since data last came in or went out
};

/// The connections of one process together. Totals only grow: they miss the bytes that a connection
/// moved between the last sample and its end.
struct ProcessTcp {
  std::int32_t pid{0};
  std::uint32_t connections{0};                     // established now
  std::uint64_t bytes_acked{0}, bytes_received{0};  // opening a connection counts as one
  std::uint64_t retransmits{0};                     // segments
  /// Smoothed round trips of those that had traffic since the last sample; 0 connections: none had.
  std::uint32_t active_connections{0};
  double rtt_mean_us{0};
  std::uint32_t rtt_max_us{0};
};

/// Reads the connections of many processes again and again through the kernel's socket diagnosis,
/// 32 connections a question. In a network namespace that may not be entered, or whose kernel
/// refuses to answer from the first question on, each connection is duplicated for the moment of
/// asking instead (pidfd_getfd, needs the right to trace the process); nothing of it is changed.
/// New connections are looked for when a process has another number of open files than before or a
/// connection has ended, and now and then: that takes a look at all connections of the network
/// namespace, or at all descriptors of the process. Not shared between threads.
class TcpSampler {
 public:
  struct Options {
    Nanos map_again_after{std::chrono::seconds{30}};  // whose connections are whose, at the latest
    Nanos map_again_min{std::chrono::seconds{2}};  // and when there are new ones, at the earliest
    std::size_t sockets_max{65536};                // more of a namespace are not seen
    std::size_t duplicated_max{256};               // more of a process are not duplicated
    bool enters_namespaces{true};                  // others than ours
    int netlink{4};  // NETLINK_SOCK_DIAG; a family that does not answer stands for a kernel without
  };
  struct Stats {
    std::uint64_t maps{0};                   // times descriptors were looked at
    std::uint64_t unreachable_processes{0};  // gone
    std::uint64_t duplicated{0};             // connections, since the begin
    std::uint64_t failed_questions{0};
  };
  explicit TcpSampler(const Options& options);
  TcpSampler();
  TcpSampler(TcpSampler&&) noexcept;
  TcpSampler& operator=(TcpSampler&&) noexcept;
  ~TcpSampler();

  /// One entry a process of `pids` that can be looked at, in their order; a socket that several of
  /// them share is the first one's. Forgets processes that are not in `pids`. Processes of others
  /// take CAP_SYS_PTRACE; to enter a namespace that is not ours takes CAP_SYS_ADMIN.
  [[nodiscard]] std::vector<ProcessTcp> sample(std::span<const std::int32_t> pids, BootTime now);
  /// The connections of a process as the last sample saw them, by their addresses; at most so many.
  /// One that was opened since connections were looked for is missing.
  [[nodiscard]] std::vector<TcpSocket> sockets(std::int32_t pid, std::size_t sockets_max) const;
  [[nodiscard]] const Stats& stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kansoku::sys
