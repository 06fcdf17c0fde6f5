// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace kansoku::gpu::exec {

// Limits of the software device: the numbers of compute capability 8.x and 9.0, as CUDA's
// programming guide tabulates them.

inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::array<std::uint32_t, 3> kBlockExtentMax{1024, 1024, 64};
inline constexpr std::array<std::uint32_t, 3> kGridExtentMax{0x7fffffff, 65535, 65535};
inline constexpr std::uint32_t kThreadsPerSm = 2048, kBlocksPerSm = 32;
/// Bytes of shared memory: of a multiprocessor, the system's share of it for each block, the limit
/// of a block that asks for more, and that of a block that does not.
inline constexpr std::uint32_t kSharedBytesPerSm = 228 * 1024, kSharedReservedBytes = 1024,
                               kSharedBytesMax = 227 * 1024, kSharedBytesDefaultMax = 48 * 1024;
inline constexpr std::uint32_t kSmCount = 16;  // ours

}  // namespace kansoku::gpu::exec
