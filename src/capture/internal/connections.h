// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/time.h"
#include "sys/tcp.h"

namespace kansoku::capture {

/// Processes that talk to each other: by item of `pids`, the index of the first one that it hangs
/// together with, over TCP connections between any two of them. `networks`: the network namespace
/// of each; loopback addresses mean something within one alone. A process whose connections cannot
/// be seen stands for itself. Asks the kernel; not shared between threads.
[[nodiscard]] std::vector<std::size_t> connected(sys::TcpSampler& sampler,
                                                 std::span<const std::int32_t> pids,
                                                 std::span<const std::uint64_t> networks,
                                                 BootTime now);

}  // namespace kansoku::capture
