// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/fault_places.h"

#include <algorithm>

namespace kansoku::capture {
namespace {

constexpr std::array<std::string_view, kFaultPlaceCount> kNames{
    "page faults in the heap", "page faults on the stack", "page faults in mapped memory",
    "page faults in memory mapped and dropped", "page faults in files"};
// The heap grows upward into nothing; nobody trims more of it at once.
constexpr std::uint64_t kTrimmedMax = std::uint64_t{1} << 34;

}  // namespace

std::string_view fault_place_name(FaultPlace place) {
  return kNames[static_cast<std::size_t>(place)];
}

FaultPlace fault_place(std::uint64_t address, std::span<const sys::Mapping> mappings) {
  const auto after = std::upper_bound(
      mappings.begin(), mappings.end(), address,
      [](std::uint64_t at, const sys::Mapping& mapping) { return at < mapping.begin; });
  if (after == mappings.begin()) return FaultPlace::kDropped;
  const sys::Mapping& mapping = *(after - 1);
  if (address >= mapping.end) {
    const bool is_trimmed = mapping.path == "[heap]" && address - mapping.end < kTrimmedMax;
    return is_trimmed ? FaultPlace::kHeap : FaultPlace::kDropped;
  }
  if (mapping.path == "[heap]") return FaultPlace::kHeap;
  if (mapping.path == "[stack]") return FaultPlace::kStack;
  // Names in brackets, as [anon:pool], are the kernel's and no file's.
  return mapping.path.starts_with('/') ? FaultPlace::kFile : FaultPlace::kMapped;
}

}  // namespace kansoku::capture
