// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/exec/cost.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// Cost class of an instruction, except for memory accesses: their cost depends on the address.
[[nodiscard]] CostClass cost_class_of(const ptx::Instruction& in);

}  // namespace kansoku::gpu::exec
