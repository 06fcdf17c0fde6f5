// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ptx/cfg.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// Slots of a function's registers while it runs: registers of one width that are never in use at
/// the same place of the text share a slot. Lanes are apart: whatever a warp does, a lane sees in a
/// slot what it has written there itself.
struct RegisterSlots {
  std::vector<std::uint32_t> slots;  // by register; predicates: their number
  std::uint32_t slot_count{0}, predicate_count{0};
};

/// `is_kept`: by instruction; registers that these write live as long as the function. Registers
/// that one instruction reads and writes never share. Pure.
[[nodiscard]] RegisterSlots assign_slots(const ptx::Function& function, const ptx::Cfg& cfg,
                                         const std::vector<bool>& is_kept);

}  // namespace kansoku::gpu::exec
