// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/decode/form_table.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::exec {

/// Places of a module's variables: device addresses, or offsets into shared memory.
struct ModuleLayout {
  std::vector<std::uint64_t> variables;        // by index into ptx::Module::variables
  std::vector<std::uint32_t> function_shared;  // by function: where its own shared variables begin
  std::uint32_t dynamic_shared_offset{0};      // begin of extern arrays
};

/// Offsets of a parameter list, each aligned; the total in `bytes`.
struct ParamLayout {
  std::vector<std::uint32_t> offsets;
  std::uint32_t bytes{0};
};
[[nodiscard]] ParamLayout lay_out_params(const std::vector<ptx::Variable>& params);

/// Makes a function ready to run. kUnsupported, naming line and instruction, for an instruction
/// that the executor does not know; kLimit for a function with too many registers. `hoists`: code
/// that gives the same for all blocks of a launch comes first (CompiledFunction::prologue); else
/// every instruction stands where the text has it.
[[nodiscard]] Result<CompiledFunction> decode_function(const ptx::Module& module,
                                                       std::uint32_t index,
                                                       const ModuleLayout& layout, Isa isa,
                                                       bool hoists = true);

}  // namespace kansoku::gpu::exec
