// SPDX-License-Identifier: Apache-2.0
// Which addresses a warp may access: the slow way around, and the search among allocations.
#include <algorithm>

#include "gpu/exec/internal/ops/access.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
namespace {

const AddressRange* range_of(const LaunchState& launch, std::uint64_t lo, std::uint64_t hi) {
  if (lo >= hi) return nullptr;
  for (std::size_t i = 0; i < launch.memory_count; ++i) {
    const auto& [first, count] = launch.ranges[i];
    const AddressRange* const after = std::upper_bound(
        first, first + count, lo,
        [](std::uint64_t address, const AddressRange& range) { return address < range.begin; });
    if (after != first && hi <= (after - 1)->end) return after - 1;
  }
  return nullptr;
}

/// Host address of one lane's access, or null.
std::byte* place_of_lane(const Warp& warp, MemorySpace space, std::uint64_t address,
                         std::uint32_t bytes, std::uint32_t lane) {
  const LaunchState& launch = *warp.block->launch;
  switch (space) {
    case MemorySpace::kShared:
      return address <= launch.total_shared_bytes && bytes <= launch.total_shared_bytes - address
                 ? warp.block->shared + address
                 : nullptr;
    case MemorySpace::kLocal:
      return address <= warp.local_stride && bytes <= warp.local_stride - address
                 ? warp.local + std::size_t{lane} * warp.local_stride + address
                 : nullptr;
    case MemorySpace::kParam:
      // Only loads come here: a kernel's parameters cannot be written.
      return address <= launch.param_bytes && bytes <= launch.param_bytes - address
                 ? const_cast<std::byte*>(launch.params) + address
                 : nullptr;
    case MemorySpace::kGeneric:
      if (address - kSharedWindowBegin < kWindowBytes)
        return place_of_lane(warp, MemorySpace::kShared, address - kSharedWindowBegin, bytes, lane);
      if (address - kLocalWindowBegin < kWindowBytes)
        return place_of_lane(warp, MemorySpace::kLocal, address - kLocalWindowBegin, bytes, lane);
      [[fallthrough]];
    case MemorySpace::kGlobal:
    case MemorySpace::kConst:
      return range_of(launch, address, address + bytes) != nullptr
                 ? reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address))
                 : nullptr;
  }
  return nullptr;
}

}  // namespace

std::byte* place_of_generic(const Warp& warp, std::uint64_t address, std::uint32_t bytes,
                            std::uint32_t lane) {
  return place_of_lane(warp, MemorySpace::kGeneric, address, bytes, lane);
}

bool find_range(Warp& warp, const Code* code, std::uint64_t lo, std::uint64_t hi) {
  AddressRange& last = warp.block->range_cache[code->site];
  if (lo >= last.begin && hi <= last.end) return true;
  const AddressRange* const range = range_of(*warp.block->launch, lo, hi);
  if (range == nullptr) return false;
  last = *range;
  return true;
}

bool resolve_each(Warp& warp, const Code* code, const WarpAccess& access,
                  const std::uint64_t* addresses, std::byte** out) {
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_lane_of(rest);
    const bool is_misaligned = (addresses[lane] & (access.bytes - 1)) != 0;
    out[lane] = is_misaligned
                    ? nullptr
                    : place_of_lane(warp, access.space, addresses[lane], access.bytes, lane);
    if (out[lane] != nullptr) continue;
    warp.stop = Stop::kFault;
    warp.fault = {is_misaligned ? FaultKind::kMisaligned : FaultKind::kOutOfBounds,
                  code->line,
                  lane,
                  addresses[lane],
                  access.bytes,
                  access.is_store};
    return false;
  }
  return true;
}

}  // namespace kansoku::gpu::exec
