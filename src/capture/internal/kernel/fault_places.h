// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sys/procfs.h"

namespace kansoku::capture {

/// Memory that a page fault is in.
enum class FaultPlace : std::uint8_t {
  kHeap,     // given and taken back by brk, its end included
  kStack,    // of the first thread
  kMapped,   // a mapping without a file
  kDropped,  // no mapping any more
  kFile,     // a mapping of a file
};
inline constexpr std::size_t kFaultPlaceCount = 5;

/// As counters are named: "page faults in the heap".
[[nodiscard]] std::string_view fault_place_name(FaultPlace place);

/// The place of `address` among a process's mappings as they are somewhat later, in the order of
/// their addresses. Pure; any thread.
[[nodiscard]] FaultPlace fault_place(std::uint64_t address, std::span<const sys::Mapping> mappings);

}  // namespace kansoku::capture
