// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/bytes.h"
#include "sys/procfs.h"

namespace kansoku::sys {

/// Looks through the memory that a process writes itself (heap, anonymous mappings), in chunks
/// whose addresses are multiples of 8: `visit` gets a chunk, untrusted, and its address, and ends
/// the search by returning false. At most 2 GiB, of no mapping more than 256 MiB; returns how many
/// bytes of such memory were not looked at. Stops nothing, writes nothing. Any thread.
[[nodiscard]] std::uint64_t search_memory(
    std::int32_t pid, std::span<const Mapping> mappings,
    const std::function<bool(ByteSpan untrusted, std::uint64_t address)>& visit);

}  // namespace kansoku::sys
