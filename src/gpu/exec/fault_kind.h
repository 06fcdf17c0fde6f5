// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::gpu::exec {

/// Kind of a kernel's fault. The first group ends it; hazards are found only if the launch asks for
/// them, and the kernel goes on.
enum class FaultKind : std::uint8_t {
  kNone,
  kOutOfBounds,
  kMisaligned,
  kTrap,
  kAssertion,
  kDeadlock,
  kTimeout,
  kBarrierDivergence,
  kBadWarpMask,
  kStackOverflow,
  kNoSuchBarrier,
  kBadCall,
  // Hazards.
  kUninitialisedShared,
  kSharedRace,
};

}  // namespace kansoku::gpu::exec
