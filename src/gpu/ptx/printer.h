// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// The module as PTX text; parse_module gives an equal module back. Same module, same text. Pure;
/// any thread.
[[nodiscard]] std::string print_module(const Module& module);

/// One instruction, guard and semicolon included: "@%p1 add.s32 %r1, %r2, 3;".
[[nodiscard]] std::string print_instruction(const Module& module, const Function& function,
                                            const Instruction& instruction);

}  // namespace kansoku::gpu::ptx
