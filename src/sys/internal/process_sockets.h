// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/tcp.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "sys/fd.h"

namespace kansoku::sys {

/// A descriptor of another process that is a socket of any kind.
struct ProcessSocket {
  int descriptor{-1};
  std::uint32_t inode{0};  // names the socket within its network namespace
};

/// Sockets of the process whose /proc/PID folder is given, in no order; of at most 65536
/// descriptors. Empty if the process is gone or may not be looked at.
[[nodiscard]] std::vector<ProcessSocket> process_sockets(int process_folder);

/// A descriptor of ours for one of theirs; not open if there is none or it may not be duplicated
/// (pidfd_getfd, needs the right to trace the process).
[[nodiscard]] Fd duplicate_descriptor(int process_handle, int descriptor);

/// Nothing if it is no TCP socket. Fields that an older kernel does not know are 0.
[[nodiscard]] std::optional<tcp_info> tcp_info_of(int socket);

inline constexpr std::uint8_t kTcpEstablished = 1, kTcpListening = 10;  // tcpi_state

}  // namespace kansoku::sys
