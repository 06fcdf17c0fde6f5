// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// False if an instruction that the operation table does not hold has a suffix that this executor
/// does not understand, or two of a kind that it may have once. True for all others: the table
/// knows their names as a whole. Any thread.
[[nodiscard]] bool has_known_suffixes(const ptx::Instruction& instruction);

}  // namespace kansoku::gpu::exec
