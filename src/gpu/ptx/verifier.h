// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Something that is wrong with a module, at a place of its text.
struct Diagnostic {
  Place place;
  std::string message;  // lower case, names function and instruction
};

inline constexpr std::size_t kDiagnosticsMax = 100;

/// Checks properties that parsing does not: number and kind of operands, widths of registers
/// against the types of the opcode, branch targets, calls against the functions they name,
/// initialisers against variables and functions. Instructions of Op::kUnknown are not looked into.
/// At most kDiagnosticsMax; empty: the module is sound. Also used between passes: a module that a
/// pass has changed must stay sound. Pure; any thread.
[[nodiscard]] std::vector<Diagnostic> verify(const Module& module);

}  // namespace kansoku::gpu::ptx
