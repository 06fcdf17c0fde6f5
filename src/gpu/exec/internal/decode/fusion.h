// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/isa.h"
#include "gpu/exec/internal/decode/compiled.h"

namespace kansoku::gpu::exec {

/// Puts one handler before sequences that it can do at once. The codes stay where they are, so
/// branches, lines and faults are those of the single instructions; not for observers, who look at
/// each of them.
void fuse_sequences(CompiledFunction& function, Isa isa);

}  // namespace kansoku::gpu::exec
