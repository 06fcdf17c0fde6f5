// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::activity {

/// Resources of one multiprocessor, from the driver's attributes.
struct MultiprocessorLimits {
  std::uint64_t major{0};  // of the compute capability
  std::uint64_t threads{0}, blocks{0}, registers{0}, shared_bytes{0};
};

/// Limits from the metadata `kansoku.cuda.device.N`: "major=8 threads=2048 blocks=32
/// registers=65536 shared_bytes=167936". Nothing if one is missing, 0 or beyond 2^30.
[[nodiscard]] std::optional<MultiprocessorLimits> limits_of(std::string_view untrusted);

/// The share of a multiprocessor's threads that blocks of this size can fill at once: the
/// theoretical occupancy. Nothing for a block that does not fit, or of a device older than 7.0,
/// whose rules differ. Source: the rules of the CUDA programming guide: registers are handed out to
/// warps in units of 256, shared memory in units of 128 bytes (8.0 and newer; 256 before) with 1
/// KiB a block for the system on 8.0 and newer.
[[nodiscard]] std::optional<double> occupancy_of(const MultiprocessorLimits& limits,
                                                 std::uint64_t block_threads,
                                                 std::uint64_t registers,
                                                 std::uint64_t shared_bytes);

}  // namespace kansoku::gpu::activity
