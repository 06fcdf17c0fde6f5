// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {

/// As ptx::Space, whose header this file may not include.
enum class MemorySpace : int { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };

/// One access of a warp, for the checks that are not part of the lane loops.
struct WarpAccess {
  MemorySpace space{MemorySpace::kGlobal};
  std::uint32_t bytes{0};
  bool is_store{false};
};

/// In memory_checks.cc. True if [lo, hi) lies in one range that may be accessed; remembers the
/// range for the site.
bool find_range(Warp& warp, const Code* code, std::uint64_t lo, std::uint64_t hi);
/// In memory_checks.cc. Host address of each active lane's access; false: the access is wild or
/// misaligned, Warp::fault says which lane's, and the warp stops.
bool resolve_each(Warp& warp, const Code* code, const WarpAccess& access,
                  const std::uint64_t* addresses, std::byte** out);

/// In memory_checks.cc. Host address of `bytes` bytes at a generic address of one lane, or null.
std::byte* place_of_generic(const Warp& warp, std::uint64_t address, std::uint32_t bytes,
                            std::uint32_t lane);

}  // namespace kansoku::gpu::exec
