// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// By instruction of a kernel: true if it gives a thread the same value in every block of a launch,
/// has no other effect, and writes a register that nothing else writes. Such instructions may run
/// once for all blocks, in their order, before anything else. Pure.
[[nodiscard]] std::vector<bool> block_invariants(const ptx::Function& kernel);

}  // namespace kansoku::gpu::exec
