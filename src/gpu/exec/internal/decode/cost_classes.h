// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/exec/cost.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// What an instruction costs, accesses of memory excepted: they go by where they lead.
[[nodiscard]] CostClass cost_class_of(const ptx::Instruction& in);

}  // namespace kansoku::gpu::exec
